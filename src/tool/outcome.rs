//! Conversion of the return value of a tool function to the outcome of the call.

use super::ToolSettings;
use super::deferral::Deferred;
use crate::classes::decided;
use crate::error::{BoxError, Verdict, excerpt};
use crate::executor::Suspension;
use crate::machine::{Answer, Deferral, ToolOutcome};
use crate::model::{MAX_DEPTH, size_within};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// Maximum nesting depth of the JSON output of a tool. The answer and the saved state of a run, which contain the output, nest
/// deeper.
pub(super) const OUTPUT_DEPTH: usize = MAX_DEPTH - 8;

/// Maximum length in bytes of the error message that a tool returns.
const MESSAGE_BYTES: usize = 4 << 10;

/// Creates the outcome of a tool call that failed with an error of this crate, and not of the tool's function.
pub(super) fn error(code: impl Into<String>, message: impl Into<String>) -> ToolOutcome {
    Answer::error(code, message).into()
}

/// Converts the return value of a tool's function to the outcome of the call. For a call with its own run, the caller first handles
/// errors after which the run is retried or suspended.
pub(super) fn of(called: Result<Value, BoxError>) -> ToolOutcome {
    let failed = match called {
        Ok(output) => return Answer::success(output).into(),
        Err(failed) => failed,
    };
    let failed = match failed.downcast::<Deferred>() {
        Ok(deferred) => return of_deferral(deferred.0),
        Err(failed) => failed,
    };
    let failed = match failed.downcast::<Refusal>() {
        Ok(refusal) => return (*refusal).into(),
        Err(failed) => failed,
    };
    if failed.is::<Suspension>() {
        let message = "the tool suspends its run, but a tool of an agent or a flow has no run of its own; serve the tool with ToolExecutor";
        return error("cannot_suspend", message);
    }
    let message = failed.to_string();
    let message = excerpt(&message, MESSAGE_BYTES);
    match decided(failed.as_ref()) {
        Some(Verdict::RateLimited(delay)) => error(
            "rate_limited",
            format!("{message}; call it again in {delay:?} at the earliest"),
        ),
        Some(Verdict::Transient(_) | Verdict::Permanent) | None => error("failed", message),
    }
}

/// Returns the error answer for a tool call during which the worker crashed, and which the tool's [retry
/// setting](super::RetrySafety::allows_repeat) does not allow to repeat.
#[cfg(feature = "agents")]
pub(crate) fn unknown() -> Answer {
    let message = "the call was interrupted and is not made again, so its outcome is unknown";
    Answer::error("outcome_unknown", message)
}

/// Returns the error answer that replaces a tool's answer if the `llm_hints` of the tool response exclude its whole context or cannot be
/// used.
pub(crate) fn withheld() -> Answer {
    Answer::error(
        "withheld",
        "the answer is withheld, because its llm_hints exclude all of it or cannot be used",
    )
}

/// Converts a tool's deferral to the outcome of the call, or returns an error outcome if the deferral is too large to be saved.
fn of_deferral(deferral: Deferral) -> ToolOutcome {
    let json = |json| size_within(json, OUTPUT_DEPTH).unwrap_or(usize::MAX);
    let size = match &deferral {
        Deferral::Handoff { agent, prompt } => agent.len().saturating_add(prompt.len()),
        Deferral::PlannerOutput(plan) => json(plan),
        Deferral::Other { kind, payload } => json(payload).saturating_add(kind.len()),
    };
    if size <= ToolSettings::standard().max_output_bytes {
        return deferral.into();
    }
    error(
        "output_too_large",
        "the deferred request of the tool is too large",
    )
}

/// Reason why this crate, and not the tool, refuses a tool call or its output.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: Cow<'static, str>,
    message: String,
}

impl Refusal {
    pub(crate) fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }
}

/// Returns `true` if an error of a tool call is a refusal with this code.
pub(super) fn is_refusal(error: &BoxError, code: &str) -> bool {
    let refusal = error.downcast_ref::<Refusal>();
    refusal.is_some_and(|refusal| refusal.code == code)
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::error(refusal.code, refusal.message)
    }
}

impl From<Refusal> for ToolOutcome {
    fn from(refusal: Refusal) -> Self {
        error(refusal.code, refusal.message)
    }
}
