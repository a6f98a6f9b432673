//! Claims whose caller does not wait for the result.

use crate::sqlite::{Folder, quick};
use rusqlite::Connection;
use universal_executor::store::{ClaimId, ExecutorLimits, RunFilter, RunLedger, RunRef, RunState};
use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_of_a_claim_whose_caller_went_away_is_listed_for_the_claim() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let limits = [ExecutorLimits::new("agent", 1)];
    let note = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    for version in 1..=300 {
        let run = RunRef::new("agent", note.id, version);
        store.enqueue(vec![run.into()]).await.unwrap();
        let id = ClaimId::unique();
        let mut claim = Box::pin(store.claim_next(1, &limits, id));
        let mut polls = version % 40;
        while polls > 0 && futures::poll!(&mut claim).is_pending() {
            polls -= 1;
            tokio::task::yield_now().await;
        }
        drop(claim);

        let listed = store.runs(&RunFilter::of_claim(id)).await.unwrap();

        let leased = RunFilter::all().state(RunState::Running);
        assert_eq!(store.runs(&leased).await.unwrap().len(), listed.len());
        for row in listed {
            store.release(row.lease.unwrap()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_claim_that_fails_leaves_the_new_runs_in_the_ledger() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let limits = [ExecutorLimits::new("agent", 1)];
    let note = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    let [first, second] = [1, 2].map(|version| RunRef::new("agent", note.id, version));
    store.enqueue(vec![first.into()]).await.unwrap();
    let file = Connection::open(folder.file()).unwrap();
    // This version of the crate cannot read the row.
    file.execute("UPDATE ux_runs SET state = 99", ()).unwrap();

    let new = vec![second.into()];
    let enqueued = store.enqueue_and_claim(new, 1, &limits, ClaimId::unique());
    let enqueued = enqueued.await.unwrap();

    assert!(enqueued.claimed.is_err(), "{enqueued:?}");
    let count = "SELECT count(*) FROM ux_runs";
    let rows: i64 = file.query_row(count, (), |row| row.get(0)).unwrap();
    assert_eq!(rows, 2);
}

#[tokio::test]
async fn a_trigger_that_cannot_be_read_does_not_fail_the_claim() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let limits = [ExecutorLimits::new("agent", 1)];
    let note = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    let file = Connection::open(folder.file()).unwrap();
    file.execute("UPDATE ux_breadcrumbs SET context = '{'", ())
        .unwrap();

    let new = vec![RunRef::new("agent", note.id, 1).into()];
    let enqueued = store.enqueue_and_claim(new, 1, &limits, ClaimId::unique());
    let claimed = enqueued.await.unwrap().claimed.unwrap();

    assert_eq!(claimed.len(), 1);
    assert!(claimed[0].trigger.is_none());
}
