//! Breadcrumbs of a run are created once, even if the server's answers are lost or wrong.

use super::server::{Fault, Match, Server};
use super::{OWNER, builder, store};
use serde_json::json;
use std::time::Duration;
use universal_executor::model::Timestamp;
use universal_executor::store::{
    Claim, Claimed, Commit, DeadLetter, FailureClass, Lease, Query, RunEnd, RunRef, StoreError,
    Write,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RcrtStore,
    RunLedger, Selector, Wake, WithLedger,
};

const CREATE: Match = Match("POST", "/breadcrumbs");

fn answer(text: &str) -> Write {
    Write::Create(NewBreadcrumb::new("answer.v1").context(json!({"text": text})))
}

fn lease() -> Lease {
    Lease::new(
        RunRef::new("echo", BreadcrumbId::NIL, 1),
        1,
        Timestamp::UNIX_EPOCH,
    )
}

fn failed() -> RunEnd {
    RunEnd::Failed(DeadLetter::new(FailureClass::Permanent, "error", 1))
}

/// Commits answers for a run that is always the same.
async fn respond(
    store: &RcrtStore,
    texts: &[&str],
    end: RunEnd,
) -> Result<Vec<BreadcrumbId>, StoreError> {
    let writes = texts.iter().map(|text| answer(text)).collect();
    let commit = Commit {
        writes,
        end: Some((lease(), end)),
    };
    store.commit(commit).await.map(|committed| committed.ids())
}

async fn texts(store: &RcrtStore) -> Vec<String> {
    let query = Query::new(Selector::schema("answer.v1")).limit(100);
    let found = store.search(&query).await.unwrap();
    found
        .iter()
        .rev()
        .map(|one| one.context.text("text").unwrap().to_owned())
        .collect()
}

/// Returns the idempotency keys of all create requests, in order.
fn keys(server: &Server) -> Vec<String> {
    let sent = server.seen("POST", "/breadcrumbs");
    let keys = sent.iter().map(|sent| &sent.headers["idempotency-key"]);
    keys.cloned().collect()
}

#[tokio::test]
async fn a_response_carries_the_key_of_its_run_in_a_header_and_as_a_tag() {
    let server = Server::start().await;
    let store = store(&server);

    let ids = respond(&store, &["a", "b"], RunEnd::Done).await.unwrap();

    let key = lease().key(store.tenant());
    assert_eq!(keys(&server), [format!("{key}:0:0"), format!("{key}:1:0")]);
    let second = store.get(ids[1]).await.unwrap();
    assert_eq!(
        second.tags,
        [format!("ux:run:{key}"), "ux:slot:1/2".to_owned()]
    );
}

#[tokio::test]
async fn a_second_attempt_finds_created_breadcrumbs_and_creates_the_rest() {
    let store = store(&Server::start().await);
    let first = respond(&store, &["a"], RunEnd::Done).await.unwrap();

    let second = respond(&store, &["a again", "b"], RunEnd::Done)
        .await
        .unwrap();

    assert_eq!((second[0], second.len()), (first[0], 2));
    assert_eq!(texts(&store).await, ["a", "b"]);
}

