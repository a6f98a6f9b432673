//! The saved progress of an agent run, and the decision about the run's next action. The module does no I/O and reads no clock.

use super::approved::Approved;
use super::spent::Spent;
use super::waits::{Awaited, Wait};
use crate::agent::api::serialize_state;
use crate::agent::final_answer::AnswerProblem;
use crate::agent::output::Output;
use crate::agent::requests::{self, Requested, ToolRequest};
use crate::agent::tool_offer::declare_outputs;
use crate::agent::{AgentDefinition, AgentRunError, ProviderEvent, Usage};
use crate::error::{BoxError, excerpt};
use crate::machine::{
    Answer, CallId, Effect, Exit, Input, Machine, MachineCall, MachineLimits, Policy,
    ResultDelivery, Signal, State, ToolOutcome, ToolResult,
};
use crate::model::{Json, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The saved state from which another attempt continues an agent run.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Progress {
    pub(super) machine: Machine,
    /// The saved state of the model provider's session, or `None` before the session starts.
    pub(super) session: Option<Json>,
    pub(super) spent: Spent,
    /// The number of final answers that the model had to correct in this run.
    repairs: u32,
    /// The unanswered requests of the agent run to tools, agents, people and models.
    pub(super) waits: Vec<Wait>,
    /// The update time of the newest breadcrumb that the run checked and in which it found no answer to its requests. Breadcrumbs
    /// up to this time do not wake the run again.
    pub(super) since: Option<Timestamp>,
    /// The number of model requests that the run sent as breadcrumbs.
    asked: u32,
    /// The tool calls that a person approved and that an attempt of the run has possibly made.
    pub(super) approved: Vec<Approved>,
    /// The additional outputs that the model submitted, by output name. Guardrails may have changed them.
    handed_in: BTreeMap<String, Json>,
    /// The final answer of the run, or `None` if it has none yet.
    ended: Option<FinalAnswer>,
    /// The tool calls of the last model answer with their tool names, if all their results are for the user. Otherwise `None`.
    direct: Option<Vec<(CallId, String)>>,
    /// The entries in the field `tool_requests` of the last model answer, until the model receives their results.
    #[serde(default)]
    requested: Vec<Requested>,
    /// The number of model answers in this run that requested tools in the field `tool_requests`.
    #[serde(default)]
    requesting_answers: u32,
}

/// Extracts the state of the provider session from the saved state of a run, or returns `None` if the state contains no session.
#[cfg(feature = "workflows")]
pub(crate) fn provider_session_in(state: &Json) -> Option<Json> {
    #[derive(Deserialize)]
    struct SavedSession {
        session: Option<Json>,
    }
    state.parse::<SavedSession>().ok()?.session
}

/// The final answer of a run.
#[derive(Debug, Default, Deserialize, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "saved runs have these fields, and each is independent of the others"
)]
struct FinalAnswer {
    text: String,
    cut_off: bool,
    /// The tool results that are the run's answer, with the names of their tools.
    results: Vec<(String, Json)>,
    /// If `true`, the run's answer is the answer of another agent.
    delegated: bool,
    /// If `true`, the run's answer consists of tool results.
    returned: bool,
    /// If `true`, the final answer's tool results come from the field `tool_requests` of a model answer instead of from tool
    /// calls.
    #[serde(default)]
    requested: bool,
}

/// The next step of a run after an event of the model provider.
#[derive(Debug)]
pub(super) enum NextStep {
    /// The run executes these effects of its state machine.
    Effects(Vec<Effect>),
    /// The run sends the model this message, because its answer does not meet the requirements.
    Repair(String),
    /// The run sends a model request as a breadcrumb. `number` counts these requests from 1.
    RequestModel {
        tool: String,
        input: Json,
        number: u32,
    },
}

impl Progress {
    /// Maximum number of answers that the model may correct in one run.
    const MAX_REPAIRS: u32 = 1;

