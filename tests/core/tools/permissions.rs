//! A tool without permission cannot be called in any way.

use crate::support::{all, event_of};
use crate::tools::{call, count, counting, echo, error_of, registry, requested};
use serde_json::json;
use std::sync::Arc;
use universal_executor::tool::{ToolDispatcher, ToolPermissions, ToolRegistry};
use universal_executor::{BreadcrumbStore, MemoryStore, Outcome, UniversalExecutor};

fn tools() -> ToolRegistry {
    registry([
        echo("plain"),
        echo("read").permission_tags(["disk"]),
        echo("send").permission_tags(["disk", "egress"]),
    ])
}

#[test]
fn permissions_allow_exactly_the_listed_names_and_tags() {
    let cases: [(ToolPermissions, &[&str]); 8] = [
        (ToolPermissions::none(), &[]),
        (ToolPermissions::default(), &[]),
        (ToolPermissions::all(), &["plain", "read", "send"]),
        (ToolPermissions::names(["send", "Read", "gone"]), &["send"]),
        (ToolPermissions::tags(["disk"]), &["read"]),
        (ToolPermissions::tags(["egress"]), &[]),
        (
            ToolPermissions::names(["plain", "send"]).and_only_tags(["disk"]),
            &["plain"],
        ),
        (
            ToolPermissions::all().and_only_tags(["disk"]),
            &["plain", "read"],
        ),
    ];

    for (permissions, expected) in cases {
        assert_eq!(
            tools().allowed(&permissions).names(),
            expected,
            "{permissions:?}"
        );
    }
}

#[test]
fn an_allowed_registry_can_only_be_restricted_further() {
    let some = tools().allowed(&ToolPermissions::names(["read"]));

    let more = some.allowed(&ToolPermissions::all());

    assert_eq!(more.names(), ["read"]);
}

#[tokio::test]
async fn a_forbidden_tool_cannot_be_called_and_looks_like_a_missing_tool() {
    let (forbidden, calls) = counting("delete-all", |_| async { Ok(json!("deleted")) });
    let tools = registry([echo("read")]).with(forbidden).unwrap();
    let mine = tools.allowed(&ToolPermissions::names(["read"]));
    let store = MemoryStore::default();
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let request = requested(&store, "delete-all").await;

    let forbidden = error_of(call(&mine, "delete-all", json!({})).await);
    let unknown = error_of(call(&mine, "delete-alx", json!({})).await);
    let dispatcher = ToolDispatcher::new("tools", mine.clone(), shared).unwrap();
    let skipped = dispatcher.process_event(&event_of(&request)).await.unwrap();
    let dispatcher = dispatcher.answering_unknown().unwrap();
    dispatcher.process_event(&event_of(&request)).await.unwrap();

    assert_eq!(forbidden.0, "unknown_tool");
    assert_eq!(
        forbidden.1,
        "there is no tool \"delete-all\"; there are read"
    );
    assert_eq!(unknown.1.replace("alx", "all"), forbidden.1);
    assert_eq!(skipped, Outcome::Unmatched);
    let answers = all(&store, "tool.response.v1").await;
    assert_eq!(answers[0].context["error"], forbidden.1);
    assert_eq!(answers.len(), 1);
    assert!(mine.get("delete-all").is_none());
    assert_eq!(count(&calls), 0);
}
