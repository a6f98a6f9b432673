//! Updates and deletions with false or lost answers.

use super::server::{Fault, Match, Server};
use super::{THEIRS, builder, store};
use serde_json::json;
use std::sync::Arc;
use universal_executor::store::StoreError;
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch, RcrtStore,
};

async fn note(store: &RcrtStore) -> Arc<Breadcrumb> {
    store
        .create(NewBreadcrumb::new("note.v1").title("a"))
        .await
        .unwrap()
}

fn patch() -> Patch {
    Patch::new().title("b").context(json!({"n": 2}))
}

/// Returns the requests with this method for a breadcrumb.
fn on(method: &'static str, note: &Breadcrumb) -> Match {
    Match(method, Box::leak(note.id.to_string().into_boxed_str()))
}

#[tokio::test]
async fn an_update_with_a_failed_response_is_applied_once() {
    let server = Server::start().await;
    let store = store(&server);
    for fault in [
        Fault::DoAndSay(500, "database error"),
        Fault::DoAndClose,
        Fault::Refuse(500, "database error"),
        Fault::Close,
    ] {
        let before = note(&store).await;
        server.fail(on("PATCH", &before), fault.clone());

        let after = store.update(before.id, 1, patch()).await.unwrap();

        assert_eq!((after.version, &*after.title), (2, "b"), "{fault:?}");
        assert_eq!(store.get(before.id).await.unwrap(), after, "{fault:?}");
    }
}

#[tokio::test]
async fn an_update_overtaken_by_another_client_is_a_conflict() {
    let server = Server::start().await;
    let store = store(&server);
    let before = note(&store).await;
    server.fail(on("PATCH", &before), Fault::Overtake);

    let error = store.update(before.id, 1, patch()).await.unwrap_err();

    assert!(
        matches!(
            error,
            StoreError::Conflict {
                expected: 1,
                found: 2,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(store.get(before.id).await.unwrap().title, "overtaken");
}

#[tokio::test]
async fn another_clients_change_after_a_lost_request_is_a_conflict() {
    let server = Server::start().await;
    let store = store(&server);
    let before = note(&store).await;
    server.fail(on("PATCH", &before), Fault::Close);
    server.fail(on("PATCH", &before), Fault::Overtake);

    let error = store.update(before.id, 1, patch()).await.unwrap_err();

    assert!(
        matches!(error, StoreError::Conflict { found: 2, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn every_change_names_the_version_it_was_made_from() {
    let server = Server::start().await;
    let store = store(&server);
    let before = note(&store).await;

    store.update(before.id, 1, patch()).await.unwrap();

    let sent = server.seen("PATCH", "/").remove(0);
    assert_eq!(sent.header("if-match"), Some("\"1\""));
}

#[tokio::test]
async fn a_patch_that_clears_a_field_is_unsupported() {
    let server = Server::start().await;
    let store = store(&server);
    let before = note(&store).await;

    for patch in [
        Patch::new().context(json!(null)),
        Patch::new().llm_hints(json!(null)),
    ] {
        let error = store.update(before.id, 1, patch).await.unwrap_err();
        assert!(matches!(error, StoreError::Unsupported { .. }), "{error}");
    }
    assert!(server.seen("PATCH", "/").is_empty());
}

#[tokio::test]
async fn a_foreign_breadcrumb_cannot_be_updated_or_deleted() {
    let server = Server::start().await;
    let (ours, theirs) = (store(&server), builder(&server, THEIRS).build().unwrap());
    let foreign = note(&theirs).await;

    for refused in [
        ours.update(foreign.id, 1, patch()).await.map(drop),
        ours.delete(foreign.id).await,
    ] {
        assert!(
            matches!(refused, Err(StoreError::NotFound { .. })),
            "{refused:?}"
        );
    }

    assert!(server.seen("PATCH", "/").is_empty() && server.seen("DELETE", "/").is_empty());
}

#[tokio::test]
async fn a_deletion_whose_answer_is_lost_is_done() {
    let server = Server::start().await;
    let store = store(&server);
    for fault in [
        Fault::DoAndClose,
        Fault::DoAndSay(500, "database error"),
        Fault::Close,
    ] {
        let before = note(&store).await;
        server.fail(on("DELETE", &before), fault.clone());

        store.delete(before.id).await.unwrap();

        assert!(
            matches!(store.get(before.id).await, Err(StoreError::NotFound { .. })),
            "{fault:?}"
        );
    }
    let before = note(&store).await;
    server.fail(on("DELETE", &before), Fault::Refuse(404, "not found"));
    assert!(matches!(
        store.delete(before.id).await,
        Err(StoreError::NotFound { .. })
    ));
}

#[tokio::test]
async fn a_server_that_hangs_is_unavailable_after_the_time_a_request_may_take() {
    let server = Server::start().await;
    let slow = builder(&server, super::OWNER)
        .timeout(std::time::Duration::from_millis(50))
        .build()
        .unwrap();
    let before = note(&store(&server)).await;
    for _ in 0..3 {
        server.fail(on("PATCH", &before), Fault::Hang);
    }

    let error = slow.update(before.id, 1, patch()).await.unwrap_err();

    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}
