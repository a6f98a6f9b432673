//! Definitions that load, and definitions that are refused.

use crate::agent::{MemoryStore, agent, answer, calling, count, echo, registry, says, script};
use crate::support::{all, eventually, put};
use serde_json::{Value, json};
use universal_executor::agent::{AgentDefinition, AgentError, AgentExecutor};
use universal_executor::model::DefinitionOptions;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::tool::ToolRegistry;
use universal_executor::{Runtime, Services};

fn definition(more: &Value) -> Result<AgentDefinition, AgentError> {
    AgentDefinition::from_json(&with(more))
}

fn with(more: &Value) -> Value {
    let mut definition = json!({
        "agent_id": "worker",
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    let fields = definition.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    definition
}

#[test]
fn a_minimal_agent_has_no_tools_and_ten_turns() {
    let read = definition(&json!({})).unwrap();

    assert!(read.tools.is_empty() && read.output_schema.is_none());
    assert_eq!(read.max_turns, 10);
    assert_eq!(read.budgets, Default::default());
}

#[test]
fn tools_turns_and_budgets_are_read() {
    let read = definition(&json!({
        "tools": ["add"], "max_turns": 3, "output_schema": {"type": "object"},
        "budgets": {"tokens": 1000, "calls": 5, "seconds": 60},
    }));

    let read = read.unwrap();
    assert_eq!((read.tools, read.max_turns), (vec!["add".to_owned()], 3));
    let budgets = read.budgets;
    assert_eq!(
        (budgets.tokens, budgets.calls, budgets.seconds),
        (Some(1000), Some(5), Some(60))
    );
    assert_eq!(read.output_schema.unwrap()["type"], "object");
}

#[test]
fn a_field_that_cannot_be_used_is_named() {
    for (field, value) in [
        ("tools", json!("add")),
        ("tools", json!([1])),
        ("max_turns", json!(0)),
        ("max_turns", json!(-1)),
        ("max_turns", json!("3")),
        ("budgets", json!({"tokens": 0})),
        ("output_schema", json!("object")),
    ] {
        let error = definition(&json!({field: value})).unwrap_err();

        assert!(
            matches!(&error, AgentError::Field { field: found, .. } if *found == field),
            "{value}: {error}"
        );
    }
}

fn strictly(more: &Value) -> Result<AgentDefinition, AgentError> {
    let strict = DefinitionOptions::default().strict();
    AgentDefinition::from_json_with(&with(more), &strict)
}

#[test]
fn an_unknown_field_loads_with_a_warning_that_names_the_nearest_field() {
    for (field, meant) in [
        ("prompt", "system_prompt"),
        ("instructions", "system_prompt"),
        ("model_name", "model"),
        ("modelName", "model"),
        ("tool", "tools"),
        ("name", "agent_id"),
    ] {
        let read = definition(&json!({"system_prompt": "Help.", field: "a"})).unwrap();

        let expected =
            format!("{field}: unknown field {field:?} has no effect; did you mean {meant:?}?");
        let warnings: Vec<String> = read.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(warnings, [expected]);

        let error = strictly(&json!({"system_prompt": "Help.", field: "a"})).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(field) && error.ends_with(&format!("did you mean {meant:?}?")),
            "{error}"
        );
    }
}

#[test]
fn a_null_field_comment_or_extension_field_causes_no_warning() {
    let more = json!({
        "system_prompt": "Help.", "llm_config_id": null, "llm_config_comment": "a", "comment": "b",
        "metadata": {"version": "1"}, "x-team": "c", "$schema": "d",
        "budgets": {"calls": 1, "comment": "e"}, "approval": {"tools": [], "x-f": 1},
        "outputs": [{"name": "report", "comment": "g", "schema": {"type": "object", "$schema": "h"}}],
        "trust": {"comment": "i"}, "capabilities": {"comment": "j"},
    });

    let read = strictly(&more).unwrap();

    assert_eq!(read.warnings(), []);
    assert_eq!(read.budgets.calls, Some(1));
    assert_eq!(read.outputs[0].schema["$schema"], "h");
}

#[test]
fn an_unknown_capability_is_a_warning_in_every_mode() {
    let more = json!({
        "system_prompt": "Help.",
        "capabilities": {"can_use_tools": true, "can_create_breadcrumb": true},
    });

    for read in [definition(&more).unwrap(), strictly(&more).unwrap()] {
        let warnings: Vec<String> = read.warnings().iter().map(ToString::to_string).collect();

        assert_eq!(
            warnings,
            [
                "capabilities.can_create_breadcrumb: unknown field \"can_create_breadcrumb\" has no effect; did you mean \"can_create_breadcrumbs\"?",
                "capabilities.can_use_tools: unknown field \"can_use_tools\" has no effect; known fields: can_create_breadcrumbs, can_update_own, can_delete_own, can_spawn_agents",
            ]
        );
    }
}

#[test]
fn a_mistyped_restriction_is_an_error_in_every_mode() {
    for (more, named) in [
        (json!({"budget": {"calls": 1}}), "did you mean \"budgets\"?"),
        (
            json!({"sytem_prompt": "Help."}),
            "did you mean \"system_prompt\"?",
        ),
        (json!({"budgets": {"dollars": 1}}), "budgets.dollars"),
        (
            json!({"trust": {"privat": []}}),
            "did you mean \"private\"?",
        ),
        (
            json!({"outputs": [{"name": "a", "schemas": {}}]}),
            "outputs[0].schemas",
        ),
        (
            json!({"approval": {"tool": ["a"]}}),
            "did you mean \"tools\"?",
        ),
    ] {
        let error = definition(&more).unwrap_err();

        assert!(matches!(error, AgentError::UnknownField { .. }), "{error}");
        assert!(error.to_string().contains(named), "{error}");
        assert!(strictly(&more).is_err(), "{more}");
    }
}

#[test]
fn a_missing_system_prompt_is_named() {
    for more in [
        json!({}),
        json!({"system_prompt": null}),
        json!({"system_prompt": " "}),
    ] {
        let read = strictly(&more).unwrap();

        let warnings: Vec<String> = read.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            ["system_prompt: missing field \"system_prompt\": the model gets no instructions"]
        );
    }
}