    /// Creates the progress of a new agent run.
    pub(super) fn new(run: &str, delivery: ResultDelivery, definition: &AgentDefinition) -> Self {
        let policy = match delivery {
            // The conversation contains the results, so the machine need not retain answered calls. During a turn both contain them,
            // and the remaining state size is for the earlier conversation.
            ResultDelivery::Batch => Policy::batch().limits(MachineLimits {
                answered_bytes: 0,
                bytes: 384 << 10,
                ..MachineLimits::default()
            }),
            ResultDelivery::Each => Policy::each(),
        };
        Self {
            machine: Machine::new(run, declare_outputs(policy, definition)),
            session: None,
            spent: Spent::default(),
            repairs: 0,
            waits: Vec::new(),
            since: None,
            asked: 0,
            approved: Vec::new(),
            handed_in: BTreeMap::new(),
            ended: None,
            direct: None,
            requested: Vec::new(),
            requesting_answers: 0,
        }
    }

    /// Returns `true` if the run may request the next event from the model provider; with [`ResultDelivery::Batch`], only if no
    /// tool call and no model request is pending.
    pub(super) fn may_request_model(&self) -> bool {
        let model = |wait: &Wait| matches!(wait.awaited, Awaited::Model { .. });
        match self.machine.policy().delivery {
            ResultDelivery::Each => true,
            ResultDelivery::Batch => {
                self.machine.pending().next().is_none() && !self.waits.iter().any(model)
            }
        }
    }

    /// Processes an event of the model provider. `answer_problem` is the problem with a final answer, if there is one.
    ///
    /// # Errors
    /// [`AgentRunError`] if the run has no turns or budget left, or if the answer cannot be corrected any more.
    pub(super) fn handle_event(
        &mut self,
        event: ProviderEvent,
        definition: &AgentDefinition,
        answer_problem: Option<AnswerProblem>,
    ) -> Result<NextStep, AgentRunError> {
        match event {
            ProviderEvent::Calls {
                calls,
                usage,
                answered_by,
                ..
            } => {
                self.spent.add_model(answered_by.as_ref());
                let is_turn = self.machine.policy().delivery == ResultDelivery::Batch;
                let new = calls.iter().filter(|call| !self.machine.knows(&call.id));
                self.spent.add(usage, new.count(), is_turn);
                self.spent.check(definition)?;
                let is_direct = |call: &MachineCall| definition.return_to_user.contains(&call.tool);
                let is_direct = calls.iter().all(is_direct);
                Ok(NextStep::Effects(self.receive_calls(calls, is_direct)))
            }
            ProviderEvent::Finished {
                text,
                cut_off,
                usage,
                answered_by,
            } => {
                self.spent.add_model(answered_by.as_ref());
                let is_turn = self.machine.policy().delivery == ResultDelivery::Batch;
                self.spent.add(usage, 0, is_turn);
                // An answer of another agent or of tools stays the answer, also after a reminder.
                let earlier_answer = self
                    .ended
                    .take_if(|ended| ended.delegated || ended.returned);
                match (answer_problem, earlier_answer) {
                    (_, Some(earlier_answer)) => Ok(NextStep::Effects(self.end(earlier_answer))),
                    (Some(problem), None) => self.repair(problem, &text, definition),
                    (None, None) => Ok(NextStep::Effects(self.end(FinalAnswer {
                        text,
                        cut_off,
                        ..FinalAnswer::default()
                    }))),
                }
            }
            ProviderEvent::Asks { tool, input } => {
                self.asked = self.asked.saturating_add(1);
                let number = self.asked;
                Ok(NextStep::RequestModel {
                    tool,
                    input,
                    number,
                })
            }
        }
    }

    /// Requests a corrected answer from the model.
    ///
    /// # Errors
    /// [`AgentRunError::BadOutput`] if the run has no further correction, turn or budget.
    fn repair(
        &mut self,
        answer_problem: AnswerProblem,
        text: &str,
        definition: &AgentDefinition,
    ) -> Result<NextStep, AgentRunError> {
        let AnswerProblem {
            problem,
            may_be_shown,
        } = answer_problem;
        if self.repairs >= Self::MAX_REPAIRS || self.spent.check(definition).is_err() {
            let text = if may_be_shown { text } else { "" };
            return Err(bad_output(problem, text));
        }
        self.repairs += 1;
        let json = match definition.output_schema {
            Some(_) => ", with nothing but the JSON",
            None => "",
        };
        Ok(NextStep::Repair(format!(
            "Your answer does not meet the requirements: {problem}. Answer again{json}."
        )))
    }

