//! Regression tests for steps whose results once differed between the two stores.

use crate::sqlite::{Folder, quick};
use std::sync::Arc;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, ExecutorLimits, Lease, MemoryLimits, RunEnd, RunFilter,
    RunLedger, RunRef, RunState, SqliteLimits, StoreError, Write,
};
use universal_executor::{BreadcrumbId, BreadcrumbStore, Event, MemoryStore, NewBreadcrumb, Patch};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

fn run(executor: &str, trigger: BreadcrumbId) -> RunRef {
    RunRef::new(executor, trigger, 1)
}

/// Creates both stores with a limit for finished runs.
async fn stores(finished_runs: usize) -> (Folder, [Box<dyn Store>; 2]) {
    let (mut memory, mut file) = (MemoryLimits::default(), SqliteLimits::default());
    (memory.finished_runs, file.finished_runs) = (finished_runs, finished_runs);
    let folder = Folder::new();
    let file = quick(&folder.file()).limits(file).open().await.unwrap();
    (
        folder,
        [Box::new(MemoryStore::with_limits(memory)), Box::new(file)],
    )
}

trait Store: BreadcrumbStore + RunLedger {}

impl<S: BreadcrumbStore + RunLedger> Store for S {}

async fn claimed(store: &dyn Store, run: &RunRef) -> Lease {
    match store.claim(run, None).await.unwrap() {
        Claim::Granted(Claimed { lease, .. }) => lease,
        other => panic!("expected a granted claim, got {other:?}"),
    }
}

async fn end(store: &dyn Store, run: &RunRef, end: RunEnd) {
    let lease = claimed(store, run).await;
    let end = Some((lease, end));
    store
        .commit(Commit {
            writes: Vec::new(),
            end,
        })
        .await
        .unwrap();
}

async fn trigger(store: &dyn Store) -> Arc<universal_executor::Breadcrumb> {
    let committed = store
        .commit(vec![Write::Create(note())].into())
        .await
        .unwrap();
    Arc::clone(&committed.written[0])
}

#[tokio::test]
async fn a_run_row_stores_no_context_of_its_event() {
    let (_folder, stores) = stores(10).await;
    for store in &stores {
        let trigger = trigger(&**store).await;
        let mut run = run("agent", trigger.id);
        run.event = Some(Arc::new(Event::created(&trigger)));

        let lease = claimed(&**store, &run).await;

        let kept = store.runs(&RunFilter::all()).await.unwrap()[0]
            .run
            .event
            .clone();
        for event in [kept, lease.run.event] {
            assert_eq!(event.unwrap().context, None, "{store:?}");
        }
    }
}

