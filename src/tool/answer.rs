//! Execution of tool requests, and the responses to them: code shared by the executor of one tool and the dispatcher of a registry.

use super::ToolContext;
use super::entry::{ApprovalState, BUSY, Entry};
use super::outcome;
use super::wire::{RESPONSE, request_id, requested_by, tagged, workspace};
use crate::classes::decided;
use crate::clock;
use crate::error::{BoxError, Verdict, retry_after};
use crate::executor::{Execution, ExecutionContext, Failure, Response, Suspension};
use crate::machine::{Answer, ToolOutcome};
use crate::model::{Breadcrumb, NewBreadcrumb, Timestamp};
use crate::store::{BreadcrumbStore, FailureClass};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Settings of a tool call that has its own run: timeout, retries, execution guarantee and approval. These settings do not
/// apply to a tool call within the run of an agent.
pub(super) struct CallSettings {
    /// Timeout of the tool call.
    pub(super) timeout: Duration,
    /// If `true`, the tool call is retried after a transient error.
    pub(super) may_retry: bool,
    /// Guarantee on the number of executions of the tool call.
    pub(super) execution: Execution,
    /// State of the approval of the tool call by a person: given or missing. The state is `Given` if authors of requests are
    /// trusted to have asked a person for approval.
    pub(super) approval: ApprovalState,
}

/// Calls a tool with the field `input` of the trigger's context, or with the whole context if the field is missing. Returns the fields
/// of the response.
///
/// # Errors
/// Errors after which the run is retried or suspended, so there is no answer yet.
pub(super) async fn execute(
    entry: &Entry,
    context: &ExecutionContext,
    store: &Arc<dyn BreadcrumbStore>,
    settings: CallSettings,
) -> Result<Value, BoxError> {
    let trigger = context.trigger();
    let input = trigger.context.get("input").unwrap_or(&trigger.context);
    let started = Instant::now();
    let bound = ToolContext::new(context, store, entry.tool.name());
    let called = entry
        .work(input.clone(), bound, settings.timeout, settings.approval)
        .await;
    match called {
        Err(error) if is_retried_or_suspended(&error, settings.may_retry) => Err(error),
        // The run waits in the ledger, where it occupies no worker. An at-most-once run cannot be executed again, so its
        // answer is the error.
        Err(error)
            if outcome::is_refusal(&error, BUSY)
                && settings.execution == Execution::AtLeastOnce =>
        {
            Err(retry_after(settings.timeout / 2, error))
        }
        called => Ok(fields(outcome::of(called), Some(started.elapsed()))),
    }
}

/// Returns `true` if an error leads to a retry or a suspension of the tool call's run. The error is then not the answer to the tool
/// request.
fn is_retried_or_suspended(error: &BoxError, may_retry: bool) -> bool {
    if error.is::<Suspension>() {
        return true;
    }
    match decided(error.as_ref()) {
        Some(Verdict::RateLimited(_)) => true,
        Some(Verdict::Transient(_)) => may_retry,
        Some(Verdict::Permanent) | None => false,
    }
}

/// Returns the fields of a tool response with the outcome and the duration of the call.
pub(super) fn fields(outcome: ToolOutcome, duration: Option<Duration>) -> Value {
    let mut fields = match outcome {
        ToolOutcome::Answered(Answer::Success(output)) => {
            let mut fields = json!({"status": "success"});
            // Inserted separately, because `json!` would copy the value.
            if let Value::Object(fields) = &mut fields {
                fields.insert("output".to_owned(), output.into_value());
            }
            fields
        }
        ToolOutcome::Answered(Answer::Error { code, message }) => {
            json!({"status": "error", "error": message, "code": code})
        }
        ToolOutcome::Deferred(_) => {
            let message = "this tool defers its result, and only an agent that calls the tool can wait for a deferred result";
            json!({"status": "error", "error": message, "code": "cannot_defer"})
        }
    };
    if let (Value::Object(fields), Some(duration)) = (&mut fields, duration) {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        fields.insert("execution_time_ms".to_owned(), millis.into());
    }
    fields
}

/// Returns the response to a tool request whose run failed. `is_once` is `true` for a tool that is not called again
/// after a crash.
pub(super) fn failure(
    tool: &str,
    trigger: &Breadcrumb,
    failure: &Failure,
    is_once: bool,
) -> Response {
    // If no error is known, a worker that died used up the attempts.
    let worker_died = failure.class == FailureClass::AttemptsUsedUp && failure.error.is_none();
    let unknown = failure.class == FailureClass::OutcomeUnknown || (is_once && worker_died);
    let (code, message) = if unknown {
        let message = "the call was interrupted and is not made again, so its outcome is unknown";
        ("outcome_unknown", message)
    } else {
        (failure.class.as_str(), &*failure.message)
    };
    let answer = Answer::error(code, message);
    response(tool, trigger, fields(answer.into(), None))
}

/// Creates the response to a tool request. The fields of the call's `outcome` become fields of the response.
pub(super) fn response(tool: &str, trigger: &Breadcrumb, outcome: Value) -> Response {
    let request_id = request_id(trigger);
    let now = Timestamp::from_micros(clock::wall_micros());
    let mut context = json!({"request_id": request_id, "tool": tool, "timestamp": now});
    if let (Value::Object(fields), Value::Object(outcome)) = (&mut context, outcome) {
        fields.extend(outcome);
        if let Some(name) = requested_by(trigger) {
            fields.insert("requestedBy".to_owned(), name.into());
        }
    }
    let response = NewBreadcrumb::new(RESPONSE)
        .title(format!("Response: {tool}"))
        .tags([workspace(trigger), "tool:response"])
        .context(context);
    Response::create(tagged(response, &request_id))
}
