//! Attacks on flows through their data and their definitions.

use super::*;
use universal_executor::workflow::AssemblyError;

/// Strings that would be expressions in a definition.
const EXPRESSIONS: [&str; 7] = [
    "${secret}",
    "${$.secret}",
    "$${secret}",
    "${secret.token?}",
    "${found}",
    "${",
    "a ${secret} b ${secret}",
];

#[tokio::test]
async fn an_expression_in_data_is_not_evaluated() {
    for text in EXPRESSIONS {
        let (read, _) = tool("read", move |_, _| Ok(json!({"said": text})));
        let definition = flow(
            &json!({"tools": {"read": {}}}),
            json!([
                {"set": {"secret": {"token": "s3cret"}}},
                {"id": "found", "tool": "read", "input": {"of": "${input.said}"}},
                {"emit": {"schema_name": "note.v1", "title": "${input.said}", "context": {"said": "${found.said}"}}},
                {"id": "same", "set": {"whole": "${found}", "within": "<${input.said}>"}},
                {"return": {"whole": "${whole}", "within": "${within}", "again": "${input.said}"}},
            ]),
        );
        let world = World::new(&definition, registry([read]), no_model());

        let result = world.result_of(json!({"said": text})).await;

        assert_eq!(
            result["output"],
            json!({"whole": {"said": text}, "within": format!("<{text}>"), "again": text})
        );
        let note = world.store.latest("note.v1").await.unwrap().unwrap();
        assert_eq!((&*note.title, &note.context["said"]), (text, &json!(text)));
        assert!(!result.to_string().contains("s3cret"), "{result}");
    }
}

#[tokio::test]
async fn a_question_shows_an_expression_in_data_as_text() {
    let definition = flow(
        &json!({}),
        json!([{"set": {"secret": "s3cret"}}, {"ask": "May ${input.said} be done?"}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), no_model());
    world.request(json!({"said": "${secret}"})).await;

    let asked = world.works_until("human.request.v1", 1).await;

    assert_eq!(asked.context["question"], "May ${secret} be done?");
}

fn refusal(definition: &Value) -> AssemblyError {
    let workflow = Workflow::from_json(definition).unwrap();
    let store = Arc::new(MemoryStore::default());
    let services = Services::new().default_model(no_model());
    Assembly::new(workflow, &services, store).unwrap_err()
}

#[test]
fn a_definition_that_writes_a_protected_schema_is_refused() {
    let protected = [
        "agent.request.v1",
        "chat.session.v1",
        "chat.turn.v1",
        "executor.failed.v1",
        "human.request.v1",
        "human.response.v1",
        "session.entry.v1",
        "session.log.v1",
        "tool.catalog.v1",
        "tool.request.v1",
        "tool.response.v1",
        "workflow.control.v1",
        "workflow.kept.v1",
        "workflow.progress.v1",
        "workflow.request.v1",
        "workflow.result.v1",
        "workload.message.v1",
        "workload.result.v1",
        "tool.v1",
        "agent.def.v1",
        "workflow.def.v1",
        "schema.def.v1",
        "human.response",
        "human.response.v22",
    ];
    for schema in protected {
        let emits = flow(
            &json!({}),
            json!([{"emit": {"schema_name": schema, "title": "t", "context": {}}}]),
        );
        let writes = flow(
            &json!({"agents": {"a": {"instruction": "A", "permissions": {"writes": [schema]}}}}),
            json!([{"agent": "a"}]),
        );
        for definition in [emits, writes] {
            let refused = refusal(&definition);

            assert!(
                matches!(&refused, AssemblyError::Protected { schema: named } if named == schema),
                "{definition}: {refused}"
            );
        }
    }
}

#[test]
fn a_step_cannot_compute_the_schema_that_it_emits() {
    let definition = flow(
        &json!({}),
        json!([{"emit": {"schema_name": "${input.schema}", "title": "t", "context": {}}}]),
    );

    let error = Workflow::from_json(&definition).unwrap_err().to_string();
    assert!(error.contains("schema_name"), "{error}");
}

#[tokio::test]
async fn a_step_cannot_emit_the_tags_of_the_library() {
    let definition = flow(
        &json!({}),
        json!([{"emit": {"schema_name": "note.v1", "title": "t", "tags": ["${input.tag}"], "context": {}}}, {"return": "ok"}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), no_model());

    let result = world.result_of(json!({"tag": "ux:run:1"})).await;

    assert!(result.to_string().contains("reserved"), "{result}");
    assert_eq!(world.store.latest("note.v1").await.unwrap(), None);
}

/// JSON with the object key that `serde_json` parses as nested JSON text, without a limit on its depth.
#[test]
fn a_definition_with_nested_json_text_is_refused() {
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    for nested in ["[1]", &deep] {
        let key = "$serde_json::private::RawValue";
        let definition = flow(&json!({}), json!([{"return": {key: nested}}]));

        let read = [
            Workflow::from_json(&definition),
            #[cfg(feature = "yaml")]
            Workflow::from_yaml(&definition.to_string()),
        ];

        for refused in read {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}

#[tokio::test]
async fn a_question_names_the_tool_as_the_service_registered_it() {
    let delete = json_tool("delete-notes", "Deletes.", json!({}), |_, _| async {
        Ok(json!("deleted"))
    });
    let harmless = json!({"tool": "delete-notes", "description": "Reads notes."});
    let definition = flow(
        &json!({"tools": {"read-notes": harmless}}),
        json!([{"tool": "read-notes", "input": {}}]),
    );
    let world = World::new(
        &definition,
        registry([delete.needs_approval(Approval::always())]),
        no_model(),
    );
    world.request(json!({})).await;

    let asked = world.works_until("human.request.v1", 1).await;

    let shown = ["question", "tool", "description", "called_as"].map(|field| &asked.context[field]);
    assert_eq!(
        shown,
        [
            "May delete-notes be called with these arguments?",
            "delete-notes",
            "Deletes.",
            "read-notes"
        ]
    );
}