#[tokio::test]
async fn a_breadcrumb_expired_by_a_commit_is_missing_for_the_next_write_of_the_commit() {
    let (_folder, stores) = stores(10).await;
    for store in &stores {
        let trigger = trigger(&**store).await;
        let update = |version, patch| Write::Update {
            id: trigger.id,
            version,
            patch,
        };
        let past = Patch::new().ttl(trigger.created_at);

        let refused = store
            .commit(vec![update(1, past), update(2, Patch::new())].into())
            .await;

        assert!(
            matches!(refused, Err(StoreError::NotFound { .. })),
            "{store:?}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn an_executor_that_is_named_twice_has_the_places_of_both_names() {
    let (_folder, stores) = stores(10).await;
    for store in &stores {
        let runs = [
            trigger(&**store).await.id,
            trigger(&**store).await.id,
            trigger(&**store).await.id,
        ];
        store
            .enqueue(runs.map(|id| run("agent", id).into()).to_vec())
            .await
            .unwrap();

        let claimed = store
            .claim_next(
                9,
                &[1, 1].map(|free| ExecutorLimits::new("agent", free)),
                ClaimId::unique(),
            )
            .await;

        assert_eq!(claimed.unwrap().len(), 2, "{store:?}");
    }
}

#[tokio::test]
async fn the_claimed_run_is_not_forgotten_when_a_superseded_run_finishes() {
    let (_folder, stores) = stores(1).await;
    for store in &stores {
        let trigger = trigger(&**store).await;
        let (done, older) = (run("agent", trigger.id), run("other", trigger.id));
        end(&**store, &done, RunEnd::Done).await;
        let older = claimed(&**store, &older).await;

        let claim = store.claim(&done, Some(older)).await.unwrap();

        assert!(
            matches!(
                claim,
                Claim::Done {
                    state: RunState::Done,
                    ..
                }
            ),
            "{store:?}: {claim:?}"
        );
        assert_eq!(
            store.runs(&RunFilter::all()).await.unwrap().len(),
            1,
            "{store:?}"
        );
    }
}

#[tokio::test]
async fn a_redone_run_occupies_a_slot_among_the_finished_runs() {
    let (_folder, stores) = stores(3).await;
    for store in &stores {
        let trigger = trigger(&**store).await;
        let run = |executor| run(executor, trigger.id);
        let failed = universal_executor::store::DeadLetter::new(
            universal_executor::store::FailureClass::Permanent,
            "error",
            1,
        );
        end(&**store, &run("first"), RunEnd::Done).await;
        end(&**store, &run("again"), RunEnd::Failed(failed)).await;
        store.redo(&run("again")).await.unwrap();
        for executor in ["again", "last"] {
            end(&**store, &run(executor), RunEnd::Done).await;
        }

        let kept = store.runs(&RunFilter::all()).await.unwrap();

        let kept: Vec<&str> = kept.iter().map(|row| &*row.run.executor).collect();
        assert_eq!(kept, ["first", "again", "last"], "{store:?}");
    }
}

#[tokio::test]
async fn a_commit_that_fails_removes_nothing_that_expired() {
    let (_folder, stores) = stores(10).await;
    for store in &stores {
        let trigger = trigger(&**store).await;
        let lease = claimed(&**store, &run("agent", trigger.id)).await;
        let ended = note().ttl(trigger.created_at);
        let end = Some((lease, RunEnd::Done));
        let ended = store
            .commit(Commit {
                writes: vec![Write::Create(ended)],
                end,
            })
            .await
            .unwrap();
        let unknown = Write::Delete {
            id: BreadcrumbId::NIL,
            by: None,
        };

        store.commit(vec![unknown].into()).await.unwrap_err();

        let claim = store
            .claim(&run("agent", ended.ids()[0]), None)
            .await
            .unwrap();
        assert!(matches!(claim, Claim::Own), "{store:?}: {claim:?}");
    }
}

#[tokio::test]
async fn a_reopened_run_counts_towards_the_open_run_limit() {
    let (mut memory, mut file) = (MemoryLimits::default(), SqliteLimits::default());
    (memory.open_runs, file.open_runs) = (1, 1);
    let folder = Folder::new();
    let file = quick(&folder.file()).limits(file).open().await.unwrap();
    let stores: [Box<dyn Store>; 2] = [Box::new(MemoryStore::with_limits(memory)), Box::new(file)];
    for store in &stores {
        let trigger = trigger(&**store).await;
        // An event announces the second version before it exists.
        let early = RunRef::new("agent", trigger.id, 2);
        end(&**store, &early, RunEnd::Skipped("gone")).await;
        store
            .enqueue(vec![run("other", trigger.id).into()])
            .await
            .unwrap();
        let update = Write::Update {
            id: trigger.id,
            version: 1,
            patch: Patch::new(),
        };
        store.commit(vec![update].into()).await.unwrap();

        let full = store.enqueue(vec![early.clone().into()]).await;

        assert!(
            matches!(full, Err(StoreError::Full { .. })),
            "{store:?}: {full:?}"
        );
        store
            .enqueue(vec![run("other", trigger.id).into()])
            .await
            .unwrap();
    }
}
