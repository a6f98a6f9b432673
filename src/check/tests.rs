use super::*;
use serde_json::{Value, json};

fn found(definition: &Value) -> Vec<String> {
    let text = definition.to_string();
    let checked = Check::new().one(&CheckSource::json("x.json", text));
    let findings = checked.findings.into_iter();
    let shown = findings.map(|finding| {
        let severity = finding.severity.as_str();
        format!("{severity} {}: {}", finding.path, finding.message)
    });
    shown.collect()
}

fn expect(definition: &Value, expected: &str) {
    let found = found(definition);
    assert!(
        found.iter().any(|one| one.contains(expected)),
        "{expected} in {found:#?}"
    );
}

#[test]
fn the_kind_of_a_definition_follows_from_its_schema_or_its_fields() {
    for (definition, kind) in [
        (
            json!({"schema_name": "agent.def.v1", "context": {}}),
            Kind::Agent,
        ),
        (
            json!({"schema_name": "tool.code.v1", "context": {}}),
            Kind::RemoteTool,
        ),
        (
            json!({"schema_name": "note.v1", "context": {"agent_id": "a"}}),
            Kind::Other,
        ),
        (json!({"context": {"agent_id": "a"}}), Kind::Agent),
        (json!({"agent_id": "a"}), Kind::Agent),
        (
            json!({"system_prompt": "a", "subscriptions": []}),
            Kind::Agent,
        ),
        (json!({"name": "a", "subscriptions": []}), Kind::Tool),
        (json!({"name": "a", "code": {}}), Kind::RemoteTool),
        (json!({"flows": {}}), Kind::Workflow),
        (json!({"workflow_id": "a"}), Kind::Workflow),
        (json!([]), Kind::Subscriptions),
        (json!({"selectors": []}), Kind::Subscriptions),
        (json!({"a": 1}), Kind::Unknown),
        (json!("a"), Kind::Unknown),
    ] {
        assert_eq!(Kind::of(&definition), kind, "{definition}");
    }
}

#[test]
fn a_non_definition_is_an_error_and_a_breadcrumb_of_another_schema_a_warning() {
    expect(
        &json!({"a": 1}),
        "error the definition: not a definition; write \"agent_id\"",
    );
    expect(
        &json!({"schema_name": "note.v1", "context": {}}),
        "warning schema_name: \"note.v1\" is not the schema of a definition",
    );
}

#[test]
fn a_mistyped_field_of_the_breadcrumb_itself_is_named() {
    let definition = json!({"schema": "a", "context": {"agent_id": "a"}});

    expect(
        &definition,
        "error schema: unknown field \"schema\"; did you mean \"schema_name\"?",
    );
}

#[test]
fn an_executor_without_a_trigger_is_a_warning_at_its_subscriptions() {
    let context = json!([{"schema_name": "a.v1", "role": "context", "key": "a"}]);

    for (definition, at) in [
        (
            json!({"agent_id": "a", "subscriptions": context}),
            "subscriptions",
        ),
        (
            json!({"context": {"name": "a", "subscriptions": {"selectors": context}}}),
            "context.subscriptions.selectors",
        ),
        (json!({"selectors": context}), "selectors"),
    ] {
        expect(
            &definition,
            &format!("warning {at}: no trigger, so no event starts this"),
        );
    }
}

#[test]
fn every_problem_of_an_agent_is_found_in_one_check() {
    let definition = json!({
        "agent_id": "a", "prompt": "b", "temperature": "hot",
        "subscriptions": [{"schema_name": "a.v1", "role": "triger"}],
    });

    for expected in [
        "error prompt: unknown field",
        "error temperature: field \"temperature\" must be a number",
        "error subscriptions[0].role: unknown value \"triger\"; did you mean \"trigger\"?",
        "warning system_prompt: missing field",
    ] {
        expect(&definition, expected);
    }
}

#[test]
fn a_remote_tool_without_a_name_is_an_error_and_its_code_a_warning() {
    let definition = json!({"schema_name": "tool.code.v1", "context": {
        "code": {"language": "typescript", "sources": ""}, "input_schema": 7,
    }});

    for expected in [
        "error context.name: field \"name\" must be a string",
        "error context.code.sources: unknown field \"sources\"; did you mean \"source\"?",
        "error context.input_schema: not a JSON Schema",
        "warning context.code: remote tool: its code (typescript) needs another runtime",
    ] {
        expect(&definition, expected);
    }
}

