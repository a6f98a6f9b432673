//! What other agents are asked, and what they answer, as breadcrumbs.

use super::AgentExecutor;
use crate::machine::Answer;
use crate::model::{Breadcrumb, NewBreadcrumb};
use serde_json::{Value, json};

/// A request to another agent.
pub(super) const REQUEST: &str = "agent.request.v1";

/// The breadcrumb that asks an agent.
pub(super) fn request(agent: &str, prompt: &str, request_id: &str, by: &str) -> NewBreadcrumb {
    let context = json!({
        "agent": agent, "prompt": prompt, "requestId": request_id, "requestedBy": by,
    });
    NewBreadcrumb::new(REQUEST)
        .title(format!("{by} asks {agent}"))
        .tags(["agent:request".to_owned(), format!("request:{request_id}")])
        .context(context)
}

/// What an agent answered to a request, if this is its answer to that one.
pub(super) fn answer_of(response: &Breadcrumb, request_id: &str, agent: &str) -> Option<Answer> {
    let context = &response.context;
    let text = |field: &str| context.get(field).and_then(Value::as_str);
    let creator = context
        .get("creator")
        .and_then(|creator| creator.get("agent_id"));
    let is_its = creator.and_then(Value::as_str) == Some(agent);
    let answers = response
        .tags
        .iter()
        .any(|tag| tag.strip_prefix("request:") == Some(request_id));
    if response.schema_name.as_deref() != Some(AgentExecutor::RESPONSE) || !is_its || !answers {
        return None;
    }
    let message = text("message").unwrap_or_default();
    if text("status") == Some("error") {
        let message = format!("agent {agent} has no answer: {message}");
        return Some(Answer::error("agent_failed", message));
    }
    Some(match context.get("output") {
        Some(output) => Answer::success(output.clone()),
        None => Answer::success(Value::from(message)),
    })
}
