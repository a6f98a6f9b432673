//! Errors of client requests and chat sessions.

use crate::support::Shim;
use serde_json::json;
use std::time::Duration;
use universal_executor::client::{Client, ClientError};
use universal_executor::{BreadcrumbId, MemoryStore, NewBreadcrumb};

fn order(id: u64) -> NewBreadcrumb {
    NewBreadcrumb::new("order.v1").context(json!({"id": id}))
}

#[tokio::test]
async fn a_store_without_a_ledger_is_refused_with_the_wrapper_that_adds_one() {
    let store = MemoryStore::default();
    let client = Client::on_source(&Shim::without_ledger(&store), store.events());

    let error = client.workers().await.unwrap_err();

    let expected = "the store of the client has no run ledger; add one with WithLedger";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_string_that_is_no_request_id_is_quoted_with_the_method_that_returns_one() {
    let error = Client::new(&MemoryStore::default())
        .attach("order-7")
        .unwrap_err();

    let expected =
        "\"order-7\" is not the ID of a request; pass the string that RequestHandle::id returned";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_reused_key_is_named_with_the_earlier_breadcrumb() {
    let client = Client::new(&MemoryStore::default());
    let request = |id| client.request("clerk", order(id)).key("order-7").send();
    let earlier = request(1).await.unwrap().run().trigger_id;

    let error = request(2).await.unwrap_err();

    let expected = format!(
        "key \"order-7\" belongs to an earlier request to executor \"clerk\" with different content, breadcrumb {earlier}; use another key"
    );
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_request_without_a_worker_names_the_executor_and_what_to_do() {
    let client = Client::new(&MemoryStore::default());
    let request = client.request("clerk", order(1)).require_listener();

    let error = request.send().await.unwrap_err();

    let expected = "no live worker would answer a request to executor \"clerk\": no live worker has the executor; start a worker, or send without require_listener";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_run_without_a_trigger_cannot_be_cancelled_and_is_named() {
    let client = Client::new(&MemoryStore::default());
    let id = BreadcrumbId::default();
    let request = client.attach(&format!("{id}:1:clerk")).unwrap();

    let error = request.cancel().await.unwrap_err();

    let expected = format!(
        "cannot cancel run of \"clerk\" on {id} v1: the ledger does not have the run, and its trigger was deleted, has expired, or never existed, so no worker will execute the run"
    );
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_session_id_has_a_length_and_a_turn_belongs_to_its_session() {
    let client = Client::new(&MemoryStore::default());

    let empty = client.session("helper", "").unwrap_err();
    let session = client.session("helper", "s-1").unwrap();
    let foreign = session.resume("s-2").await.map(drop).unwrap_err();

    let expected = "session ID \"\" has 0 bytes; use 1 to 200 bytes";
    assert_eq!(empty.to_string(), expected);
    let expected = "session \"s-1\" has no turn with the cursor or request ID \"s-2\": the turn belongs to another session, or was deleted; pass an Envelope::cursor or a request ID of this session";
    assert_eq!(foreign.to_string(), expected);
}

#[test]
fn a_store_without_writers_is_refused_with_the_stores_that_have_them() {
    let error = ClientError::NoSessions;

    let expected = "the store of the client does not record writers, which chat sessions need; use a memory, SQLite or PostgreSQL store";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_failed_store_operation_is_named_with_its_breadcrumb() {
    let client = Client::new(&MemoryStore::default());
    let id = BreadcrumbId::default();

    let error = client.explain(id).await.map(drop).unwrap_err();

    assert_eq!(
        error.to_string(),
        format!("cannot read breadcrumb {id}; see the cause")
    );
    let cause = format!("breadcrumb {id} does not exist");
    assert_eq!(super::cause_of(&error), cause);
}

#[tokio::test]
async fn a_wait_that_times_out_names_the_run_and_its_state() {
    let client = Client::new(&MemoryStore::default());
    let request = client.request("clerk", order(1)).send().await.unwrap();

    let error = request.wait(Duration::ZERO).await.map(drop).unwrap_err();

    let run = request.run();
    let expected = format!(
        "{run} has not ended within 0ns; the run was not enqueued yet: no worker with the executor has received the event; wait again, or cancel the request"
    );
    assert_eq!(error.to_string(), expected);
}
