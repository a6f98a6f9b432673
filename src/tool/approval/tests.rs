use super::*;
use crate::model::Json;
use serde_json::json;

#[derive(Deserialize)]
struct Refund {
    amount: u64,
}

fn large() -> Approval {
    Approval::when(|call: &Refund| call.amount > 100)
}

fn over(amount: u64) -> Approval {
    Approval::when_args(Condition::new("$.amount", "gt", Some(json!(amount))))
}

fn list(people: &[&str]) -> Vec<String> {
    people.iter().map(|person| (*person).to_owned()).collect()
}

fn permits(people: &People, person: &[&str]) -> bool {
    let is_in = |list: &[String]| list.iter().any(|entry| person.contains(&&**entry));
    people.list_without(is_in).is_none()
}

#[test]
fn a_rule_is_for_the_calls_for_which_its_condition_holds() {
    for rule in [large(), over(100)] {
        assert!(rule.applies_to(&json!({"amount": 101})), "{rule:?}");
        assert!(!rule.applies_to(&json!({"amount": 100})), "{rule:?}");
    }
    assert!(Approval::always().applies_to(&json!({})));
}

#[test]
fn arguments_that_cannot_be_read_need_the_approval() {
    for arguments in [
        json!({}),
        json!({"amount": "5"}),
        json!({"amount": null}),
        json!([5]),
        json!(null),
    ] {
        for rule in [large(), over(100)] {
            assert!(rule.applies_to(&arguments), "{rule:?} {arguments}");
        }
    }
    let panics = Approval::when(|_: &Value| panic!("a bug"));
    assert!(panics.applies_to(&json!({"amount": 1})));
}

#[test]
fn all_conditions_of_a_rule_must_hold() {
    let abroad = Condition::new("$.country", "ne", Some(json!("NO")));
    let rule = over(100).and_args(abroad);

    assert!(rule.applies_to(&json!({"amount": 101, "country": "DE"})));
    assert!(!rule.applies_to(&json!({"amount": 101, "country": "NO"})));
    assert!(!rule.applies_to(&json!({"amount": 1, "country": "DE"})));
}

#[test]
fn a_person_must_be_permitted_by_each_rule_for_the_call_and_the_shortest_time_counts() {
    let hour = Duration::from_secs(3_600);
    let rules = [
        over(10).by(role("finance")).by("ann").expires_in(hour * 2),
        over(100).by(role("board")).expires_in(hour),
        over(1_000).by("nobody"),
        Approval::always(),
    ];
    let needed = |amount: u64, by: &[&str]| {
        let arguments = json!({"amount": amount});
        NeededApproval::by_rules(&rules, &list(by), &arguments).unwrap()
    };

    let small = needed(5, &["bob"]);
    assert!(permits(&small.people, &["bob"]) && !permits(&small.people, &["ann"]));
    assert_eq!(small.expires_in, None);
    let some = needed(50, &[]);
    assert!(permits(&some.people, &["ann"]) && permits(&some.people, &["role:finance"]));
    assert_eq!(some.expires_in, Some(hour * 2));
    let large = needed(500, &[]);
    assert!(permits(&large.people, &["ann", "role:board"]));
    assert!(!permits(&large.people, &["ann"]) && !permits(&large.people, &["role:board"]));
    assert_eq!(large.expires_in, Some(hour));
    let none = NeededApproval::by_rules(&rules[1..3], &list(&["bob"]), &json!({"amount": 5}));
    assert_eq!(none, None);
}

#[test]
fn a_list_that_another_list_implies_is_omitted() {
    let mut people = People::default();
    assert!(permits(&people, &["anyone"]));

    people.restrict_to(&list(&["ann", "bob"]));
    people.restrict_to(&[]);
    people.restrict_to(&list(&["ann", "bob", "eve"]));
    people.restrict_to(&list(&["ann"]));

    assert_eq!(people.lists(), [list(&["ann"])]);
}

#[test]
fn approvers_are_saved_as_a_single_list_if_possible_and_read_back() {
    let one = People::from(&*list(&["ann"]));
    let mut both = one.clone();
    both.restrict_to(&list(&["role:board"]));
    for (people, saved) in [
        (People::default(), json!([])),
        (one, json!(["ann"])),
        (both, json!([["ann"], ["role:board"]])),
    ] {
        assert_eq!(json!(people), saved);
        assert_eq!(Json::from(saved).parse::<People>().unwrap(), people);
    }
}

#[test]
fn only_a_rule_without_code_has_definition_fields() {
    let rule = over(100).by("ann").expires_in(Duration::from_millis(1_500));
    let fields = json!({
        "when": [{"path": "$.amount", "op": "gt", "value": 100}], "by": ["ann"], "expires_in_seconds": 2,
    });

    assert_eq!(rule.clone().into_fields(), fields.as_object().cloned());
    assert_eq!(
        Approval::always().into_fields().unwrap(),
        serde_json::Map::new()
    );
    assert_eq!(large().into_fields(), None);
    assert_eq!(
        Approval::of_question(&fields),
        rule.for_changes(&[]).unwrap()
    );
}

#[test]
fn for_changed_arguments_a_condition_in_code_always_holds() {
    let rule = large().by("ann").for_changes(&[]).unwrap();
    let data = over(100).for_changes(&list(&["bob"])).unwrap();

    assert!(rule.applies_to(&json!({"amount": 1})));
    assert!(!data.applies_to(&json!({"amount": 1})) && data.applies_to(&json!({"amount": 101})));
    assert_eq!(over(100).for_changes(&[]), None);
    let soon = over(100).expires_in(Duration::from_secs(60));
    assert_eq!(soon.for_changes(&[]), Some(soon));
}

#[test]
fn a_rule_with_code_equals_only_its_clone() {
    let rule = large().by("ann");

    assert_eq!(rule, rule.clone());
    assert_ne!(rule, large().by("ann"));
    assert_ne!(over(1), over(2));
    assert_eq!(over(1).by("ann"), over(1).by("ann"));
    assert!(Approval::always().is_plain() && !over(1).is_plain() && !large().is_plain());
}
