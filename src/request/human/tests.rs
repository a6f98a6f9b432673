use super::asking::{MAX_SCHEMA_BYTES, question};
use super::*;
use crate::machine::MachineCall;
use crate::model::{BreadcrumbId, Condition, NewBreadcrumb};
use crate::tool::{JsonTool, Tool, json_tool};
use serde_json::json;

fn question_context(fields: Value) -> Json {
    request(fields, "r-1", "teller", Timestamp::from_micros(1)).context
}

#[test]
fn a_question_shows_the_characters_that_reorder_text_as_escapes() {
    let arguments: Json =
        json!({"to": "DE\u{202e}89", "notes": [{"a": "\u{2066}b\u{2069}"}], "amount": 5}).into();
    let call = MachineCall::new("1", "pay\u{202a}", arguments.clone());

    let everyone = People::default();
    let approval = question_context(approval(&call, None, &arguments, "d", &everyone, &[]));
    let question = question_context(question(
        &json!({"question": "a\u{202d}b", "options": ["\u{2068}"]}).into(),
    ));

    assert_eq!(
        approval["arguments"],
        json!({"to": "DE\\u{202e}89", "notes": [{"a": "\\u{2066}b\\u{2069}"}], "amount": 5})
    );
    assert_eq!(approval["tool"], "pay\\u{202a}");
    assert_eq!(approval["digest"], "d");
    assert_eq!(question["question"], "a\\u{202d}b");
    assert_eq!(question["options"], json!(["\\u{2068}"]));
}

#[test]
fn no_argument_disappears_because_its_escaped_name_is_that_of_another() {
    let shown = question_context(json!({"arguments": {"n\u{202e}": 1, "n\\u{202e}": 1_000_000}}));

    let entries = [1, 1_000_000].map(|n| json!({"key": "n\\u{202e}", "value": n}));
    let found = shown["arguments"].as_array().unwrap();
    assert_eq!(found.len(), 2);
    assert!(
        entries.iter().all(|entry| found.contains(entry)),
        "{found:?}"
    );
}

#[test]
fn right_to_left_text_and_emoji_are_shown_unchanged() {
    let text = "שלום\u{200f} مرحبا 👩\u{200d}🔬";

    assert_eq!(
        question_context(json!({"question": text}))["question"],
        text
    );
}

