//! Requests to agents, and the answers to them.

use super::answer_value;
use crate::machine::Answer;
use crate::model::{Breadcrumb, Json, NewBreadcrumb, request_tag};
use serde_json::{Value, json};

/// Schema name of a request to another agent.
pub(crate) const REQUEST: &str = "agent.request.v1";

/// Schema name of an agent's answer to a request.
pub(crate) const RESPONSE: &str = "agent.response.v1";

/// Returns the breadcrumb of a request to an agent.
pub(crate) fn request(agent: &str, prompt: &str, request_id: &str, by: &str) -> NewBreadcrumb {
    let context = json!({
        "agent": agent, "prompt": prompt, "requestId": request_id, "requestedBy": by,
    });
    NewBreadcrumb::new(REQUEST)
        .title(format!("{by} asks {agent}"))
        .tags(["agent:request".to_owned(), request_tag(request_id)])
        .context(context)
}

/// Returns the answer of an agent to a request, or `None` if a breadcrumb is not the agent's answer to this request.
///
/// Any writer can name any creator, so the author must be that agent too if the store records authors. An agent copies
/// the tags of its trigger to its answer, so the answer must also have the correlation ID of the requesting run:
/// another request to the agent can have the same tags.
///
/// `shown` is the part of the context that a model may see: the message and the output come from there.
pub(in crate::request) fn answer_of(
    response: &Breadcrumb,
    shown: &Json,
    request_id: &str,
    agent: &str,
    correlation_id: Option<&str>,
) -> Option<Answer> {
    let context = &response.context;
    let text = |field: &str| context.get(field).and_then(Value::as_str);
    let creator = |field: &str| context.get("creator")?.get(field)?.as_str();
    let is_its = creator("agent_id") == Some(agent)
        && response.author().is_none_or(|author| author == agent)
        && creator("correlation_id").is_none_or(|found| correlation_id == Some(found));
    let answers = response.tags.contains(&request_tag(request_id));
    if response.schema_name.as_deref() != Some(RESPONSE) || !is_its || !answers {
        return None;
    }
    if text("status") == Some("error") {
        let message = shown.text("message").unwrap_or_default();
        let message = format!("agent {agent} has no answer: {message}");
        return Some(Answer::error("agent_failed", message));
    }
    Some(Answer::success(answer_value(shown)))
}
