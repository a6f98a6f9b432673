//! JSON with the object key that `serde_json` parses as nested JSON text, without a limit on its depth.

use crate::security::capture;
use crate::security::world::{Scene, World};
use serde_json::{Value, json};
use universal_executor::{BreadcrumbStoreExt as _, NewBreadcrumb};

const KEY: &str = "$serde_json::private::RawValue";

/// Returns JSON with this key, whose string is nested JSON text: short ones, and one that would overflow its parser's stack.
fn texts() -> Vec<String> {
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let nested = ["{}", "[1]", r#"{"to": "eve"}"#, "1 2", &deep];
    nested
        .into_iter()
        .map(|text| json!({ KEY: text }).to_string())
        .collect()
}

fn asked(order: &str) -> Scene {
    Scene {
        trigger: NewBreadcrumb::new("question.v1").context(json!({"q": order})),
        ..Scene::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_writes_nested_json_text_calls_no_tool_and_writes_no_breadcrumb() {
    let (log, _guard) = capture();

    for text in texts() {
        for order in [
            format!("CALL note {text}"),
            format!(r#"CALL note {{"a": [{text}]}}"#),
            format!("CALL pay {text}"),
            format!(
                r#"WRITE {{"action": "create", "breadcrumb": {{"schema_name": "note.v1", "context": {text}}}}}"#
            ),
        ] {
            let world = World::new().await;

            world.run_scene(asked(&order)).await;

            let order: String = order.chars().take(120).collect();
            assert_eq!(world.harm(&log).await, [""; 0], "{order}");
            assert_eq!(world.calls("note"), 0, "{order}");
            assert_eq!(world.all("human.request.v1").await, [], "{order}");
            let notes = world.all("note.v1").await;
            assert_eq!(
                notes.len(),
                1,
                "{order}: only the note from the setup exists"
            );
        }
    }
}

#[tokio::test]
async fn a_request_and_an_answer_with_nested_json_text_cannot_be_stored() {
    let world = World::new().await;

    for text in texts() {
        let nested: Value = json!({ KEY: text });
        for (schema, context) in [
            (
                "tool.request.v1",
                json!({"tool": "note", "requestId": "1", "input": nested}),
            ),
            (
                "tool.response.v1",
                json!({"request_id": "1", "output": [nested]}),
            ),
            (
                "human.response.v1",
                json!({"request_id": "1", "answer": nested}),
            ),
            (
                "workflow.request.v1",
                json!({"workflow": "w", "input": nested}),
            ),
        ] {
            let new = NewBreadcrumb::new(schema).context(context);

            let stored = world.store.create(new).await;

            let error = stored.unwrap_err().to_string();
            assert!(error.contains("cannot be stored"), "{schema}: {error}");
        }
    }
}
