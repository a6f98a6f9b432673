//! What a call came to, from what the function of a tool returned.

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

/// Maximum depth of an output. The answer and the saved state of a run, which contain the output, nest deeper.
pub(super) const OUTPUT_DEPTH: usize = MAX_DEPTH - 8;

/// The longest message of an error, in bytes.
const MESSAGE_BYTES: usize = 4 << 10;

/// An outcome that is an error of this crate's own.
pub(super) fn error(code: impl Into<String>, message: impl Into<String>) -> ToolOutcome {
    Answer::error(code, message).into()
}

/// What a call came to. Of one that has a run of its own, errors that make the run go on later are no outcome.
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
        let message =
            "this tool wants to suspend its run, which it can only where it has one of its own";
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

/// What became of a call that a worker which is gone may have made, of a tool that is [not called
/// again](super::RetrySafety::may_be_made_again).
#[cfg(feature = "agents")]
pub(crate) fn unknown() -> Answer {
    let message = "the call was interrupted and is not made again, so its outcome is unknown";
    Answer::error("outcome_unknown", message)
}

/// Returns the answer to use if hints withhold the contents of a response.
pub(crate) fn withheld() -> Answer {
    Answer::error(
        "withheld",
        "the answer is withheld, because its llm_hints exclude all of it or cannot be used",
    )
}

/// What somebody else has to do, if it is small enough to be kept.
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
        "what the tool leaves to somebody else is too large",
    )
}

/// Why a call has no output that this crate, not the tool, says.
#[derive(Debug)]
pub(super) struct Refusal {
    code: Cow<'static, str>,
    message: String,
}

impl Refusal {
    pub(super) fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }
}

/// Whether an error is a refusal of a code.
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
