//! Execution of agent runs: the model provider returns events, the state machine turns them into effects, and the run executes
//! the effects. [`progress`] decides the next step.

mod answers;
mod approved;
mod effects;
mod events;
mod progress;
mod route;
mod spent;
#[cfg(test)]
mod tests;
mod waits;

#[cfg(feature = "workflows")]
pub(crate) use progress::provider_session_in;

use super::model::failed_text;
use super::requests::ToolRequest;
use super::{AgentExecutor, AgentRunError, AnsweredBy, ProviderEvent, ProviderSession};
use crate::clock::within;
use crate::error::BoxError;
use crate::executor::{ContextError, ExecutionContext, Record};
use crate::machine::{
    Answer, CallId, Deferral, Effect, MachineCall, ResultDelivery, ToolOutcome, ToolResult,
};
use crate::model::Json;
use crate::tool;
use futures::StreamExt as _;
use futures::future::{AbortHandle, BoxFuture};
use futures::stream::FuturesUnordered;
use progress::{NextStep, Progress};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;
use tracing::Instrument as _;
use waits::Awaited;

/// A guardrail check or the execution of a tool call in an agent run. The result is `None` if the call was cancelled.
type Work<'r> = BoxFuture<'r, Option<WorkResult>>;

/// The result of a guardrail check or of the execution of a tool call.
enum WorkResult {
    /// The tool call has finished.
    Finished(CallId, ToolOutcome),
    /// The guardrails permit a tool call with these arguments. `again` is `true` if an earlier attempt may have made the call.
    Admitted { call: MachineCall, again: bool },
    /// The guardrails have checked an additional output that the model submitted by a tool call.
    Checked {
        call: MachineCall,
        output: Result<Json, Answer>,
    },
}

/// One attempt of an agent's run.
pub(super) struct Run<'r> {
    agent: &'r AgentExecutor,
    context: &'r ExecutionContext,
    progress: Progress,
    /// The run's session with its model provider, or `None` while none is open.
    session: Option<Box<dyn ProviderSession>>,
    running: FuturesUnordered<Work<'r>>,
    /// Guardrail checks and tool calls that start when fewer than the maximum number of concurrent calls are running.
    queue: VecDeque<Work<'r>>,
    /// The handles to abort the running and queued guardrail checks and tool calls, by tool call ID.
    aborts: HashMap<CallId, AbortHandle>,
    /// Tool results that are not yet delivered to the model provider, which may need all results of one model answer together.
    undelivered: Vec<ToolResult>,
    /// Unsent progress events for the chat client whose message the run answers. They are sent after the progress is saved, so
    /// that no later attempt repeats them.
    unsent_events: Vec<Record>,
    started_at: Instant,
    /// The time that the run's earlier attempts have worked, not counting the time in which the run was suspended.
    earlier_time: Duration,
}

impl<'r> Run<'r> {
    /// Creates the attempt of an agent run, from the saved state of an earlier attempt if there is one.
    ///
    /// # Errors
    /// [`AgentRunError::UnreadableState`] if the saved state cannot be read.
    pub(super) fn new(
        agent: &'r AgentExecutor,
        context: &'r ExecutionContext,
    ) -> Result<Self, AgentRunError> {
        let progress = match context.resumed() {
            Some(resumed) => resumed
                .state
                .parse()
                .map_err(AgentRunError::UnreadableState)?,
            None => Progress::new(
                context.idempotency_key(),
                agent.provider.delivery(),
                &agent.definition,
            ),
        };
        Ok(Self {
            earlier_time: progress.spent.time(),
            started_at: Instant::now(),
            session: None,
            running: FuturesUnordered::new(),
            queue: VecDeque::new(),
            aborts: HashMap::new(),
            undelivered: Vec::new(),
            unsent_events: Vec::new(),
            agent,
            context,
            progress,
        })
    }

    /// Executes the run until the agent has an answer. Returns the context of the response.
    ///
    /// # Errors
    /// [`AgentRunError`], [`ModelError`](super::ModelError), errors of shaping the context and saving the progress, and
    /// the suspension if the run waits for answers.
    pub(super) async fn finish(mut self) -> Result<Value, BoxError> {
        self.repeat_unfinished().await?;
        self.process_replies().await?;
        loop {
            if let Some(response) = self.progress.response(self.agent.output.as_ref()) {
                self.close_session().await;
                return Ok(response?);
            }
            if self.running.is_empty() && !self.progress.waits.is_empty() {
                return Err(self.suspend().await?);
            }
            self.advance().await?;
        }
    }

