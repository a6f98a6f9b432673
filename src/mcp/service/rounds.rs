//! Calls with several rounds, since protocol version 2026-07-28: a server cannot send requests to clients. It ends a call with a request for
//! input, and the client repeats the call with the input and with the state of the call, which is the ID of its run.

use super::people::{self, Asked};
use super::{McpOperation, Shared};
use crate::client::{QuestionView, RequestHandle};
use crate::error::{Chain, excerpt};
use crate::store::StoreError;
use rmcp::model::{
    ElicitRequest, ElicitResult, ErrorData, InputRequest, InputRequiredResult, InputResponses,
};
use serde_json::Value;

/// Returns the result that asks the client the questions of a run.
pub(super) fn input_required(
    handle: &RequestHandle,
    questions: &[QuestionView],
) -> InputRequiredResult {
    let requests = questions.iter().map(|question| {
        let request = ElicitRequest::new(people::elicitation(question));
        (question.id.clone(), InputRequest::Elicitation(request))
    });
    InputRequiredResult::new(Some(requests.collect()), Some(handle.id()))
}

/// Returns the run of the earlier rounds of a call.
///
/// The state comes from the client and is not trusted: it must name a run of the operation's executor whose request is equal to the
/// request of this call.
///
/// # Errors
/// A protocol error if the state does not belong to the call, or if the store fails.
pub(super) async fn resume(
    shared: &Shared,
    operation: &McpOperation,
    arguments: Value,
    state: &str,
) -> Result<RequestHandle, ErrorData> {
    let refused = || {
        let message = "the request state does not belong to this call; repeat the call with equal arguments, or without the state";
        ErrorData::invalid_params(message, None)
    };
    let handle = shared.client.attach(state).map_err(|_| refused())?;
    let run = handle.run();
    if *run.executor != *operation.executor() {
        return Err(refused());
    }
    let trigger = match shared.client.store().get(run.trigger_id).await {
        Ok(trigger) => trigger,
        Err(StoreError::NotFound { .. }) => return Err(refused()),
        Err(error) => return Err(unavailable(&error)),
    };
    let request = operation.request(arguments);
    let is_equal = trigger.version == run.trigger_version
        && trigger.schema_name == request.schema_name
        && trigger.context == request.context;
    is_equal.then_some(handle).ok_or_else(refused)
}

/// Writes the input of the client as answers to the open questions of a run. Returns the questions with an accepted answer. The server sends
/// the other questions again.
///
/// # Errors
/// A protocol error if an answer is malformed, or if the store fails.
pub(super) async fn answer(
    shared: &Shared,
    handle: &RequestHandle,
    answers: InputResponses,
) -> Result<Asked, ErrorData> {
    let mut asked = Asked::default();
    let Some(person) = shared.person.as_ref().filter(|_| !answers.is_empty()) else {
        return Ok(asked);
    };
    let open = shared.client.questions().open_for(person).await;
    let mut open = open.map_err(|error| unavailable(&error))?;
    open.retain(|question| question.run() == handle.run());
    for question in &open {
        let Some(answer) = answers.get(&question.id) else {
            continue;
        };
        let answer: ElicitResult = serde_json::from_value(answer.clone()).map_err(|error| {
            let problem = error.to_string();
            let problem = excerpt(&problem, 300);
            let message = format!(
                "the answer to question {} is malformed: {problem}",
                question.id
            );
            ErrorData::invalid_params(message, None)
        })?;
        if people::write(shared, question, person, answer).await {
            asked.insert(question);
        }
    }
    Ok(asked)
}

fn unavailable(error: &(dyn std::error::Error + 'static)) -> ErrorData {
    tracing::warn!(error = %Chain(error), "cannot continue the call of an MCP client");
    ErrorData::internal_error(
        "the store is unavailable; retry the call with the same state",
        None,
    )
}
