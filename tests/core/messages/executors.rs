//! Errors of subscriptions and executors.

use crate::support::Probe;
use serde_json::json;
use universal_executor::executor::check;
use universal_executor::model::DefinitionOptions;
use universal_executor::{
    BreadcrumbStoreExt as _, MemoryStore, NewBreadcrumb, Profile, Response, Subscriptions, executor,
};

#[test]
fn an_executor_without_a_trigger_is_named_with_the_call_to_add() {
    let clerk = executor("clerk").execute(|_| async { Ok(Response::none()) });

    let error = clerk.bind(&MemoryStore::default()).unwrap_err();

    let expected = "executor \"clerk\" has no trigger, so it would never run; add .on(Subscription::trigger(..))";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_executor_that_may_run_nothing_is_named_with_the_least_limit() {
    let profile = Profile::default().max_inflight(0);
    let clerk = Probe::on("order.v1", "clerk", &MemoryStore::default()).profile(profile);

    let error = check(&clerk).unwrap_err();

    let expected = "max_inflight of executor \"clerk\" is 0, so no run could start; set max_inflight to at least 1";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_empty_executor_id_is_refused_with_the_range_of_its_length() {
    let nameless = Probe::on("order.v1", "", &MemoryStore::default());

    let error = check(&nameless).unwrap_err();

    let expected = "the executor ID is empty; set an ID of 1 to 256 bytes";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_unknown_field_names_the_known_field_that_is_meant() {
    let strict = DefinitionOptions::default().strict();
    let definition = json!([{"schema_name": "order.v1", "role": "trigger", "all_tag": ["new"]}]);

    let error = Subscriptions::from_json_with(&definition, &strict).unwrap_err();

    let expected = "subscription 0: all_tag: unknown field; did you mean \"all_tags\"?";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_trigger_that_matches_everything_is_refused_with_the_way_to_say_so() {
    let error = Subscriptions::from_json(&json!([{"role": "trigger"}])).unwrap_err();

    let expected = "subscription 0: schema_name: a trigger without a selector would match every breadcrumb; to match every breadcrumb, write \"schema_name\": \"*\"";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_tag_that_is_too_long_is_counted_and_a_shorter_one_requested() {
    let note = NewBreadcrumb::new("note.v1").tag("x".repeat(257));

    let error = MemoryStore::default().create(note).await.unwrap_err();

    let expected = "the breadcrumb in write 0 of the commit has a tag of 257 bytes where at most 256 are allowed; use a shorter tag";
    assert_eq!(error.to_string(), expected);
}
