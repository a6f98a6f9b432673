use super::id::CallId;
use crate::model::{Json, JsonError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::error::Error;

/// A tool call that an agent requests.
///
/// The driver creates it from a tool call of the model, and sends it in
/// [`Signal::ToolCallReceived`](super::Signal::ToolCallReceived).
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::machine::{MachineCall, ToolArguments};
///
/// let call = MachineCall::new("call-1", "adder", json!({"a": 1}));
/// assert_eq!(call.id.as_str(), "call-1");
/// let broken = MachineCall::new("call-2", "adder", ToolArguments::parse("{\"a\": "));
/// assert!(matches!(broken.arguments, ToolArguments::Unreadable { .. }));
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct MachineCall {
    /// The ID of the tool call, unique within the run.
    pub id: CallId,
    /// The name of the called tool.
    pub tool: String,
    /// The arguments that the tool receives.
    pub arguments: ToolArguments,
}

impl MachineCall {
    /// Creates a tool call of the tool `tool`.
    ///
    /// `id` must have no control character, and must be unique within the run.
    #[must_use]
    pub fn new(
        id: impl Into<CallId>,
        tool: impl Into<String>,
        arguments: impl Into<ToolArguments>,
    ) -> Self {
        Self {
            id: id.into(),
            tool: tool.into(),
            arguments: arguments.into(),
        }
    }
}

/// The arguments of a tool call: JSON, or the model's string if it is not valid JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolArguments {
    /// Arguments that are valid JSON. A clone shares the value.
    Json(Json),
    /// Arguments that cannot be parsed as JSON. The machine answers such a call with an error result and executes nothing.
    Unreadable {
        /// The model's original string of arguments, for transcripts.
        text: String,
        /// The parse error of the arguments, for the model. Example: `the text is not valid JSON: expected value at line 1 column 1`.
        problem: String,
    },
}

impl ToolArguments {
    /// Parses the arguments of a model's tool call. A blank string becomes `{}`, because some providers send one for a tool without
    /// parameters.
    ///
    /// The JSON has at most 1 MiB and 64 levels. The machine accepts at most 128 KiB and 48 levels
    /// by default, see [`MachineLimits`](super::MachineLimits).
    ///
    /// ```
    /// use universal_executor::machine::ToolArguments;
    ///
    /// assert!(matches!(ToolArguments::parse(r#"{"a": 1}"#), ToolArguments::Json(_)));
    /// assert!(matches!(ToolArguments::parse(r#"{"a": "#), ToolArguments::Unreadable { .. }));
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.trim().is_empty() {
            return Self::Json(Value::Object(Map::new()).into());
        }
        match Json::from_text(text) {
            Ok(json) => Self::Json(json),
            Err(error) => Self::Unreadable {
                text: text.to_owned(),
                problem: problem(&error),
            },
        }
    }
}

fn problem(error: &JsonError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl From<Json> for ToolArguments {
    fn from(json: Json) -> Self {
        Self::Json(json)
    }
}

impl From<Value> for ToolArguments {
    fn from(value: Value) -> Self {
        Self::Json(value.into())
    }
}

/// The result of executing a tool call: an answer, or a deferral to a later answer.
///
/// Convert an [`Answer`] or a [`Deferral`] with `into`, and send it in
/// [`Signal::ToolCallFinished`](super::Signal::ToolCallFinished).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// The execution of the tool call gave an answer.
    ///
    /// The call ends with this answer.
    Answered(Answer),
    /// The execution of the tool call gave no answer, and the agent run is suspended until the source in the [`Deferral`]
    /// supplies the answer.
    ///
    /// The machine returns [`Effect::Defer`](super::Effect::Defer) for it.
    Deferred(Deferral),
}

impl From<Answer> for ToolOutcome {
    fn from(answer: Answer) -> Self {
        Self::Answered(answer)
    }
}

impl From<Deferral> for ToolOutcome {
    fn from(deferral: Deferral) -> Self {
        Self::Deferred(deferral)
    }
}

