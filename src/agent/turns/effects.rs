//! Execution of the effects that a run's state machine requests: tool calls, tool results for the model provider, and the end of
//! the run.

use super::{Run, WorkResult, approved};
use crate::error::BoxError;
use crate::machine::{Effect, MachineAnomaly, ResultDelivery, ToolResult};
use crate::model::display_text;
use futures::{FutureExt as _, StreamExt as _};
use std::collections::VecDeque;
use std::mem;

/// Maximum number of concurrent tool calls of one agent run.
const MAX_CONCURRENT_CALLS: usize = 16;

impl Run<'_> {
    /// Processes the results of all guardrail checks and tool calls that have finished, beginning with `result`. The run's
    /// progress is saved only once for all of them.
    pub(super) async fn process_finished_work(
        &mut self,
        result: Option<WorkResult>,
    ) -> Result<(), BoxError> {
        let mut effects = result.map_or_else(Vec::new, |result| self.process_work(result));
        while let Some(Some(result)) = self.running.next().now_or_never() {
            effects.extend(result.map_or_else(Vec::new, |result| self.process_work(result)));
        }
        self.execute_effects(effects).await
    }

    fn process_work(&mut self, result: WorkResult) -> Vec<Effect> {
        match result {
            WorkResult::Finished(id, outcome) => {
                self.aborts.remove(&id);
                self.progress.finish(id, outcome)
            }
            WorkResult::Admitted { call, again } => self.execute(call, again),
            WorkResult::Checked { call, output } => {
                self.aborts.remove(&call.id);
                self.finish_output_call(call, output)
            }
        }
    }

    /// Executes the effects that the run's state machine requests, such as tool calls, and the further effects that follow from
    /// their results.
    pub(super) async fn execute_effects(&mut self, effects: Vec<Effect>) -> Result<(), BoxError> {
        let mut effects = VecDeque::from(effects);
        loop {
            while let Some(effect) = effects.pop_front() {
                effects.extend(self.execute_effect(effect).await?);
            }
            effects.extend(self.deliver().await?);
            if effects.is_empty() {
                break;
            }
        }
        while self.running.len() < MAX_CONCURRENT_CALLS
            && let Some(call) = self.queue.pop_front()
        {
            self.running.push(call);
        }
        Ok(())
    }

    async fn execute_effect(&mut self, effect: Effect) -> Result<Vec<Effect>, BoxError> {
        if let Some(observer) = &self.agent.observer {
            observer(self.progress.machine.run(), &effect);
        }
        match effect {
            Effect::Execute(call) => {
                self.record_call(&call);
                return Ok(self.admit(call, false));
            }
            Effect::Defer { call_id, action } => return Ok(self.defer(call_id, action)),
            Effect::Deliver(results) => {
                self.record_results(&results);
                self.undelivered.extend(results);
            }
            Effect::CancelCall(id) => {
                let waits = &mut self.progress.waits;
                waits.retain(|wait| wait.call() != Some(&id));
                if let Some(work) = self.aborts.remove(&id) {
                    work.abort();
                }
            }
            Effect::Remind { missing } => {
                let message = format!(
                    "You are not done: call {} to submit the missing outputs.",
                    missing.join(" and ")
                );
                // The results of earlier calls are delivered first.
                let results = mem::take(&mut self.undelivered);
                if !results.is_empty() {
                    self.send_results(results).await?;
                }
                self.open_session().await?.tell(message).await?;
            }
            Effect::Finish(_) => {}
            Effect::Report(anomaly) => {
                let agent = &*self.agent.definition.agent_id;
                let what = anomaly_name(&anomaly);
                tracing::debug!(
                    agent,
                    what,
                    "an agent run ignored an unexpected input of its state machine"
                );
            }
        }
        Ok(Vec::new())
    }

    /// Sends the undelivered tool results to the model provider, or ends the run if the results are its answer to the user. With
    /// batch delivery, nothing is delivered until all calls have results.
    async fn deliver(&mut self) -> Result<Vec<Effect>, BoxError> {
        let is_batch = self.progress.machine.policy().delivery == ResultDelivery::Batch;
        let has_pending_calls = is_batch && self.progress.machine.pending().next().is_some();
        if self.undelivered.is_empty() || has_pending_calls {
            return Ok(Vec::new());
        }
        let results = mem::take(&mut self.undelivered);
        let effects = match is_batch && self.progress.machine.exit().is_none() {
            true => self.return_to_user(&results).await?,
            false => Vec::new(),
        };
        match (self.progress.machine.exit(), &mut self.session) {
            // No caller waits: a program that is started again sends the call again.
            (None, None) if !is_batch => {}
            (None, _) => self.send_results(results).await?,
            // A caller that still waits for a call gets the error that the run is over.
            (Some(_), Some(session)) if !is_batch => session.deliver(results).await?,
            (Some(_), Some(_) | None) => {}
        }
        Ok(effects)
    }

    /// Sends the tool results in `results` to the run's session with its model provider. If the model requested the tools in the
    /// text of its answer, the model receives the results as a message.
    async fn send_results(&mut self, mut results: Vec<ToolResult>) -> Result<(), BoxError> {
        approved::add_change_notes(&self.progress.approved, &mut results);
        let message = self.progress.results_of_requests(&mut results);
        let session = self.open_session().await?;
        match message {
            Some(message) => session.tell(message).await,
            None => session.deliver(results).await,
        }
    }

    /// Ends the run with tool results as the answer, if the results are for the user and the output guardrails permit them.
    async fn return_to_user(&mut self, results: &[ToolResult]) -> Result<Vec<Effect>, BoxError> {
        let Some(results) = self.progress.results_for_user(results) else {
            return Ok(Vec::new());
        };
        let texts = results.iter().map(|(_, output)| display_text(output));
        let texts: Vec<String> = texts.collect();
        let text = texts.join("\n\n");
        Ok(
            match self.agent.apply_output_guardrails(text.clone()).await? {
                Ok(passed) if passed == text => self.progress.finish_with_results(text, results),
                Ok(passed) => self.progress.finish_with_results(passed, Vec::new()),
                // The guardrail permits another answer, so the model receives the results.
                Err(_) => Vec::new(),
            },
        )
    }
}

/// Returns the name, for a log, of the reason why the run's state machine rejected an input. The name contains no call ID,
/// because a model or a program chose the ID.
fn anomaly_name(anomaly: &MachineAnomaly) -> &'static str {
    match anomaly {
        MachineAnomaly::UnknownCall { .. } => "unknown_call",
        MachineAnomaly::DuplicateCompletion { .. } => "duplicate_completion",
        MachineAnomaly::ConflictingCall { .. } => "conflicting_call",
        MachineAnomaly::NotDeferred { .. } => "not_deferred",
        MachineAnomaly::AfterTerminal => "after_terminal",
        MachineAnomaly::StaleRun { .. } => "stale_run",
    }
}
