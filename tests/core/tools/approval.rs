//! Tools that need a person's approval, in every way of calling them.

use crate::support::{event_of, put};
use crate::tools::{call, count, counting, echo, error_of, only, registry, requested};
use serde_json::json;
use std::sync::Arc;
use universal_executor::model::Condition;
use universal_executor::tool::{Approval, ToolDispatcher, ToolExecutor};
use universal_executor::{MemoryStore, UniversalExecutor};

#[tokio::test]
async fn a_call_without_an_approval_never_reaches_the_tool() {
    let (tool, calls) = counting("pay", |_| async { Ok(json!("paid")) });

    let refused = call(
        &registry([tool.needs_approval(Approval::always())]),
        "pay",
        json!({}),
    )
    .await;

    let (code, message) = error_of(refused);
    assert_eq!(code, "approval_required");
    assert_eq!(
        message,
        "a person has to approve this call and nobody has; the tool was not called, so ask one first"
    );
    assert_eq!(count(&calls), 0);
}

#[tokio::test]
async fn a_request_author_counts_as_an_approver_only_if_requests_are_trusted() {
    for (one, trusting) in [(true, false), (true, true), (false, false), (false, true)] {
        let store = MemoryStore::default();
        let (tool, calls) = counting("pay", |_| async { Ok(json!("paid")) });
        let (tool, shared) = (
            tool.needs_approval(Approval::always()),
            Arc::new(store.clone()),
        );
        let executor: Box<dyn UniversalExecutor> = match (one, trusting) {
            (true, false) => Box::new(ToolExecutor::new(tool, shared).unwrap()),
            (true, true) => Box::new(ToolExecutor::new(tool, shared).unwrap().trusting_requests()),
            (false, trusting) => {
                let tools = registry([tool, echo("other")]);
                let tools = ToolDispatcher::new("tools", tools, shared).unwrap();
                Box::new(match trusting {
                    true => tools.trusting_requests(),
                    false => tools,
                })
            }
        };
        let request = requested(&store, "pay").await;

        executor.process_event(&event_of(&request)).await.unwrap();

        let answer = only(&store, "tool.response.v1").await;
        let (expected, code) = match trusting {
            true => ("success", None),
            false => ("error", Some("approval_required")),
        };
        assert_eq!(answer.context["status"], expected);
        assert_eq!(answer.context.text("code"), code);
        assert_eq!(count(&calls), usize::from(trusting));
    }
}

#[tokio::test]
async fn a_request_is_refused_only_if_a_rule_is_for_its_arguments() {
    for (amount, code) in [(100, None), (101, Some("approval_required"))] {
        let store = MemoryStore::default();
        let (tool, calls) = counting("pay", |_| async { Ok(json!("paid")) });
        let is_large = Condition::new("$.amount", "gt", Some(json!(100)));
        let tool = tool.needs_approval(Approval::when_args(is_large));
        let tools = registry([tool, echo("other")]);
        let tools = ToolDispatcher::new("tools", tools, Arc::new(store.clone())).unwrap();
        let request = json!({"tool": "pay", "input": {"amount": amount}});
        let request = put(&store, "tool.request.v1", request).await;

        tools.process_event(&event_of(&request)).await.unwrap();

        let answer = only(&store, "tool.response.v1").await;
        assert_eq!(answer.context.text("code"), code, "{amount}");
        assert_eq!(count(&calls), usize::from(code.is_none()));
    }
}

#[test]
fn a_tool_without_settings_has_no_approvals_and_default_flags() {
    let tool = echo("plain");
    let tool = registry([tool]);
    let settings = tool.get("plain").unwrap().settings().clone();

    assert!(settings.approvals.is_empty());
    assert!(!settings.returns_to_user && !settings.over_breadcrumbs);
    let told = registry([echo("told").returns_to_user().over_breadcrumbs()]);
    let told = told.get("told").unwrap().settings();
    assert!(told.returns_to_user && told.over_breadcrumbs);
}
