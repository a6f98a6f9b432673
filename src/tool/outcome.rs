use super::ToolSettings;
use super::entry::OUTPUT_DEPTH;
use crate::error::{BoxError, excerpt};
use crate::executor::{Suspension, Verdict, own_verdict};
use crate::model::{dismantle, size_within};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// A call of a tool from within a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolCall {
    /// What tells it from other calls of the same run; chosen by whoever calls.
    pub id: String,
    /// The tool, to the letter.
    pub tool: String,
    /// What it is given.
    pub input: Value,
    /// Who calls, for the tool to know.
    pub requested_by: Option<String>,
}

impl ToolCall {
    /// A call of a tool.
    #[must_use]
    pub fn new(id: impl Into<String>, tool: impl Into<String>, input: impl Into<Value>) -> Self {
        Self {
            id: id.into(),
            tool: tool.into(),
            input: input.into(),
            requested_by: None,
        }
    }

    /// Sets who calls.
    #[must_use]
    pub fn requested_by(mut self, name: impl Into<String>) -> Self {
        self.requested_by = Some(name.into());
        self
    }
}

/// How a call ended. An error is data, for a model to act on, and not the end of whoever called.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ToolOutcome {
    /// The tool's output.
    Success {
        /// It.
        output: Value,
    },
    /// There is no output.
    Error {
        /// Why, in a word: `failed` (the tool says so), `invalid_input`, `invalid_output`, `output_too_large`,
        /// `unknown_tool`, `timeout`, `panic`, `busy`, `rate_limited`, `outcome_unknown`, `conflicting_call`,
        /// `too_many_calls`, `cannot_defer` or `cannot_suspend`.
        code: Cow<'static, str>,
        /// A sentence that a model can act on.
        #[serde(rename = "error")]
        message: String,
    },
    /// The output comes later, from somebody else.
    Deferred(ToolAction),
}

/// What has to be done before a call has its result.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ToolAction {
    /// What kind of thing: `question`, `handoff`, or a word of yours.
    pub kind: String,
    /// What it is about.
    pub payload: Value,
}

/// The error by which a tool leaves its result to somebody else: a question to a person, a handoff to another agent.
///
/// Only an agent's run can take it up; a request by a breadcrumb is answered with an error then.
///
/// ```
/// use serde_json::json;
/// use universal_executor::tool::{deferred, json_tool};
///
/// let ask = json_tool("ask", "Asks a person.", json!({"type": "object"}), |input, _| async move {
///     Err(deferred("question", json!({"text": input["text"]})))
/// });
/// # let _ = ask;
/// ```
#[must_use]
pub fn deferred(kind: impl Into<String>, payload: impl Into<Value>) -> BoxError {
    Box::new(Deferral(ToolAction {
        kind: kind.into(),
        payload: payload.into(),
    }))
}

/// See [`deferred`].
#[derive(Debug)]
pub(super) struct Deferral(ToolAction);

impl fmt::Display for Deferral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the result comes later")
    }
}

impl std::error::Error for Deferral {}

/// Why a call has no output that this crate, not the tool, says.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for ToolOutcome {
    fn from(refusal: Refusal) -> Self {
        Self::Error {
            code: refusal.code.into(),
            message: refusal.message,
        }
    }
}

impl ToolOutcome {
    /// The longest message of an error, in bytes.
    const MESSAGE_BYTES: usize = 4 << 10;

    pub(super) fn error(code: &'static str, message: impl Into<String>) -> Self {
        Refusal::new(code, message).into()
    }

    /// What a call came to. Of one that has a run of its own, errors that make the run go on later are no outcome.
    pub(super) fn of(called: Result<Value, BoxError>) -> Self {
        let error = match called {
            Ok(output) => return Self::Success { output },
            Err(error) => error,
        };
        let error = match error.downcast::<Deferral>() {
            Ok(deferral) => return Self::of_action(deferral.0),
            Err(error) => error,
        };
        let error = match error.downcast::<Refusal>() {
            Ok(refusal) => return (*refusal).into(),
            Err(error) => error,
        };
        if error.is::<Suspension>() {
            let message =
                "this tool wants to suspend its run, which it can only where it has one of its own";
            return Self::error("cannot_suspend", message);
        }
        let message = error.to_string();
        let message = excerpt(&message, Self::MESSAGE_BYTES);
        match own_verdict(error.as_ref()) {
            Some(Verdict::RateLimited(delay)) => Self::error(
                "rate_limited",
                format!("{message}; call it again in {delay:?} at the earliest"),
            ),
            Some(Verdict::Transient(_) | Verdict::Permanent) | None => {
                Self::error("failed", message)
            }
        }
    }

    /// What somebody else has to do, if it is small enough to be kept.
    fn of_action(action: ToolAction) -> Self {
        let size = size_within(&action.payload, OUTPUT_DEPTH).unwrap_or(usize::MAX);
        if size.saturating_add(action.kind.len()) <= ToolSettings::standard().max_output_bytes {
            return Self::Deferred(action);
        }
        dismantle(action.payload);
        Self::error(
            "output_too_large",
            "what the tool leaves to somebody else is too large",
        )
    }
}