#[tokio::test]
async fn a_created_breadcrumb_with_a_failed_response_is_found() {
    for fault in [
        Fault::DoAndSay(500, "database error"),
        Fault::DoAndClose,
        Fault::DoAndSay(504, "gateway timeout"),
    ] {
        let server = Server::start().await;
        let store = store(&server);
        server.fail(CREATE, fault.clone());

        respond(&store, &["a"], RunEnd::Done).await.unwrap();

        assert_eq!(texts(&store).await, ["a"], "{fault:?}");
        assert_eq!(server.seen("POST", "/breadcrumbs").len(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn patience_may_be_without_end() {
    let server = Server::start().await;
    let store = builder(&server, OWNER).lookup_timeout(Duration::MAX);
    let store = store.build().unwrap();
    server.fail(CREATE, Fault::DoAndClose);

    respond(&store, &["a"], RunEnd::Done).await.unwrap();

    assert_eq!(texts(&store).await, ["a"]);
}

#[tokio::test]
async fn a_key_that_was_used_up_by_nothing_is_not_taken_for_done() {
    let server = Server::start().await;
    let store = store(&server);
    let key = lease().key(store.tenant());
    server.lock().keys.insert(format!("{key}:0:0"));
    server.fail(CREATE, Fault::Refuse(409, "duplicate request"));
    server.fail(CREATE, Fault::Burn);

    respond(&store, &["a"], RunEnd::Done).await.unwrap();

    assert_eq!(texts(&store).await, ["a"]);
    let numbers = [0, 1, 1, 2].map(|epoch| format!("{key}:0:{epoch}"));
    assert_eq!(keys(&server), numbers);
}

#[tokio::test]
async fn a_failed_create_uses_no_key_and_the_second_attempt_reuses_the_keys() {
    for fault in [Fault::Close, Fault::Refuse(503, "try again")] {
        let server = Server::start().await;
        let store = store(&server);
        server.fail(CREATE, fault.clone());

        let first = respond(&store, &["a"], RunEnd::Done).await.unwrap();
        let second = respond(&store, &["a"], RunEnd::Done).await.unwrap();

        assert_eq!(first, second, "{fault:?}");
        assert_eq!(texts(&store).await, ["a"], "{fault:?}");
        let key = lease().key(store.tenant());
        assert_eq!(keys(&server), vec![format!("{key}:0:0"); 3], "{fault:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_creates_is_unavailable_after_three_keys() {
    let server = Server::start().await;
    let store = store(&server);
    for _ in 0..3 {
        server.fail(CREATE, Fault::Burn);
        // The repeated request finds its key already used.
        server.fail(CREATE, Fault::Before(|_| {}));
    }

    let error = respond(&store, &["a"], RunEnd::Done).await.unwrap_err();

    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let key = lease().key(store.tenant());
    let numbers = [0, 0, 1, 1, 2].map(|epoch| format!("{key}:0:{epoch}"));
    assert_eq!(keys(&server), numbers);
}

#[tokio::test]
async fn used_keys_are_skipped_and_a_run_without_free_keys_is_refused() {
    let server = Server::start().await;
    let store = store(&server);
    let key = lease().key(store.tenant());
    let burn = |epoch| server.lock().keys.insert(format!("{key}:0:{epoch}"));

    (0..40).for_each(|epoch| assert!(burn(epoch)));
    respond(&store, &["a"], RunEnd::Done).await.unwrap();
    let created = texts(&store).await;
    let id = store.latest("answer.v1").await.unwrap().unwrap().id;
    store.delete(id).await.unwrap();
    (41..64).for_each(|epoch| assert!(burn(epoch)));
    let error = respond(&store, &["a"], RunEnd::Done).await.unwrap_err();

    assert_eq!(created, ["a"]);
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert_eq!(texts(&store).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_server_that_never_answers_is_unavailable_after_three_requests() {
    let server = Server::start().await;
    let store = store(&server);
    for _ in 0..3 {
        server.fail(CREATE, Fault::Close);
    }

    let error = respond(&store, &["a"], RunEnd::Done).await.unwrap_err();

    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert_eq!(keys(&server).len(), 3);
}

#[tokio::test]
async fn a_request_that_was_surely_not_taken_is_sent_again_under_its_key() {
    let server = Server::start().await;
    let store = store(&server);
    server.fail(CREATE, Fault::Refuse(429, "slow down"));

    respond(&store, &["a"], RunEnd::Done).await.unwrap();

    let keys = keys(&server);
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[tokio::test]
async fn each_intermediate_write_of_a_run_is_created_and_found_by_its_own_tag() {
    let server = Server::start().await;
    let store = store(&server);
    server.fail(CREATE, Fault::DoAndClose);

    respond(&store, &["a"], RunEnd::Continues).await.unwrap();
    respond(&store, &["a"], RunEnd::Continues).await.unwrap();
    respond(&store, &["b"], RunEnd::Done).await.unwrap();

    assert_eq!(texts(&store).await, ["a", "a", "b"]);
}

#[tokio::test]
async fn a_lost_create_response_outside_a_run_is_an_error_and_is_not_resent() {
    let server = Server::start().await;
    let store = store(&server);
    server.fail(CREATE, Fault::DoAndClose);

    let error = store.commit(vec![answer("a")].into()).await.unwrap_err();

    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert_eq!(server.seen("POST", "/breadcrumbs").len(), 1);
    assert_eq!(
        store.latest("answer.v1").await.unwrap().unwrap().tags,
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn the_dead_letter_of_a_run_is_written_once() {
    let store = store(&Server::start().await);

    let first = respond(&store, &[], failed()).await.unwrap();
    let second = respond(&store, &[], failed()).await.unwrap();

    assert_eq!((first.len(), &first), (1, &second));
    let letter = store.get(first[0]).await.unwrap();
    assert_eq!(letter.schema_name.as_deref(), Some(DeadLetter::SCHEMA));
}

#[tokio::test]
async fn a_run_cannot_be_suspended_without_a_ledger() {
    let server = Server::start().await;
    let store = store(&server);
    let wake = Wake::on(Selector::schema("a.v1"));

    let error = respond(
        &store,
        &["a"],
        RunEnd::Suspended {
            wake,
            state: json!({}).into(),
        },
    )
    .await
    .unwrap_err();

    assert!(matches!(error, StoreError::Unsupported { .. }), "{error}");
    assert!(server.seen("POST", "/").is_empty());
}

#[tokio::test]
async fn a_create_that_the_server_rejects_is_a_permanent_error_with_its_message() {
    let server = Server::start().await;
    let store = store(&server);

    for (status, code) in [
        (403, "forbidden"),
        (413, "rejected"),
        (415, "refused"),
        (422, "refused"),
    ] {
        server.fail(CREATE, Fault::Refuse(status, "emitter role required"));
        let error = respond(&store, &["a"], RunEnd::Done).await.unwrap_err();
        assert_eq!(error.code(), code, "{status}");
        if status == 403 {
            assert!(
                error.to_string().contains("emitter role required"),
                "{error}"
            );
        }
    }
    assert_eq!(texts(&store).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_run_that_fails_after_a_part_of_its_response_leaves_a_dead_letter() {
    let store = store(&Server::start().await);
    let part = respond(&store, &["a"], RunEnd::Done).await.unwrap();

    let letter = respond(&store, &[], failed()).await.unwrap();

    assert_ne!(letter, part);
    let letter = store.get(letter[0]).await.unwrap();
    assert_eq!(letter.schema_name.as_deref(), Some(DeadLetter::SCHEMA));
    assert_eq!(texts(&store).await, ["a"]);
}

#[tokio::test]
async fn beside_a_ledger_too_a_run_that_fails_after_a_part_of_its_response_leaves_a_dead_letter() {
    let server = Server::start().await;
    let (store, runs) = (store(&server), MemoryStore::default());
    let Claim::Granted(Claimed { lease, .. }) = runs.claim(&lease().run, None).await.unwrap()
    else {
        panic!("the claim of a new run must be granted")
    };
    let both = WithLedger::new(store.clone(), runs);
    let ends = |writes, end| Commit {
        writes,
        end: Some((lease.clone(), end)),
    };
    server.fail(CREATE, Fault::Before(|_| {}));
    server.fail(CREATE, Fault::Refuse(422, "no such schema"));
    let response = vec![answer("a"), answer("b")];
    both.commit(ends(response, RunEnd::Done)).await.unwrap_err();

    let written = both.commit(ends(Vec::new(), failed())).await.unwrap().ids();

    let letter = store.latest(DeadLetter::SCHEMA).await.unwrap().unwrap();
    assert_eq!(written, [letter.id]);
    assert_eq!(texts(&store).await, ["a"]);
}
