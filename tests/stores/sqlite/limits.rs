//! Limits of the stored data.

use crate::request_keys;
use crate::sqlite::{Folder, quick};
use std::time::Duration;
use universal_executor::store::{
    Claim, Claimed, Commit, RunEnd, RunFilter, RunLedger, RunRef, RunState, SqliteLimits,
    SqliteStore, StoreError, Write,
};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

async fn limited(folder: &Folder, change: impl FnOnce(&mut SqliteLimits)) -> SqliteStore {
    let mut limits = SqliteLimits::default();
    change(&mut limits);
    quick(&folder.file()).limits(limits).open().await.unwrap()
}

#[tokio::test]
async fn a_full_store_refuses_breadcrumbs_until_others_expire() {
    let folder = Folder::new();
    let store = limited(&folder, |limits| limits.breadcrumbs = 2).await;
    let first = store.create(note()).await.unwrap();
    store
        .create(note().ttl(first.created_at + Duration::from_secs(60)))
        .await
        .unwrap();

    let full = store.create(note()).await.unwrap_err();

    assert!(
        matches!(
            full,
            StoreError::Full {
                what: "breadcrumbs",
                limit: 2,
                ..
            }
        ),
        "{full:?}"
    );
    store.update(first.id, 1, Patch::new()).await.unwrap();
    let delete = Write::Delete {
        id: first.id,
        by: None,
    };
    store
        .commit(vec![delete, Write::Create(note())].into())
        .await
        .unwrap();
    store.advance_clock(Duration::from_secs(60));
    store.create(note()).await.unwrap();
    assert_eq!(store.stats().await.unwrap().breadcrumbs, 2);
}

/// Creates a store with a thousand expired breadcrumbs and one that never expires.
async fn expired(folder: &Folder) -> SqliteStore {
    let store = limited(folder, |_| {}).await;
    let stays = store.create(note()).await.unwrap();
    let end = stays.created_at + Duration::from_secs(60);
    let writes: Vec<_> = (0..1_000).map(|_| Write::Create(note().ttl(end))).collect();
    store.commit(writes.into()).await.unwrap();
    store.advance_clock(Duration::from_secs(120));
    store
}

/// Waits until the writer has finished all earlier jobs. Returns the number of breadcrumbs afterwards.
async fn breadcrumbs_after_another_write(store: &SqliteStore) -> u64 {
    store.enqueue(Vec::new()).await.unwrap();
    store.stats().await.unwrap().breadcrumbs
}

