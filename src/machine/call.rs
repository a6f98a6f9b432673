use super::id::CallId;
use crate::model::{Json, JsonError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::error::Error;

/// A tool call as an agent asks for it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct MachineCall {
    /// Its id, unique within the run.
    pub id: CallId,
    /// The name of the tool.
    pub tool: String,
    /// What the tool is given.
    pub arguments: ToolArguments,
}

impl MachineCall {
    /// A call of a tool.
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

/// The arguments of a call: JSON, or the text that a model wrote instead.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolArguments {
    /// What was read, shared with whoever read it.
    Json(Json),
    /// What could not be read. The machine answers such a call with an error result and executes nothing.
    Unreadable {
        /// The text as the model wrote it, for transcripts.
        text: String,
        /// What is wrong with it, for the model: `not valid JSON: expected value at line 1 column 1`.
        problem: String,
    },
}

impl ToolArguments {
    /// Reads the text of a model. Blank text is `{}`: that is how some providers call a tool without parameters.
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

/// How the execution of a call ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It has its answer.
    Answered(Answer),
    /// Its answer comes later, from elsewhere, and the run waits for it.
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

/// What a caller hears.
///
/// The machine answers some calls itself, always with an error of one of these codes:
///
/// | code | what happened |
/// |---|---|
/// | `already_reported` | another call has claimed the [`Slot`](super::Slot) of this tool |
/// | `cancelled` | the call was cancelled, or came after the end of the run |
/// | `conflicting_call` | another call of the run has the same id |
/// | `forgotten` | the call was answered long ago and its answer is no longer kept |
/// | `invalid_arguments` | the arguments are [`Unreadable`](ToolArguments::Unreadable) |
/// | `result_too_large` | the tool was executed, but its result is over a limit |
/// | `suspended` | the run is suspended and its policy refuses calls meanwhile |
/// | `too_large` | the call is over a limit |
/// | `too_many_calls` | the run has made, or has under way, as many calls as it may |
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What the tool returned.
    Success(Json),
    /// What went wrong: an ordinary result that the model sees and can react to.
    Error {
        /// What kind of error, for programs.
        code: String,
        /// What happened and what to do about it, for the model.
        message: String,
    },
}

impl Answer {
    /// A result.
    #[must_use]
    pub fn success(value: impl Into<Json>) -> Self {
        Self::Success(value.into())
    }

    /// An error that the model sees.
    #[must_use]
    pub fn error(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error {
            code: code.into(),
            message: message.into(),
        }
    }
}

/// Where the answer of a deferred call comes from.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deferral {
    /// Another agent works on it with permissions of its own, and its output is the answer.
    Handoff {
        /// The name of that agent.
        agent: String,
        /// What it is asked.
        prompt: String,
    },
    /// A plan was made, and what comes of it is the answer.
    PlannerOutput(Json),
    /// Anything else, a question to a human for example.
    Other {
        /// What it is, by a name that the driver knows.
        kind: String,
        /// What belongs to it.
        payload: Json,
    },
}

/// The answer to one caller.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ToolResult {
    /// The call that is answered.
    pub call_id: CallId,
    /// The answer.
    pub answer: Answer,
}
