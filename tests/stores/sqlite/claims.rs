//! Claims whose caller does not wait for the answer.

use crate::sqlite::{Folder, quick};
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