    /// Reads the entries in the field `tool_requests` of a model answer, or returns `None` if the answer requests no tools.
    pub(super) fn requests_in(&self, text: &str) -> Option<Vec<ToolRequest>> {
        requests::read(text, self.requesting_answers.saturating_add(1))
    }

    /// Processes a model answer that requests tools in the field `tool_requests`.
    ///
    /// # Errors
    /// [`AgentRunError`] if the run has no turns or budget left.
    pub(super) fn request(
        &mut self,
        requests: Vec<ToolRequest>,
        usage: Usage,
        definition: &AgentDefinition,
    ) -> Result<Vec<Effect>, AgentRunError> {
        self.spent.add(usage, requests.len(), true);
        self.spent.check(definition)?;
        self.requesting_answers = self.requesting_answers.saturating_add(1);
        self.requested = requests.iter().map(ToolRequest::requested).collect();
        let is_direct = requests
            .iter()
            .all(|request| request.is_for_user(definition));
        let calls = requests.into_iter().map(|request| request.call);
        Ok(self.receive_calls(calls.collect(), is_direct))
    }

    /// Removes the results of the tools requested in the field `tool_requests` from a list of tool results, and returns them as
    /// one message to the model. The result is `None` if the last model answer did not request tools in this field.
    pub(super) fn results_of_requests(&mut self, results: &mut Vec<ToolResult>) -> Option<String> {
        let requested = std::mem::take(&mut self.requested);
        (!requested.is_empty()).then(|| requests::message(&requested, results))
    }

    /// Passes tool calls to the run's state machine. If `is_direct`, the results of all calls are for the user.
    fn receive_calls(&mut self, calls: Vec<MachineCall>, is_direct: bool) -> Vec<Effect> {
        self.direct = is_direct.then(|| {
            let calls = calls.iter();
            calls
                .map(|call| (call.id.clone(), call.tool.clone()))
                .collect()
        });
        let mut effects = Vec::new();
        let last = calls.len().saturating_sub(1);
        for (index, call) in calls.into_iter().enumerate() {
            let more = index < last;
            effects.extend(self.step(Signal::ToolCallReceived { call, more }));
        }
        effects
    }

    /// Passes the outcome of a tool call to the run's state machine.
    pub(super) fn finish(&mut self, call_id: CallId, outcome: ToolOutcome) -> Vec<Effect> {
        let deferred = match self.machine.state() {
            State::Suspended { deferred, .. } => Some(&deferred.call_id),
            State::Idle | State::Running | State::Complete { .. } | State::Failed { .. } => None,
        };
        let signal = match outcome {
            ToolOutcome::Answered(result) if deferred == Some(&call_id) => {
                Signal::DeferredResolved { call_id, result }
            }
            outcome @ (ToolOutcome::Answered(_) | ToolOutcome::Deferred(_)) => {
                Signal::ToolCallFinished { call_id, outcome }
            }
        };
        self.step(signal)
    }

    /// Ends the run with the answer of another agent.
    pub(super) fn finish_with_delegated_answer(&mut self, text: String) -> Vec<Effect> {
        self.end(FinalAnswer {
            text,
            delegated: true,
            ..FinalAnswer::default()
        })
    }

    /// Returns the tool results that are the run's answer, each with the name of its tool. The result is `None` unless all calls
    /// of the model answer succeeded and all their results are for the user.
    pub(super) fn results_for_user(
        &mut self,
        results: &[ToolResult],
    ) -> Option<Vec<(String, Json)>> {
        let output = |id: &CallId| {
            results.iter().find_map(|result| match &result.answer {
                Answer::Success(output) if result.call_id == *id => Some(output.clone()),
                Answer::Success(_) | Answer::Error { .. } => None,
            })
        };
        let calls = self.direct.take()?.into_iter();
        calls.map(|(id, tool)| Some((tool, output(&id)?))).collect()
    }

    /// Ends the run with tool results as the answer. `results` is empty if a guardrail replaced their text.
    pub(super) fn finish_with_results(
        &mut self,
        text: String,
        results: Vec<(String, Json)>,
    ) -> Vec<Effect> {
        self.end(FinalAnswer {
            text,
            results,
            returned: true,
            requested: !self.requested.is_empty(),
            ..FinalAnswer::default()
        })
    }