#[test]
fn fields_of_rcrt_definitions_are_accepted_with_the_rcrt_option() {
    let more =
        json!({"system_prompt": "Help.", "llm_config_id": "0192f1c0-0000-7000-8000-000000000001"});
    let rcrt = DefinitionOptions::default().strict().rcrt();

    assert!(strictly(&more).is_err());
    assert!(AgentDefinition::from_json_with(&with(&more), &rcrt).is_ok());
}

#[test]
fn an_unregistered_tool_is_an_error_that_lists_the_registered_tools() {
    let model = script([]);
    for (tools, known) in [
        (registry([echo("add").0, echo("mul").0]), "add, mul"),
        (ToolRegistry::default(), "none"),
    ] {
        let more = json!({"tools": ["sub"]});

        let error = agent(&MemoryStore::default(), &model, &tools, &more).unwrap_err();

        let expected = format!(
            "agent \"worker\" names tool \"sub\", which is not registered or not listed in \"tools\"; registered: {known}"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_tool_that_is_called_at_most_once_needs_a_ledger() {
    let store = crate::support::Shim::without_ledger(&MemoryStore::default());
    let (careful, model) = (registry([echo("send").0.at_most_once()]), script([]));

    let error = agent(&store, &model, &careful, &json!({})).unwrap_err();

    assert!(matches!(error, AgentError::Invalid(_)), "{error}");
    assert!(agent(&MemoryStore::default(), &model, &careful, &json!({})).is_ok());
    // The agent does not name the tool, so the tool does not affect it.
    assert!(agent(&store, &model, &careful, &json!({"tools": []})).is_ok());
}

#[cfg(feature = "validate")]
#[test]
fn an_invalid_output_schema_is_refused_at_construction() {
    let more = json!({"output_schema": {"type": "objekt"}});

    let error = agent(
        &MemoryStore::default(),
        &script([]),
        &ToolRegistry::default(),
        &more,
    );

    let error = error.unwrap_err();
    assert!(
        matches!(error, AgentError::BadOutputSchema { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_defined_by_a_breadcrumb_may_call_registered_tools_and_no_others() {
    let store = MemoryStore::default();
    let (add, added) = echo("add");
    let model = script([
        Ok(calling([("1", "add", json!({"a": 1}))])),
        Ok(says("done")),
    ]);
    let services = Services::new().default_model(model).tool(add).unwrap();
    let definitions = StoredDefinitions::new(&store, &services).agents();
    let runtime = Runtime::builder(store.events())
        .definitions(definitions)
        .build()
        .unwrap();
    let define = |id: &str, tools: Value| {
        let subscriptions = json!([{"schema_name": "question.v1", "role": "trigger"}]);
        json!({"agent_id": id, "tools": tools, "subscriptions": subscriptions})
    };

    let scenario = async {
        put(
            &store,
            "agent.def.v1",
            define("bad", json!(["unregistered"])),
        )
        .await;
        put(&store, "agent.def.v1", define("good", json!(["add"]))).await;
        eventually(async || !runtime.executors().is_empty()).await;
        put(&store, "question.v1", json!({"q": 1})).await;
        eventually(async || !all(&store, AgentExecutor::RESPONSE).await.is_empty()).await;
        eventually(async || !all(&store, StoredDefinitions::REJECTED).await.is_empty()).await;
    };
    runtime.run_until(scenario).await.unwrap();

    assert_eq!(answer(&store).await["message"], "done");
    assert_eq!(count(&added), 1);
    let rejected = all(&store, StoredDefinitions::REJECTED).await;
    let reason = rejected[0].context.to_string();
    assert!(
        rejected.len() == 1 && reason.contains("names tool"),
        "{reason}"
    );
}
