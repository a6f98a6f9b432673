//! The mock store: the answers of `store_with`, and the use of a mock without expectations.

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::store::mock::{MockBreadcrumbStore, store_with};
use universal_executor::store::{Query, StoreError, VectorQuery};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch, Selector,
};

fn page(url: &str) -> Breadcrumb {
    NewBreadcrumb::new("page.v1")
        .context(json!({"url": url}))
        .into()
}

#[tokio::test]
async fn a_store_built_from_breadcrumbs_preserves_ids_versions_and_times() {
    let old = page("a");
    let new = old.patched(
        Patch::new().title("new"),
        old.updated_at + Duration::from_secs(60),
    );

    let store = store_with([new.clone()]);

    assert_eq!(*store.get(old.id).await.unwrap(), new);
    assert_eq!(
        store
            .search(&Query::new(Selector::schema("page.v1")))
            .await
            .unwrap(),
        [Arc::new(new)]
    );
}

#[tokio::test]
async fn new_breadcrumbs_can_be_given_as_they_are() {
    let store = store_with([NewBreadcrumb::new("x.v1").context(json!({"n": 1}))]);

    let found = store.latest("x.v1").await.unwrap().unwrap();

    assert_eq!((found.version, &found.context["n"]), (1, &json!(1)));
}

#[tokio::test]
async fn a_commit_is_seen_by_later_reads() {
    let before = page("a");
    let store = store_with([before.clone()]);

    let after = store
        .update(before.id, 1, Patch::new().context(json!({"url": "b"})))
        .await
        .unwrap();

    assert_eq!(store.get(before.id).await.unwrap(), after);
    assert!(after.order_key() > before.order_key());
    let stale = store.update(before.id, 1, Patch::new()).await;
    assert!(
        matches!(stale, Err(StoreError::Conflict { found: 2, .. })),
        "{stale:?}"
    );
}

#[tokio::test]
async fn it_has_a_tenant_and_neither_ledger_nor_vector_search() {
    let store = store_with([page("a")]);

    let nearest = store
        .vector_search(&VectorQuery::new(Query::new(Selector::any()), "a"))
        .await;

    assert_eq!(store.tenant(), "default");
    assert!(store.capabilities().reads_own_writes && !store.capabilities().vector_search);
    assert!(store.ledger().is_none());
    assert!(
        matches!(nearest, Err(StoreError::Unsupported { .. })),
        "{nearest:?}"
    );
}

#[tokio::test]
async fn a_failing_store_fails_behind_a_pointer_too() {
    let id = page("a").id;
    let mut mock = MockBreadcrumbStore::new();
    mock.expect_get().times(1).returning(|_| {
        Err(StoreError::Unavailable {
            store: "a mock",
            retry_after: Duration::from_secs(1),
            source: "connection refused".into(),
        })
    });
    let store: Arc<dyn BreadcrumbStore> = Arc::new(mock);

    let answer = store.get(id).await;

    assert!(
        matches!(answer, Err(StoreError::Unavailable { .. })),
        "{answer:?}"
    );
}