    /// Repeats the tool calls and requests that an earlier attempt of the run did not finish. Delivered results are in the provider's saved
    /// state.
    async fn repeat_unfinished(&mut self) -> Result<(), BoxError> {
        let mut again = VecDeque::new();
        for effect in self.progress.machine.outstanding() {
            match effect {
                Effect::Execute(call) if !self.has_wait(&call.id) => {
                    again.extend(self.admit(call, true));
                }
                Effect::Defer { call_id, action } if !self.has_wait(&call_id) => {
                    again.extend(self.defer(call_id, action));
                }
                Effect::Execute(_)
                | Effect::Defer { .. }
                | Effect::Deliver(_)
                | Effect::CancelCall(_)
                | Effect::Remind { .. }
                | Effect::Finish(_)
                | Effect::Report(_) => {}
            }
        }
        self.execute_effects(again.into()).await
    }

    fn has_wait(&self, call: &CallId) -> bool {
        let mut waits = self.progress.waits.iter();
        waits.any(|wait| wait.call() == Some(call))
    }

    /// Waits for the next event of the model provider or the next finished work on a tool call, and processes it.
    async fn advance(&mut self) -> Result<(), BoxError> {
        let awaits_model = self.awaits_model();
        if awaits_model {
            self.update_working_time();
            self.check_remaining()?;
            self.open_session().await?;
        }
        let limit = self.time_left();
        let turn = self.progress.spent.turns + 1;
        let agent = &*self.agent.definition.agent_id;
        let (model, failed_models) = (tracing::field::Empty, tracing::field::Empty);
        let span = tracing::debug_span!("model_turn", agent, turn, model, failed_models);
        let Self {
            session, running, ..
        } = self;
        let next = async {
            let event = async {
                match session {
                    Some(session) if awaits_model => {
                        let event = session.next().instrument(span.clone()).await;
                        let answered_by = event.as_ref().ok().and_then(ProviderEvent::answered_by);
                        record_model(&span, answered_by);
                        event
                    }
                    Some(_) | None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(result) = running.next() => Ok(NextEvent::WorkResult(result)),
                event = event => event.map(NextEvent::Provider),
            }
        };
        let next = within_time_budget(limit, next).await??;
        self.update_working_time();
        match next {
            NextEvent::Provider(event) => self.handle_provider_event(event).await?,
            NextEvent::WorkResult(result) => self.process_finished_work(result).await?,
        }
        self.save().await
    }

    /// Returns `true` if the agent run's next event can come from the model provider, for which the run opens a session if none
    /// is open. A session is not opened while the run waits for answers, because the run would close it again, nor before all
    /// calls have results.
    fn awaits_model(&self) -> bool {
        let has_session = self.session.is_some();
        let is_settled = self.progress.waits.is_empty() && self.running.is_empty();
        self.progress.may_request_model() && (has_session || is_settled)
    }

    /// Reads the field `tool_requests` of a model answer, if the agent definition permits the field.
    fn requests_in(&self, text: &str) -> Option<Vec<ToolRequest>> {
        let is_batch = self.progress.machine.policy().delivery == ResultDelivery::Batch;
        let may_request = self.agent.definition.requests_tools && self.agent.output.is_none();
        match is_batch && may_request {
            true => self.progress.requests_in(text),
            false => None,
        }
    }

    async fn handle_provider_event(&mut self, event: ProviderEvent) -> Result<(), BoxError> {
        let agent = self.agent;
        let (event, answer_problem) = match event {
            ProviderEvent::Finished {
                text,
                cut_off,
                usage,
                answered_by,
            } => {
                if let Some(requests) = self.requests_in(&text) {
                    let progress = &mut self.progress;
                    progress.spent.add_model(answered_by.as_ref());
                    let effects = progress.request(requests, usage, &agent.definition)?;
                    return self.execute_effects(effects).await;
                }
                let (text, answer_problem) = agent.check_final_answer(text).await?;
                let event = ProviderEvent::Finished {
                    text,
                    cut_off,
                    usage,
                    answered_by,
                };
                (event, answer_problem)
            }
            event @ (ProviderEvent::Calls { .. } | ProviderEvent::Asks { .. }) => (event, None),
        };
        match self
            .progress
            .handle_event(event, &agent.definition, answer_problem)?
        {
            NextStep::Effects(effects) => self.execute_effects(effects).await,
            NextStep::Repair(message) => {
                self.record_repair();
                self.open_session().await?.tell(message).await
            }
            NextStep::RequestModel {
                tool,
                input,
                number,
            } => {
                let id = self.request_id(&["model", &number.to_string()]);
                let by = &agent.definition.agent_id;
                let request = tool::request(&tool, input.into_value(), &id, Some(by));
                let seconds = agent.definition.wait_seconds.model.get();
                let timeout = Duration::from_secs(seconds.into());
                self.wait(id, timeout, Awaited::Model { tool }, |_| request);
                Ok(())
            }
        }
    }

    /// Saves the progress of the run for another attempt. The saved progress omits requests that are not yet written as breadcrumbs.
    async fn save(&mut self) -> Result<(), BoxError> {
        if let Some(session) = &self.session {
            self.progress.session = Some(session.save()?);
        }
        if self.running.is_empty() && !self.progress.waits.is_empty() {
            // The run is suspended next, which also saves the progress.
            self.send_events();
            return Ok(());
        }
        let state = self.progress.without_unwritten_requests(Progress::to_json);
        match self.context.save(state?).await {
            // On a store without a ledger nothing is saved, and a retry starts from the beginning.
            Ok(()) | Err(ContextError::Unsupported { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.send_events();
        Ok(())
    }

    /// Returns an error if the run has reached its maximum number of model requests or program starts, or has used up a budget.
    /// The turns of a program are its starts, so a running program needs no further turn.
    fn check_remaining(&self) -> Result<(), AgentRunError> {
        let (spent, definition) = (&self.progress.spent, &self.agent.definition);
        let is_batch = self.progress.machine.policy().delivery == ResultDelivery::Batch;
        match is_batch || self.session.is_none() {
            true => spent.check(definition),
            false => spent.check_budgets(definition),
        }
    }

    /// Returns the run's session with its model provider, and starts or resumes it if necessary.
    async fn open_session(&mut self) -> Result<&mut Box<dyn ProviderSession>, BoxError> {
        if self.session.is_none() {
            let (agent, context) = (self.agent, self.context);
            let mut task = agent.task(context).await?;
            if agent.provider.delivery() == ResultDelivery::Each {
                self.progress.spent.start();
                let answered_calls = self.progress.machine.answered();
                let approved = &self.progress.approved;
                task.made = answered_calls
                    .map(|(call, answer)| {
                        let result = approved::result_for_model(approved, &call.id, answer);
                        (call.clone(), result)
                    })
                    .collect();
            }
            let provider = &agent.provider;
            self.session = Some(match self.progress.session.clone() {
                Some(saved) => provider.resume(task, saved).await?,
                None => provider.start(task).await?,
            });
        }
        let closed = || BoxError::from("the provider returned no session");
        self.session.as_mut().ok_or_else(closed)
    }

    /// Saves and cancels the run's session with its model provider, if one is open.
    async fn close_session(&mut self) {
        if let Some(mut session) = self.session.take() {
            if let Ok(saved) = session.save() {
                self.progress.session = Some(saved);
            }
            session.cancel().await;
        }
    }

    fn update_working_time(&mut self) {
        let worked = self.earlier_time + self.started_at.elapsed();
        self.progress.spent.set_time(worked);
    }

    /// Returns the time that the run may still work and the run's time budget in seconds, or `None` without a time budget.
    fn time_left(&self) -> Option<(Duration, u64)> {
        let limit = self.agent.definition.budgets.seconds?;
        let worked = self.earlier_time + self.started_at.elapsed();
        Some((Duration::from_secs(limit).saturating_sub(worked), limit))
    }
}

/// The next event of an agent run: an event of the model provider, or finished work on a tool call.
enum NextEvent {
    Provider(ProviderEvent),
    WorkResult(Option<WorkResult>),
}

/// Records in the span of a turn which model of a list answered, and which models failed before.
fn record_model(span: &tracing::Span, answered_by: Option<&AnsweredBy>) {
    let Some(answered_by) = answered_by else {
        return;
    };
    span.record("model", &*answered_by.model);
    if !answered_by.failed.is_empty() {
        span.record("failed_models", failed_text(&answered_by.failed).as_str());
    }
}

/// Awaits a future, or fails when the run has used up its budget of working time.
///
/// # Errors
/// [`AgentRunError::BudgetUsedUp`] if the time is over first.
async fn within_time_budget<T>(
    limit: Option<(Duration, u64)>,
    future: impl Future<Output = T>,
) -> Result<T, AgentRunError> {
    let Some((remaining, limit)) = limit else {
        return Ok(future.await);
    };
    let budget = "seconds";
    let used_up = || AgentRunError::BudgetUsedUp { budget, limit };
    within(remaining, future).await.ok_or_else(used_up)
}
