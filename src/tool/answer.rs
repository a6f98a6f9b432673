//! How a request is answered, whichever executor serves it.

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

/// How a call is made that has a run of its own.
pub(super) struct Terms {
    /// How long it may take.
    pub(super) time: Duration,
    /// Whether it is made again after an error that passes.
    pub(super) again: bool,
    /// Whether it may be made again once it was begun.
    pub(super) execution: Execution,
    /// Whether whoever wrote the request is trusted to have asked a person.
    pub(super) approval: ApprovalState,
}

/// Calls a tool with `input` of the trigger's context, else with the whole context; gives the fields of the answer.
///
/// # Errors
/// What is no answer yet: the run goes on later.
pub(super) async fn execute(
    entry: &Entry,
    context: &ExecutionContext,
    store: &Arc<dyn BreadcrumbStore>,
    terms: Terms,
) -> Result<Value, BoxError> {
    let trigger = context.trigger();
    let input = trigger.context.get("input").unwrap_or(&trigger.context);
    let started = Instant::now();
    let bound = ToolContext::new(context, store, entry.tool.name());
    let called = entry
        .work(input.clone(), bound, terms.time, terms.approval)
        .await;
    match called {
        Err(error) if goes_on_later(&error, terms.again) => Err(error),
        // The run waits for its turn where it holds up nobody. One that may be executed only once has had its turn.
        Err(error)
            if outcome::is_refusal(&error, BUSY) && terms.execution == Execution::AtLeastOnce =>
        {
            Err(retry_after(terms.time / 2, error))
        }
        called => Ok(fields(outcome::of(called), Some(started.elapsed()))),
    }
}

/// Whether an error is no answer yet.
fn goes_on_later(error: &BoxError, again: bool) -> bool {
    if error.is::<Suspension>() {
        return true;
    }
    match decided(error.as_ref()) {
        Some(Verdict::RateLimited(_)) => true,
        Some(Verdict::Transient(_)) => again,
        Some(Verdict::Permanent) | None => false,
    }
}

/// The fields of an answer that say how the call ended.
pub(super) fn fields(outcome: ToolOutcome, took: Option<Duration>) -> Value {
    let mut fields = match outcome {
        ToolOutcome::Answered(Answer::Success(output)) => {
            let mut fields = json!({"status": "success"});
            // Moved in, since json! would copy it.
            if let Value::Object(fields) = &mut fields {
                fields.insert("output".to_owned(), output.into_value());
            }
            fields
        }
        ToolOutcome::Answered(Answer::Error { code, message }) => {
            json!({"status": "error", "error": message, "code": code})
        }
        ToolOutcome::Deferred(_) => {
            let message = "this tool leaves its result to somebody else, which only an agent that calls it can wait for";
            json!({"status": "error", "error": message, "code": "cannot_defer"})
        }
    };
    if let (Value::Object(fields), Some(took)) = (&mut fields, took) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        fields.insert("execution_time_ms".to_owned(), millis.into());
    }
    fields
}

/// What is answered when a run gave up, which may be one that is not tried again.
pub(super) fn failure(tool: &str, trigger: &Breadcrumb, failure: &Failure, once: bool) -> Response {
    // Without an error of its own the attempts of a run were used up by a worker that died.
    let died = failure.class == FailureClass::AttemptsUsedUp && failure.error.is_none();
    let unknown = failure.class == FailureClass::OutcomeUnknown || (once && died);
    let (code, message) = if unknown {
        let message = "the call was interrupted and is not made again, so its outcome is unknown";
        ("outcome_unknown", message)
    } else {
        (failure.class.as_str(), &*failure.message)
    };
    let answer = Answer::error(code, message);
    response(tool, trigger, fields(answer.into(), None))
}

/// The breadcrumb that answers a request.
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