#[test]
fn an_approval_is_of_a_value_and_not_of_the_order_of_its_keys() {
    let digest_of = |text| digest("pay", &Json::from_text(text).unwrap(), "definition");

    let approved = digest_of(r#"{"amount": 5, "to": {"iban": "X", "name": "Ann"}}"#);

    assert_eq!(
        digest_of(r#"{"to": {"name": "Ann", "iban": "X"}, "amount": 5}"#),
        approved
    );
    assert_ne!(
        digest_of(r#"{"amount": 6, "to": {"iban": "X", "name": "Ann"}}"#),
        approved
    );
}

fn pay(schema: Value) -> JsonTool {
    json_tool("pay", "Pays.", schema, |_, _| async { Ok(json!("paid")) })
}

fn over(amount: u64, by: &str) -> Approval {
    let condition = Condition::new("$.amount", "gt", Some(json!(amount)));
    Approval::when_args(condition).by(by)
}

fn question_of(tool: &dyn Tool, changes: &[Approval]) -> Json {
    let (arguments, everyone) = (Json::from(json!({"amount": 5})), People::default());
    let call = MachineCall::new("1", "pay", arguments.clone());
    let tool = Some(tool);
    question_context(approval(&call, tool, &arguments, "d", &everyone, changes))
}

#[test]
fn a_question_has_the_input_schema_and_the_rules_for_changed_arguments_if_they_are_small() {
    let schema = json!({"type": "object", "required": ["amount"]});
    let large = json!({"description": "x".repeat(MAX_SCHEMA_BYTES)});
    let rules = [over(100, "ann")];
    let many = vec![over(100, "ann"); 1_000];

    let small = question_of(&pay(schema.clone()), &rules);
    let without_schema = question_of(&pay(large), &[]);
    let fixed = question_of(&pay(schema.clone()), &many);
    let reordered = question_of(&pay(schema.clone()), &[over(100, "\u{202e}ann")]);

    assert_eq!(small["arguments_schema"], schema);
    assert_eq!(
        (&small["changeable"], &small["kind"]),
        (&json!(true), &json!("approval"))
    );
    assert_eq!(Approval::of_question(&small["change_rules"][0]), rules[0]);
    assert!(without_schema.get("arguments_schema").is_none());
    assert_eq!(without_schema["changeable"], true);
    for fixed in [fixed, reordered] {
        assert!(fixed.get("changeable").is_none() && fixed.get("change_rules").is_none());
    }
}

#[test]
fn a_question_names_the_people_of_each_rule() {
    let (arguments, mut people) = (Json::from(json!({})), People::default());
    people.restrict_to(&["ann".to_owned()]);
    people.restrict_to(&["role:board".to_owned()]);
    let call = MachineCall::new("1", "pay", arguments.clone());

    let question = question_context(approval(&call, None, &arguments, "d", &people, &[]));

    assert_eq!(question["of"], json!(["ann"]));
    assert_eq!(question["also_of"], json!([["role:board"]]));
}

fn approved_by(name: &str, roles: &[&str], more: &Value) -> Breadcrumb {
    let mut context = json!({
        "request_id": "r-1", "approved": true, "principal": {"name": name, "roles": roles},
    });
    let fields = context.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let answer = NewBreadcrumb::new(RESPONSE)
        .created_by(name)
        .context(context);
    answer.first_version(BreadcrumbId::NIL, Timestamp::from_micros(1))
}

fn may_change(
    response: &Breadcrumb,
    rules: &[Approval],
    arguments: &Value,
    asked_at: Option<Timestamp>,
) -> bool {
    let change = Change {
        arguments,
        is_same: false,
        rules,
        asked_at,
    };
    change.is_allowed(response)
}

fn decided(answer: &Breadcrumb, people: &People) -> Option<Reply> {
    decision(answer, &answer.context, "r-1", Some("d"), people)
}

#[test]
fn a_person_must_be_in_each_list() {
    let mut people = People::default();
    people.restrict_to(&["ann".to_owned(), "role:finance".to_owned()]);
    people.restrict_to(&["role:board".to_owned()]);
    let none = json!({});

    let both = approved_by("bob", &["finance", "board"], &none);
    let named = approved_by("ann", &["board"], &none);
    let one = approved_by("ann", &["finance"], &none);

    assert_eq!(decided(&both, &people), Some(Reply::Approved(None)));
    assert_eq!(decided(&named, &people), Some(Reply::Approved(None)));
    assert_eq!(decided(&one, &people), None);
}

#[test]
fn an_approval_has_the_changed_arguments_if_a_run_can_save_them() {
    let everyone = People::default();
    let with = |arguments: Value| approved_by("ann", &[], &json!({"arguments": arguments}));

    let changed = decided(&with(json!({"amount": 3})), &everyone);
    let large = decided(&with(json!("x".repeat(MAX_CHANGED_BYTES))), &everyone);
    let deep = (0..MAX_CHANGED_DEPTH + 1).fold(json!(1), |inner, _| json!([inner]));
    let deep = decided(&with(deep), &everyone);

    let arguments = Json::from(json!({"amount": 3}));
    assert_eq!(changed, Some(Reply::Approved(Some(arguments))));
    assert_eq!((large, deep), (None, None));
}

#[test]
fn a_person_needs_the_permission_that_the_changed_arguments_require() {
    let rules = [over(100, "role:finance"), over(1_000, "role:board")];
    let ann = approved_by("ann", &["finance"], &json!({}));
    let may = |amount: Value| may_change(&ann, &rules, &json!({"amount": amount}), None);

    assert!(may(json!(5)) && may(json!(500)) && !may(json!(5_000)));
    assert!(!may(json!("5")));
}

#[test]
fn arguments_that_are_not_changed_need_no_rule_for_changes() {
    let rules = [over(0, "role:board")];
    let ann = approved_by("ann", &["finance"], &json!({}));
    let arguments = json!({"amount": 5});
    let change = |is_same: bool| Change {
        arguments: &arguments,
        is_same,
        rules: &rules,
        asked_at: None,
    };

    assert!(change(true).is_allowed(&ann) && !change(false).is_allowed(&ann));
}

#[cfg(feature = "validate")]
#[test]
fn the_question_of_a_tool_has_a_schema_only_if_answers_can_be_checked_by_it() {
    let schema_of = |schema: Value| {
        let payload = json!({"question": "Which city?", "schema": schema});
        let question = question_context(question_of_tool(&payload.into()));
        question.get("schema").cloned()
    };
    let usable = json!({"type": "string"});

    assert_eq!(schema_of(usable.clone()), Some(usable));
    for schema in [
        json!({"type": 7}),
        json!(null),
        json!({"const": "DE\u{202e}89"}),
    ] {
        assert_eq!(schema_of(schema.clone()), None, "{schema}");
    }
}

#[test]
fn a_question_omits_an_answer_schema_that_it_would_show_with_escapes() {
    let with = |schema: Value| {
        let payload = json!({"question": "Which city?", "of": ["ann"], "schema": schema});
        question_context(question(&payload.into()))
    };

    let escaped = with(json!({"const": "DE\u{202e}89"}));

    assert_eq!(
        with(json!({"const": "DE89"}))["schema"],
        json!({"const": "DE89"})
    );
    assert!(escaped.get("schema").is_none(), "{escaped}");
    assert_eq!(escaped["of"], json!(["ann"]));
}

#[test]
fn the_fingerprint_of_a_question_is_of_its_contents_and_not_of_the_order_of_its_keys() {
    let of = |text: &str| fingerprint_of_question(&serde_json::from_str(text).unwrap());

    let question = of(r#"{"kind": "question", "question": "Send A?"}"#);

    assert_eq!(
        of(r#"{"question": "Send A?", "kind": "question"}"#),
        question
    );
    assert_ne!(
        of(r#"{"kind": "question", "question": "Send B?"}"#),
        question
    );
}

#[test]
fn changed_arguments_are_accepted_only_before_their_rules_expire() {
    let second = std::time::Duration::from_secs(1);
    let condition = Condition::new("$.amount", "gt", Some(json!(100)));
    let rules = [Approval::when_args(condition).expires_in(second)];
    let answer = approved_by("ann", &[], &json!({}));
    let may = |amount: u64, asked_at: Option<i64>| {
        let asked_at = asked_at.map(Timestamp::from_micros);
        may_change(&answer, &rules, &json!({"amount": amount}), asked_at)
    };

    assert!(may(500, Some(1 - 1_000_000)) && !may(500, Some(-1_000_000)));
    assert!(may(5, Some(-1_000_000)) && may(5, None) && !may(500, None));
}

#[test]
fn arguments_that_a_question_shows_with_escapes_cannot_be_changed() {
    let arguments = Json::from(json!({"to": "DE\u{202e}89"}));
    let call = MachineCall::new("1", "pay", arguments.clone());
    let tool = pay(json!({}));
    let everyone = People::default();

    let shown = approval(&call, Some(&tool), &arguments, "d", &everyone, &[]);

    assert!(question_context(shown).get("changeable").is_none());
}

#[test]
fn null_in_the_place_of_changed_arguments_changes_nothing() {
    let null = approved_by("ann", &[], &json!({"arguments": null}));

    assert_eq!(
        decided(&null, &People::default()),
        Some(Reply::Approved(None))
    );
}

#[test]
fn the_fingerprint_changes_with_the_terms_of_the_approval_rules() {
    let of = |tool: JsonTool| fingerprint("definition", Some(&tool));
    let plain = of(pay(json!({})));

    assert_eq!(of(pay(json!({})).needs_approval(Approval::always())), plain);
    let by_ann = of(pay(json!({})).needs_approval(over(1, "ann")));
    let by_bob = of(pay(json!({})).needs_approval(over(1, "bob")));
    assert!(by_ann != plain && by_ann != by_bob);
}