    /// Stores an additional output that the model submitted. The first output of a name counts.
    pub(super) fn store_output(&mut self, name: &str, output: Json) {
        self.handed_in.entry(name.to_owned()).or_insert(output);
    }

    fn end(&mut self, ended: FinalAnswer) -> Vec<Effect> {
        self.ended = Some(ended);
        // The answer is in `ended`.
        let output = Value::Null.into();
        self.step(Signal::AgentCompleted { output })
    }

    fn step(&mut self, signal: Signal) -> Vec<Effect> {
        let input = Input::new(self.machine.run(), signal);
        self.machine.step(input)
    }

    /// Returns the context of the response breadcrumb, or `None` while the run continues.
    ///
    /// # Errors
    /// [`AgentRunError::BadOutput`] if the definition has changed since the agent answered, and
    /// [`AgentRunError::Broken`] if the machine ended with an error or was cancelled.
    pub(super) fn response(&self, output: Option<&Output>) -> Option<Result<Value, AgentRunError>> {
        let missing = match self.machine.exit()? {
            Exit::WithOutput { .. } => Vec::new(),
            Exit::WithoutOutput { missing, .. } => missing,
            Exit::Error { error } => return Some(Err(AgentRunError::Broken { error })),
            Exit::Cancelled => {
                let error = "the run was cancelled".to_owned();
                return Some(Err(AgentRunError::Broken { error }));
            }
        };
        Some(self.fields(output, missing))
    }

    fn fields(
        &self,
        output: Option<&Output>,
        missing: Vec<String>,
    ) -> Result<Value, AgentRunError> {
        let no_answer = FinalAnswer::default();
        let ended = self.ended.as_ref().unwrap_or(&no_answer);
        let status = if missing.is_empty() {
            "success"
        } else {
            "incomplete"
        };
        let mut response = Map::new();
        let mut add = |field: &str, value: Value| response.insert(field.to_owned(), value);
        add("status", status.into());
        add("message", ended.text.clone().into());
        add("usage", json!(self.spent));
        if let (Some(output), false) = (output, ended.returned) {
            let output = output.read(&ended.text);
            let output = output.map_err(|problem| bad_output(problem, &ended.text))?;
            add("output", output.into_value());
        }
        if ended.cut_off {
            add("truncated", true.into());
        }
        if ended.delegated {
            add("delegated", true.into());
        }
        if ended.returned {
            if let ([(tool, output)], true) = (&*ended.results, ended.requested) {
                add("tool_result", json!({"tool": tool, "output": **output}));
            }
            let results = ended.results.iter();
            let results = results.map(|(tool, output)| json!({"tool": tool, "output": **output}));
            add("results", results.collect());
        }
        let handed_in: Map<_, _> = self
            .machine
            .outputs()
            .map(|(name, output)| {
                let output = self.handed_in.get(name).unwrap_or(output);
                (name.to_owned(), (**output).clone())
            })
            .collect();
        if !handed_in.is_empty() {
            add("outputs", handed_in.into());
        }
        if !missing.is_empty() {
            add("missing", missing.into());
        }
        Ok(Value::Object(response))
    }

    /// Calls `work` with the progress, which lacks during the call the requests that are not yet written as breadcrumbs. For
    /// example, `work` serializes the progress for the store. The progress contains these requests again afterwards.
    pub(super) fn without_unwritten_requests<T>(&mut self, work: impl FnOnce(&Self) -> T) -> T {
        let is_written = |wait: &Wait| wait.unwritten.is_none();
        let all = std::mem::take(&mut self.waits);
        let (written, unwritten) = all.into_iter().partition(is_written);
        self.waits = written;
        let result = work(self);
        self.waits.extend::<Vec<_>>(unwritten);
        result
    }

    /// Serializes the progress of the run for the store.
    ///
    /// # Errors
    /// [`AgentRunError::StateTooLarge`] if the result is too large to save.
    pub(super) fn to_json(&self) -> Result<Json, BoxError> {
        serialize_state(self)
    }
}

fn bad_output(problem: String, text: &str) -> AgentRunError {
    const RAW_BYTES: usize = 2048;
    let raw = excerpt(text, RAW_BYTES).into_owned();
    AgentRunError::BadOutput { problem, raw }
}