/// The answer to a tool call: a return value, or an error for the model.
///
/// The machine answers some calls itself, with an error that has one of these codes:
///
/// | code | cause |
/// |---|---|
/// | `already_reported` | another call has claimed the [`Slot`](super::Slot) of this tool |
/// | `cancelled` | the call was cancelled, or came after the end of the run |
/// | `conflicting_call` | a different call of the run has the same ID |
/// | `forgotten` | the call was answered earlier, and the machine has discarded the answer to save memory |
/// | `invalid_arguments` | the arguments are [`Unreadable`](ToolArguments::Unreadable) |
/// | `invalid_call_id` | the call ID contains a control character |
/// | `result_too_large` | the tool was executed, but its result is over a limit |
/// | `suspended` | the run is suspended and its policy refuses calls during that time |
/// | `too_large` | the call is over a limit |
/// | `too_many_calls` | the run is at its limit of calls, pending calls, waiting callers or memory |
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The tool's return value.
    Success(Json),
    /// An error of the tool call, returned to the model as an ordinary result so that the model can react.
    Error {
        /// The error code of the failed call, for programs.
        code: String,
        /// The error of the call and its remedy, for the model.
        message: String,
    },
}

impl Answer {
    /// Creates the answer of a tool call that succeeded.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::machine::{Answer, ToolOutcome};
    ///
    /// let outcome: ToolOutcome = Answer::success(json!({"sum": 3})).into();
    /// assert!(matches!(outcome, ToolOutcome::Answered(Answer::Success(_))));
    /// ```
    #[must_use]
    pub fn success(value: impl Into<Json>) -> Self {
        Self::Success(value.into())
    }

    /// Creates the error answer of a tool call, which is returned to the model.
    ///
    /// The message tells the model how to continue, for example with other arguments.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::machine::Answer;
    ///
    /// let answer = Answer::error("not_found", "order 7 does not exist; ask for the number");
    /// assert!(matches!(answer, Answer::Error { .. }));
    /// ```
    #[must_use]
    pub fn error(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error {
            code: code.into(),
            message: message.into(),
        }
    }
}

/// The source of a deferred tool call's answer.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::machine::{
///     Deferral, Effect, Input, Machine, MachineCall, Policy, RunId, Signal, State,
/// };
///
/// let run = RunId::new("run-1");
/// let mut machine = Machine::new(run.clone(), Policy::batch());
/// let call = MachineCall::new("call-1", "ask_person", json!({"question": "Refund?"}));
/// let _ = machine.step(Input::new(&run, Signal::ToolCallReceived { call, more: false }));
///
/// let action = Deferral::Other { kind: "person".to_owned(), payload: json!("Refund?").into() };
/// let outcome = action.clone().into();
/// let finished = Signal::ToolCallFinished { call_id: "call-1".into(), outcome };
/// let effects = machine.step(Input::new(&run, finished));
/// assert_eq!(effects, [Effect::Defer { call_id: "call-1".into(), action }]);
/// assert!(matches!(machine.state(), State::Suspended { .. }));
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deferral {
    /// Another agent answers the tool call: it runs with separate permissions, and its output becomes the answer.
    ///
    /// The driver starts the run of this agent.
    Handoff {
        /// The name of the agent that answers the tool call.
        agent: String,
        /// The prompt for the agent that answers the tool call.
        prompt: String,
    },
    /// A plan as JSON, whose execution outside of the agent run's state machine produces the answer of the deferred tool call.
    PlannerOutput(Json),
    /// Any other source of the deferred tool call's answer, for example a question to a person.
    Other {
        /// The kind of the answer's source, for example `question`. The program that drives the state machine defines the kinds.
        kind: String,
        /// The data from which the source produces the answer, for example the question to a person.
        payload: Json,
    },
}

/// The answer of a tool call, as the response to one of the agent's possibly repeated requests for this call. An agent can
/// request the same call again.
///
/// [`Effect::Deliver`](super::Effect::Deliver) has one for each request.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ToolResult {
    /// The ID of the answered tool call.
    pub call_id: CallId,
    /// The answer of the tool call.
    pub answer: Answer,
}