#[tokio::test]
async fn much_that_expired_is_removed_once_a_search_meets_it() {
    let folder = Folder::new();
    let store = expired(&folder).await;

    assert!(store.latest("note.v1").await.unwrap().is_some());

    let mut kept = store.stats().await.unwrap().breadcrumbs;
    for _ in 0..4 {
        kept = breadcrumbs_after_another_write(&store).await;
    }
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn much_that_expired_is_removed_after_a_commit() {
    let folder = Folder::new();
    let store = expired(&folder).await;

    store.create(NewBreadcrumb::new("other.v1")).await.unwrap();

    let mut kept = store.stats().await.unwrap().breadcrumbs;
    for _ in 0..4 {
        kept = breadcrumbs_after_another_write(&store).await;
    }
    assert_eq!(kept, 2);
}

#[tokio::test]
async fn a_store_closed_during_a_cleanup_resumes_the_cleanup_when_it_is_reopened() {
    let folder = Folder::new();
    let store = expired(&folder).await;
    assert!(store.latest("note.v1").await.unwrap().is_some());
    store.close().await;

    let store = limited(&folder, |_| {}).await;
    store.advance_clock(Duration::from_secs(120));
    assert!(store.latest("note.v1").await.unwrap().is_some());
    let mut kept = store.stats().await.unwrap().breadcrumbs;
    for _ in 0..4 {
        kept = breadcrumbs_after_another_write(&store).await;
    }

    assert_eq!(kept, 1);
}

#[tokio::test]
async fn keys_of_requests_have_the_limit_of_runs() {
    let folder = Folder::new();
    let limits = |limits: &mut SqliteLimits| (limits.open_runs, limits.finished_runs) = (1, 1);
    let store = limited(&folder, limits).await;
    request_keys::keys_have_the_limit_of_runs(&store, async |time| store.advance_clock(time)).await;
}

#[tokio::test]
async fn old_keys_of_requests_without_a_run_make_room_in_a_full_store() {
    let folder = Folder::new();
    let limits = |limits: &mut SqliteLimits| (limits.open_runs, limits.finished_runs) = (80, 20);
    let store = limited(&folder, limits).await;
    let pass = async |time| store.advance_clock(time);
    request_keys::old_keys_without_a_run_make_room_in_a_full_store(&store, pass).await;
}

#[tokio::test]
async fn a_batch_beyond_the_open_run_limit_is_refused_as_a_whole() {
    let folder = Folder::new();
    let store = limited(&folder, |limits| limits.open_runs = 2).await;
    let trigger = store.create(note()).await.unwrap();
    let run = |executor: &str| RunRef::new(executor, trigger.id, 1);

    let three = store
        .enqueue(["a", "b", "c"].map(|id| run(id).into()).to_vec())
        .await;

    assert!(
        matches!(
            three,
            Err(StoreError::Full {
                what: "open runs",
                limit: 2,
                ..
            })
        ),
        "{three:?}"
    );
    assert_eq!(store.runs(&RunFilter::all()).await.unwrap().len(), 0);
    store
        .enqueue(["a", "a", "b"].map(|id| run(id).into()).to_vec())
        .await
        .unwrap();
    let third = store.claim(&run("c"), None).await;
    assert!(matches!(third, Err(StoreError::Full { .. })), "{third:?}");
}

#[tokio::test]
async fn only_the_newest_runs_tombstones_and_events_are_retained() {
    let folder = Folder::new();
    let store = limited(&folder, |limits| {
        (limits.finished_runs, limits.tombstones, limits.events) = (3, 2, 5);
    })
    .await;
    for n in 0..10 {
        let trigger = store.create(note()).await.unwrap();
        let run = RunRef::new(format!("executor {n}"), trigger.id, 1);
        let Claim::Granted(Claimed { lease, .. }) = store.claim(&run, None).await.unwrap() else {
            panic!("granted")
        };
        let writes = vec![Write::Delete {
            id: trigger.id,
            by: None,
        }];
        store
            .commit(Commit {
                writes,
                end: Some((lease, RunEnd::Done)),
            })
            .await
            .unwrap();
    }

    let kept = store.runs(&RunFilter::all()).await.unwrap();
    let executors: Vec<&str> = kept.iter().map(|row| &*row.run.executor).collect();
    assert_eq!(executors, ["executor 7", "executor 8", "executor 9"]);
    let stats = store.stats().await.unwrap();
    assert_eq!(
        (
            stats.breadcrumbs,
            stats.tombstones,
            stats.events,
            stats.position
        ),
        (0, 2, 5, 20)
    );
    assert_eq!(
        stats.runs.into_iter().collect::<Vec<_>>(),
        [(RunState::Done, 3)]
    );
    assert!(stats.file_bytes + stats.wal_bytes > 0);
}

#[tokio::test]
async fn limits_that_were_lowered_are_reached_in_batches() {
    let folder = Folder::new();
    let store = limited(&folder, |_| ()).await;
    store
        .commit(vec![Write::Create(note()); 1_000].into())
        .await
        .unwrap();
    store
        .commit(vec![Write::Create(note()); 1_000].into())
        .await
        .unwrap();
    store.close().await;

    let store = limited(&folder, |limits| limits.events = 10).await;
    store.create(note()).await.unwrap();
    assert_eq!(store.stats().await.unwrap().events, 2_001 - 1_024);
    store.create(note()).await.unwrap();

    assert_eq!(store.stats().await.unwrap().events, 10);
}

#[tokio::test]
async fn a_store_with_a_tombstone_limit_of_zero_reports_no_tombstones() {
    let folder = Folder::new();
    let store = limited(&folder, |limits| limits.tombstones = 0).await;
    let gone = store.create(note()).await.unwrap();

    store.delete(gone.id).await.unwrap();

    assert!(!store.capabilities().tombstones);
    let error = store.get(gone.id).await.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::NotFound {
                tombstone: None,
                ..
            }
        ),
        "{error:?}"
    );
}
