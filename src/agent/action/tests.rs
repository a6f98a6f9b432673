use super::permit::PermissionError;
use super::*;
use crate::agent::{AgentCapabilities, AgentExecutor};
use crate::model::{NewBreadcrumb, Timestamp, Visibility};
use proptest::prelude::*;
use serde_json::json;

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

const ALL: AgentCapabilities = AgentCapabilities {
    can_create_breadcrumbs: true,
    can_update_own: true,
    can_delete_own: true,
    can_spawn_agents: true,
};

fn read(value: &Value) -> Action {
    Action::read(&value.to_string()).unwrap().unwrap()
}

/// Returns version 3 of a breadcrumb with this schema.
fn own(schema: &str) -> Breadcrumb {
    let now = Timestamp::from_micros(1);
    let new = NewBreadcrumb::new(schema).tags(["old", "session:1"]);
    let mut own = new.first_version(ID.parse().unwrap(), now);
    own.version = 3;
    own
}

fn schemas(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn rules<'r>(capabilities: &'r AgentCapabilities, responds_with: &'r [String]) -> Rules<'r> {
    Rules {
        capabilities,
        responds_with,
        creates_any_schema: false,
    }
}

fn created(action: Action, responds_with: &[&str]) -> NewBreadcrumb {
    match action.permit(&rules(&ALL, &schemas(responds_with)), None) {
        Ok(PermittedWrite::Create(new)) => new,
        other => panic!("{other:?}"),
    }
}

fn permission_error(
    value: &Value,
    capabilities: &AgentCapabilities,
    responds_with: &[&str],
) -> PermissionError {
    let target = own("note.v1");
    let error = read(value).permit(&rules(capabilities, &schemas(responds_with)), Some(&target));
    error.unwrap_err()
}

#[test]
fn an_action_is_found_alone_in_a_fence_and_in_prose() {
    let action =
        json!({"action": "create", "breadcrumb": {"schema_name": "note.v1", "context": {"a": 1}}});
    for text in [
        action.to_string(),
        format!("```json\n{action}\n```"),
        format!("I write it down: {action}. Anything else?"),
        action["breadcrumb"].to_string(),
    ] {
        let action = Action::read(&text).unwrap().unwrap();

        let new = created(action, &["note.v1"]);

        assert_eq!(new.schema_name.as_deref(), Some("note.v1"), "{text}");
        assert_eq!(new.context, json!({"a": 1}), "{text}");
    }
}

#[test]
fn prose_and_any_other_json_are_answers() {
    for text in [
        "",
        "Hello, Ann!",
        "Use {name} and [1], as in {\"a\": 1} or {\"a\": 2}.",
        "7",
        r#"["a", "b"]"#,
        r#"{"message": "hi"}"#,
        r#"{"context": {"a": 1}, "answer": 7}"#,
        r#"{"context": "none", "title": "x"}"#,
        r#"{"action": "buy", "amount": 3}"#,
    ] {
        assert_eq!(Action::read(text), Ok(None), "{text}");
    }
}

#[test]
fn a_malformed_action_is_an_error_that_names_the_problem() {
    for (text, named) in [
        (
            r#"{"action": "create", "breadcrumb": {"context": {"a": "#,
            "JSON",
        ),
        (
            r#"{"action": "create", "breadcrumb": {}} {"action": "none"}"#,
            "several",
        ),
        (r#"[{"action": "create", "breadcrumb": {}}]"#, "one action"),
        (r#"{"action": "delete", "bread"#, "JSON"),
        (r#"{"action": "create"}"#, "\"breadcrumb\""),
        (r#"{"action": "create", "breadcrumb": {}}"#, "\"context\""),
        (
            r#"{"action": "create", "breadcrumb": {"context": "a"}}"#,
            "\"context\"",
        ),
        (
            r#"{"action": "create", "breadcrumb": {"context": {}, "tags": "a"}}"#,
            "\"tags\"",
        ),
        (
            r#"{"action": "create", "breadcrumb": {"context": {}, "title": 1}}"#,
            "\"title\"",
        ),
        (
            r#"{"action": "publish", "breadcrumb": {"context": {}}}"#,
            "update",
        ),
        (r#"{"breadcrumb": {"context": {}}}"#, "\"action\""),
        (
            r#"{"action": "update", "breadcrumb": {"title": "x"}}"#,
            "\"id\"",
        ),
        (
            r#"{"action": "delete", "breadcrumb": {"id": "x", "version": 1}}"#,
            "\"id\"",
        ),
        (
            r#"{"action": "update", "breadcrumb": {"id": "01890a5d-ac96-774b-bcce-b302099a8057", "title": "x"}}"#,
            "\"version\"",
        ),
        (
            r#"{"action": "update", "breadcrumb": {"id": "01890a5d-ac96-774b-bcce-b302099a8057", "version": 1}}"#,
            "an update needs",
        ),
    ] {
        let problem = Action::read(text).unwrap_err();

        assert!(problem.contains(named), "{text}: {problem}");
    }
}

#[test]
fn an_action_with_too_many_or_too_long_tags_is_an_error() {
    for tags in [json!(vec!["a"; 65]), json!(["a".repeat(257)])] {
        let text = json!({"action": "create", "breadcrumb": {"context": {}, "tags": tags}});

        assert!(Action::read(&text.to_string()).is_err());
    }
}

#[test]
fn a_schema_a_title_and_tags_that_are_missing_are_the_agents() {
    for breadcrumb in [
        json!({"context": {"a": 1}}),
        json!({"context": {"a": 1}, "schema_name": null, "title": " ", "tags": []}),
        json!({"context": {"a": 1}, "tags": ["session:2"]}),
        json!({"context": {"a": 1}, "tags": ["ux:run:1", "ux:slot:0/1"]}),
    ] {
        let new = created(read(&breadcrumb), &["agent.response.v1"]);

        assert_eq!(new.schema_name.as_deref(), Some("agent.response.v1"));
        assert_eq!(new.title, "Agent Response");
        assert_eq!(new.tags, ["agent:response"]);
    }
}

#[test]
fn fields_and_tags_that_a_model_may_not_set_are_dropped() {
    let action = json!({"action": "create", "breadcrumb": {
        "schema_name": "note.v1", "title": "Note", "tags": ["a", "session:2", "request:1", "step:3", "parent:4", "turn:5", "workspace:x", ""],
        "context": {"text": "hi", "creator": {"id": "boss"}},
        "id": ID, "version": 7, "created_by": "boss", "owner_id": "boss", "visibility": "public",
        "ttl": "2030-01-01T00:00:00Z", "llm_hints": {"exclude": ["a"]},
    }});

    let new = created(read(&action), &["note.v1"]);

    let expected = NewBreadcrumb::new("note.v1").title("Note").tag("a");
    assert_eq!(new, expected.context(json!({"text": "hi"})));
    assert_eq!(new.visibility, Visibility::default());
}

#[test]
fn an_action_needs_the_capability() {
    let none = AgentCapabilities {
        can_create_breadcrumbs: false,
        can_update_own: false,
        can_delete_own: false,
        can_spawn_agents: false,
    };
    let target = json!({"id": ID, "version": 3, "title": "x", "context": {}});
    for (action, capability) in [
        ("create", "can_create_breadcrumbs"),
        ("update", "can_update_own"),
        ("delete", "can_delete_own"),
    ] {
        let value = json!({"action": action, "breadcrumb": target});

        assert_eq!(
            permission_error(&value, &none, &["note.v1", "agent.response.v1"]),
            PermissionError::MissingCapability { capability }
        );
    }
    let nothing = read(&json!({"action": "none", "breadcrumb": target}));
    assert_eq!(
        nothing.permit(&rules(&none, &[]), None),
        Ok(PermittedWrite::Nothing)
    );
}

#[test]
fn only_schemas_of_the_definition_are_written_by_their_exact_names() {
    let create = |schema: &str| json!({"schema_name": schema, "context": {}});
    for schema in ["note.v2", "note.v1 ", "Note.v1", "note"] {
        let error = permission_error(&create(schema), &ALL, &["note.v1"]);

        assert!(
            matches!(error, PermissionError::OtherSchema { .. }),
            "{error}"
        );
    }
    for action in ["update", "delete"] {
        let value = json!({"action": action, "breadcrumb": {"id": ID, "version": 3, "title": "x"}});

        let error = permission_error(&value, &ALL, &["other.v1"]);

        assert!(
            matches!(error, PermissionError::OtherSchema { .. }),
            "{error}"
        );
    }
}

#[test]
fn creating_a_definition_requires_the_spawn_agents_capability() {
    let defaults = AgentCapabilities::default();
    for schema in [
        "agent.def.v1",
        "tool.v1",
        "workflow.def.v1",
        "schema.def.v1",
        "agent.def.v2",
    ] {
        let value = json!({"schema_name": schema, "context": {}});

        let capability = "can_spawn_agents";
        assert_eq!(
            permission_error(&value, &defaults, &[schema]),
            PermissionError::MissingCapability { capability }
        );
        assert!(
            read(&value)
                .permit(&rules(&ALL, &schemas(&[schema])), None)
                .is_ok()
        );
        let unlisted = read(&value).permit(&rules(&ALL, &schemas(&["note.v1"])), None);
        assert!(
            matches!(unlisted, Err(PermissionError::OtherSchema { .. })),
            "{schema}"
        );
    }
}

#[test]
fn an_agent_that_creates_any_schema_creates_no_protected_one() {
    let answers = schemas(&[AgentExecutor::RESPONSE]);
    let any = Rules {
        creates_any_schema: true,
        ..rules(&ALL, &answers)
    };
    let create = |schema: &str| read(&json!({"schema_name": schema, "context": {}}));

    for schema in ["note.tags.v1", "browser.action.v1", AgentExecutor::RESPONSE] {
        assert!(create(schema).permit(&any, None).is_ok(), "{schema}");
    }
    for schema in [
        "agent.def.v1",
        "agent.request.v1",
        "executor.failed.v1",
        "human.response.v1",
        "schema.def.v2",
        "session.log.v1",
        "system.message.v1",
        "tool.code.v1",
        "tool.config.v1",
        "tool.request.v1",
        "tool.response.v1",
        "tool.v1",
        "user.message.v1",
        "workflow.def.v1",
    ] {
        let error = create(schema).permit(&any, None);
        assert!(
            matches!(
                error,
                Err(PermissionError::OtherSchema { .. } | PermissionError::Reserved { .. })
            ),
            "{schema}"
        );
    }
}

#[test]
fn an_action_cannot_create_a_reserved_schema() {
    for name in NEVER_WRITTEN {
        for version in ["v1", "v2"] {
            let schema = format!("{name}.{version}");
            let value = json!({"schema_name": schema, "context": {}});

            let error = permission_error(&value, &ALL, &[&schema]);

            assert_eq!(error, PermissionError::Reserved { schema });
        }
    }
}

const NEVER_WRITTEN: [&str; 18] = [
    "human.response",
    "human.request",
    "executor.failed",
    "tool.response",
    "tool.catalog",
    "tool.request",
    "agent.request",
    "chat.session",
    "chat.turn",
    "session.entry",
    "session.log",
    "workflow.control",
    "workflow.kept",
    "workflow.progress",
    "workflow.request",
    "workflow.result",
    "workload.message",
    "workload.result",
];

#[test]
fn an_update_requires_the_agents_own_breadcrumb_at_the_current_version() {
    let id: BreadcrumbId = ID.parse().unwrap();
    let update = |version: u64, schema: &str| {
        read(&json!({"action": "update", "breadcrumb": {
            "id": ID, "version": version, "schema_name": schema, "title": "New", "tags": ["new", "session:2"],
        }}))
    };
    let (notes, mine) = (schemas(&["note.v1", "other.v1"]), own("note.v1"));
    let mut other = mine.clone();
    other.id = BreadcrumbId::NIL;

    let changed = update(3, "note.v1").permit(&rules(&ALL, &notes), Some(&mine));

    let tags = ["new", "session:1"];
    assert_eq!(
        changed,
        Ok(PermittedWrite::Update {
            id,
            version: 3,
            patch: crate::model::Patch::new().title("New").tags(tags)
        })
    );
    assert_eq!(update(3, "note.v1").target(), Some(id));
    for not_own in [None, Some(&other)] {
        let error = update(3, "note.v1").permit(&rules(&ALL, &notes), not_own);
        assert_eq!(error, Err(PermissionError::NotOwnBreadcrumb { id }));
    }
    let (found, named) = (3, 2);
    let stale = update(2, "note.v1").permit(&rules(&ALL, &notes), Some(&mine));
    assert_eq!(stale, Err(PermissionError::Stale { id, found, named }));
    let moved = update(3, "other.v1").permit(&rules(&ALL, &notes), Some(&mine));
    assert_eq!(moved, Err(PermissionError::ChangedSchema { id }));
}

#[test]
fn a_deletion_is_held_to_the_version_that_was_read() {
    let id: BreadcrumbId = ID.parse().unwrap();
    let delete = |version: u64| {
        let value = json!({"action": "delete", "breadcrumb": {"id": ID, "version": version}});
        read(&value).permit(&rules(&ALL, &schemas(&["note.v1"])), Some(&own("note.v1")))
    };

    assert_eq!(delete(3), Ok(PermittedWrite::Delete { id, version: 3 }));
    let (found, named) = (3, 9);
    assert_eq!(delete(9), Err(PermissionError::Stale { id, found, named }));
}

fn a_schema() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("note.v1".to_owned()),
        Just("agent.response.v1".to_owned()),
        Just("agent.def.v1".to_owned()),
        Just("tool.v1".to_owned()),
        prop::sample::select(&NEVER_WRITTEN[..]).prop_map(|name| format!("{name}.v1")),
        "[a-z.]{0,6}",
    ]
}

fn a_breadcrumb() -> impl Strategy<Value = Value> {
    let tags = prop::collection::vec(
        "(session:|request:|step:|parent:|turn:|workspace:|)[a-z]{0,3}",
        0..4,
    );
    let schema = prop::option::weighted(0.9, a_schema());
    (schema, tags, "[a-z]{0,4}", 2..4_u64).prop_map(|(schema, tags, text, version)| {
        json!({
            "schema_name": schema, "tags": tags, "context": {"text": text, "creator": {"id": text}},
            "id": ID, "version": version, "created_by": text, "visibility": "public",
        })
    })
}

fn an_answer() -> impl Strategy<Value = String> {
    let action = prop::sample::select(vec!["create", "update", "delete", "none", "other"]);
    let action_json = (action, a_breadcrumb())
        .prop_map(|(action, breadcrumb)| json!({"action": action, "breadcrumb": breadcrumb}));
    let json = prop_oneof![4 => action_json, 1 => a_breadcrumb()];
    let answer_text = (
        "[a-z {}\\[\\]\"`]{0,12}",
        json,
        any::<bool>(),
        "[a-z {}\"`]{0,12}",
    );
    let answer_text = answer_text.prop_map(|(before, json, fenced, after)| match fenced {
        true => format!("{before}\n```json\n{json}\n```\n{after}"),
        false => format!("{before}{json}{after}"),
    });
    prop_oneof![8 => answer_text, 1 => ".{0,200}"]
}

fn some_capabilities() -> impl Strategy<Value = AgentCapabilities> {
    any::<[bool; 4]>().prop_map(|[create, update, delete, spawn]| AgentCapabilities {
        can_create_breadcrumbs: create,
        can_update_own: update,
        can_delete_own: delete,
        can_spawn_agents: spawn,
    })
}

/// Returns `true` if an agent must not write a schema, computed independently of the implementation.
fn is_out_of_bounds(
    schema: &str,
    capabilities: &AgentCapabilities,
    responds_with: &[String],
) -> bool {
    let is_definition = ["agent.def.v1", "tool.v1"].contains(&schema);
    !responds_with.iter().any(|one| one == schema)
        || NEVER_WRITTEN
            .iter()
            .any(|name| schema == format!("{name}.v1"))
        || (is_definition && !capabilities.can_spawn_agents)
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn every_permitted_action_stays_within_the_agents_capabilities(
        text in an_answer(),
        capabilities in some_capabilities(),
        responds_with in prop::collection::vec(a_schema(), 0..6),
        target in a_schema(),
        is_own in prop::bool::weighted(0.8),
    ) {
        let Ok(Some(action)) = Action::read(&text) else { return Ok(()) };
        let target = own(&target);

        let permitted = action.permit(&rules(&capabilities, &responds_with), is_own.then_some(&target));

        let bad = |schema: &str| is_out_of_bounds(schema, &capabilities, &responds_with);
        match permitted {
            Ok(PermittedWrite::Create(new)) => {
                prop_assert!(capabilities.can_create_breadcrumbs);
                prop_assert!(!bad(new.schema_name.as_deref().unwrap()));
                prop_assert!(!new.tags.is_empty() && !new.tags.iter().any(|tag| is_reserved(tag)));
                prop_assert!(new.created_by.is_none() && new.context.get("creator").is_none());
                prop_assert_eq!(new.visibility, Visibility::default());
            }
            Ok(PermittedWrite::Update { id, version, patch }) => {
                prop_assert!(capabilities.can_update_own && is_own);
                prop_assert!(!bad(target.schema_name.as_deref().unwrap()));
                prop_assert_eq!((id, version), (target.id, target.version));
                prop_assert!(patch.schema_name.is_none() && patch.updated_by.is_none());
                let moved = patch.tags.iter().flatten().any(|tag| is_reserved(tag) && tag != "session:1");
                prop_assert!(!moved);
            }
            Ok(PermittedWrite::Delete { id, version }) => {
                prop_assert!(capabilities.can_delete_own && is_own);
                prop_assert!(!bad(target.schema_name.as_deref().unwrap()));
                prop_assert_eq!((id, version), (target.id, target.version));
            }
            Ok(PermittedWrite::Nothing) | Err(_) => {}
        }
    }
}
