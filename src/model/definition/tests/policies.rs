use super::*;
use crate::model::{DefinitionOptions, KeyPolicy, RolePolicy};

fn older() -> DefinitionOptions {
    DefinitionOptions::default()
        .roles(RolePolicy::older())
        .keys(KeyPolicy::older())
}

fn read(definition: &Value) -> Vec<Subscription> {
    let read = Subscriptions::from_json_with(definition, &older()).unwrap();
    read.as_slice().to_vec()
}

#[test]
fn without_a_policy_a_missing_role_stays_an_error_and_a_key_is_the_schema() {
    assert_eq!(
        refusal(&json!([{"schema_name": "user.message.v1"}])).field(),
        "role"
    );
    assert_eq!(
        load_one(&json!({"schema_name": "a.b.v1", "role": "context"})).name(),
        Some("a.b.v1")
    );
}

#[test]
fn the_older_policies_infer_roles_keys_and_a_limit_of_one() {
    let read = read(&json!([
        {"schema_name": "user.message.v1"},
        {"schema_name": "tool.response.v1", "fetch": "recent"},
        {"schema_name": "my.own.v1", "fetch": {"method": "vector"}},
        {"schema_name": "tool.catalog.v1"},
    ]));

    let roles: Vec<Role> = read.iter().map(|one| one.role).collect();
    assert_eq!(
        roles,
        [Role::Trigger, Role::Context, Role::Context, Role::Context]
    );
    let keys: Vec<_> = read.iter().map(|one| one.key.as_deref()).collect();
    assert_eq!(
        keys,
        [
            None,
            Some("tool_results"),
            Some("my_own_v1"),
            Some("tool_catalog")
        ]
    );
    assert!(read.iter().all(|one| one.fetch.limit == 1));
}

#[test]
fn explicit_fields_of_a_definition_override_the_policies() {
    let read = read(&json!([
        {"schema_name": "user.message.v1", "role": "context", "key": "said", "fetch": {"method": "recent", "limit": 7}},
        {"schema_name": "my.own.v1", "role": "trigger", "key": "mine"},
        {"schema_name": "other.v1", "fetch": "recent", "limit": 3},
    ]));

    let fields: Vec<_> = read
        .iter()
        .map(|one| (one.role, one.key.as_deref(), one.fetch.limit))
        .collect();
    assert_eq!(fields[0], (Role::Context, Some("said"), 7));
    assert_eq!((fields[1].0, fields[1].1), (Role::Trigger, Some("mine")));
    assert_eq!(fields[2], (Role::Context, Some("other_v1"), 3));
}

#[test]
fn a_subscription_without_a_schema_has_no_key_by_policy() {
    let error = Subscriptions::from_json_with(&json!([{"any_tags": ["a"]}]), &older()).unwrap_err();

    assert_eq!(error.problem(), &DefinitionProblem::NoName);
}