#[cfg(feature = "validate")]
#[test]
fn json_schemas_are_compiled() {
    let trigger = json!([{"schema_name": "a.v1", "role": "trigger"}]);
    let wrong = json!({"type": "objekt"});

    for (definition, at) in [
        (
            json!({"agent_id": "a", "subscriptions": trigger, "output_schema": wrong}),
            "output_schema",
        ),
        (
            json!({"name": "a", "subscriptions": trigger, "definition": {"inputSchema": wrong}}),
            "definition.inputSchema",
        ),
        (
            json!({"schema_name": "schema.def.v1", "context": {"schema": wrong}}),
            "context.schema",
        ),
    ] {
        expect(
            &definition,
            &format!("error {at}: not a usable JSON Schema"),
        );
    }
}

#[test]
fn a_schema_definition_names_its_schema_and_has_usable_hints() {
    let schema = |tags: Value, hints: Value| json!({"schema_name": "schema.def.v1", "tags": tags, "context": {"llm_hints": hints}});

    expect(
        &schema(json!([]), json!({})),
        "warning tags: no tag \"defines:<schema>\"",
    );
    expect(
        &schema(json!(["defines:a.v1"]), json!({"mode": "replaced"})),
        "error context.llm_hints.mode",
    );
    assert_eq!(
        found(&schema(json!(["defines:a.v1"]), json!({"exclude": ["a"]}))),
        Vec::<String>::new()
    );
}

#[test]
fn a_workflow_record_is_checked_with_its_entry_as_a_workload() {
    let record = |more: Value| {
        let mut context = json!({
            "workflow_id": "desk",
            "definition": {"flows": {"a": {"steps": [{"return": 1}]}, "b": {"steps": [{"return": 2}]}}},
        });
        context
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"schema_name": "workflow.def.v1", "context": context})
    };
    let text = "{\"flows\": {\"a\": {\"steps\": [{\"retrun\": 1}]}}}";

    for (more, expected) in [
        (json!({"flow": "c"}), "error context.flow: workload:"),
        (
            json!({"flow": 7}),
            "error context.flow: field \"flow\" must be the name of a flow",
        ),
        (
            json!({"entry": "a"}),
            "error context.entry: unknown field \"entry\"; did you mean \"flow\"?",
        ),
        (
            json!({"workflow_id": ""}),
            "error context.workflow_id: field \"workflow_id\" must be",
        ),
        (
            json!({"definition": 7}),
            "error context.definition: field \"definition\" must be",
        ),
        (
            json!({"definition": text}),
            "error context.definition.flows.a.steps[0].retrun",
        ),
        (
            json!({"subscriptions": []}),
            "warning context.subscriptions: no trigger",
        ),
    ] {
        expect(&record(more), expected);
    }
    assert_eq!(found(&record(json!({"flow": "a"}))), Vec::<String>::new());
}

#[test]
fn the_findings_about_one_definition_are_bounded() {
    let mut definition = json!({"agent_id": "a", "subscriptions": []});
    for n in 0..1_000 {
        definition[format!("banana{n}")] = json!(1);
    }

    let found = found(&definition);

    assert_eq!(found.len(), 101, "{found:#?}");
    assert!(
        found[100].contains("more problems are omitted"),
        "{}",
        found[100]
    );
}

#[test]
fn a_hostile_text_is_refused_with_a_finding() {
    for text in [
        "[".repeat(100_000),
        format!("{{\"agent_id\": {}", "{\"a\":".repeat(200)),
        "{\"a\": 1, \"a\": 2}".to_owned(),
        "\u{0}".to_owned(),
        String::new(),
    ] {
        let checked = Check::new().one(&CheckSource::json("x.json", text));

        assert_eq!(checked.kind, Kind::Unknown);
        assert_eq!(checked.findings.len(), 1);
        assert_eq!(checked.findings[0].severity, Severity::Error);
    }
}
