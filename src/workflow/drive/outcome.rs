//! Converts the answers and errors of steps to step outcomes, which state whether a step can be retried.

use super::Assembly;
use crate::agent::guardrail::Denied;
use crate::agent::{AgentRunError, ModelError};
use crate::classes::verdict;
use crate::error::{BoxError, Retry, Verdict, excerpt, without_node};
use crate::executor::ContextError;
use crate::machine::Answer;
use crate::store::StoreError;
use crate::tool::{RetrySafety, ToolSettings};
use crate::workflow::{MayRetry, StepFailure, StepOutcome, StepTask};
use serde_json::Value;
use std::time::Duration;

/// Returns the transient failure of a model or agent step whose answer does not match the requested output. The failure contains
/// an excerpt of the answer.
pub(super) fn bad_output(problem: &str, raw: &str) -> StepOutcome {
    const RAW: usize = 2_048;
    let raw = excerpt(raw, RAW);
    let message =
        format!("the answer does not match the requested output: {problem}; answer: {raw}");
    StepOutcome::transient("bad_output", message)
}

/// Returns the outcome of a tool step from the answer of its tool.
pub(super) fn of_answer(answer: Answer, settings: &ToolSettings) -> StepOutcome {
    match answer {
        Answer::Success(output) => StepOutcome::Succeeded(output),
        answer @ Answer::Error { .. } => of_error(answer, Some(settings.retry)),
    }
}

/// Returns the outcome of a tool step whose call failed. A tool that reports a failure can be called again, unless it runs at most once. If
/// it is unknown whether the tool did its work, only an idempotent tool can be called again.
pub(super) fn of_error(answer: Answer, safety: Option<RetrySafety>) -> StepOutcome {
    let Answer::Error { code, message } = answer else {
        return StepOutcome::success(Value::Null);
    };
    let may = match (&*code, safety) {
        (_, None | Some(RetrySafety::AtMostOnce)) => false,
        ("failed" | "busy" | "rate_limited", Some(_)) => true,
        ("timeout" | "panic", Some(safety)) => safety.allows_repeat(),
        (_, Some(_)) => false,
    };
    let retry = match may {
        true => MayRetry::After(Duration::ZERO),
        false => MayRetry::Never,
    };
    let failure = StepFailure::new(code, message);
    StepOutcome::Failed { failure, retry }
}

/// Returns the code of a step's error for log lines, which omit the message because it can quote a conversation.
pub(super) fn code_of(error: &BoxError) -> &'static str {
    let model = || find::<ModelError>(error).map(ModelError::code);
    let store = || find::<StoreError>(error).map(StoreError::code);
    let denied = || find::<Denied>(error).map(|_| "denied");
    model().or_else(store).or_else(denied).unwrap_or("error")
}

/// Returns the outcome of a step that ended with an error. The messages of errors that are not of this crate are omitted, because
/// variables and results have many readers.
///
/// # Errors
/// Returns the error itself if it is an error of the store or the run, and not of the step.
pub(super) fn failed_with(error: BoxError) -> Result<StepOutcome, BoxError> {
    let retried = |code: &str, message: String, retry: Retry| match retry {
        Retry::Never => StepOutcome::failure(code, message),
        Retry::After(after) => StepOutcome::Failed {
            failure: StepFailure::new(code, message),
            retry: MayRetry::After(after),
        },
    };
    if let Some(failed) = find::<ModelError>(&error) {
        return Ok(retried("model", failed.to_string(), failed.retry()));
    }
    if let Some(AgentRunError::BadOutput { problem, raw }) = find(&error) {
        return Ok(bad_output(problem, raw));
    }
    if let Some(failed @ AgentRunError::StateTooLarge { .. }) = find(&error) {
        let message = format!(
            "{failed}; return less from its tools, or shorten the conversation with policies.compaction"
        );
        return Ok(StepOutcome::failure("too_large", message));
    }
    if let Some(failed) = find::<AgentRunError>(&error) {
        return Ok(retried("agent", failed.to_string(), failed.retry()));
    }
    if let Some(denied) = find::<Denied>(&error) {
        return Ok(StepOutcome::failure("denied", denied.to_string()));
    }
    match find::<StoreError>(&error).map(StoreError::retry) {
        Some(Retry::Never) => return Ok(StepOutcome::failure("rejected", error.to_string())),
        Some(Retry::After(_)) => return Err(error),
        None => {}
    }
    match find::<ContextError>(&error) {
        Some(withheld @ ContextError::Withheld { .. }) => {
            return Ok(StepOutcome::failure("withheld", withheld.to_string()));
        }
        Some(_) => return Err(error),
        None => {}
    }
    let may = matches!(
        verdict(error.as_ref()),
        Verdict::Transient(_) | Verdict::RateLimited(_)
    );
    let message = "the agent failed; the message of its provider is not part of results";
    Ok(match may {
        true => StepOutcome::transient("agent", message),
        false => StepOutcome::failure("agent", message),
    })
}

/// Returns the outcome of a step for a permanent error that occurs after the step's agent has answered or made requests. After a
/// transient error, the step does not fail: the agent continues from its saved state in the next attempt.
///
/// # Errors
/// Returns a transient error itself, and the errors of [`failed_with`].
pub(super) fn failed_after(error: BoxError) -> Result<StepOutcome, BoxError> {
    match verdict(error.as_ref()) {
        Verdict::Permanent => failed_with(error),
        Verdict::Transient(_) | Verdict::RateLimited(_) => Err(error),
    }
}

/// Returns the outcome of a step if the store refuses a breadcrumb of its agent.
///
/// # Errors
/// Returns the error itself if it is transient or not from the store, for example if the run cannot write any more.
pub(super) fn refused(error: BoxError) -> Result<StepOutcome, BoxError> {
    match find::<StoreError>(&error) {
        Some(_) => failed_after(error),
        None => Err(error),
    }
}

/// Returns the first error of the type `E` in an error chain, which is the error itself and its sources.
fn find<E: std::error::Error + 'static>(error: &BoxError) -> Option<&E> {
    let mut link: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    for _ in 0..16 {
        let current = without_node(link?);
        if let Some(found) = current.downcast_ref() {
            return Some(found);
        }
        link = current.source();
    }
    None
}

/// Returns the outcome of a step that took longer than its timeout. A running step and a step that waits for a tool can time out.
pub(super) fn timed_out(task: &StepTask, assembly: &Assembly) -> StepOutcome {
    let StepTask::Tool { tool, .. } = task else {
        return StepOutcome::TimedOut;
    };
    let safety = assembly.safety(tool);
    match safety.is_some_and(RetrySafety::allows_repeat) {
        true => StepOutcome::TimedOut,
        false => StepOutcome::failure(
            "timed_out",
            "the step took longer than its timeout; its tool may have done its work, so the call is not retried",
        ),
    }
}
