//! Leases that are parked in one handle and used through another.

use crate::sqlite::{Folder, quick};
use std::time::Duration;
use universal_executor::store::{
    Claim, Commit, ExecutorLimits, Lease, LeaseOwner, RunEnd, RunFilter, RunLedger, RunRef,
    RunState,
};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, Json, NewBreadcrumb, SqliteStore};

/// A store with a run that is parked in it, and its lease.
async fn parked(folder: &Folder) -> (SqliteStore, RunRef, Lease) {
    let store = quick(&folder.file()).open().await.unwrap();
    let note = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    let run = RunRef::new("agent", note.id, 1);
    store.enqueue(vec![run.clone().into()]).await.unwrap();
    let limits = [ExecutorLimits::new("agent", 1)];
    assert_eq!(
        store
            .claim_next(1, &limits, LeaseOwner::SOLE)
            .await
            .unwrap(),
        1
    );
    let listed = store.runs(&RunFilter::parked()).await.unwrap();
    let lease = listed.into_iter().next().unwrap().lease.unwrap();
    (store, run, lease)
}

#[tokio::test]
async fn a_run_that_ended_through_another_handle_is_done_for_whoever_claims_it() {
    let folder = Folder::new();
    let (store, run, lease) = parked(&folder).await;

    let end = Commit {
        writes: Vec::new(),
        end: Some((lease, RunEnd::Done)),
    };
    store.clone().commit(end).await.unwrap();

    let claim = store.claim(&run, None).await.unwrap();
    let is_done = matches!(&claim, Claim::Done { state, .. } if *state == RunState::Done);
    assert!(is_done, "{claim:?}");
}

#[tokio::test]
async fn what_was_saved_through_another_handle_is_what_a_claim_finds() {
    let folder = Folder::new();
    let (store, run, lease) = parked(&folder).await;

    let state = Json::from(serde_json::json!({"step": 2}));
    store.clone().save(&lease, state.clone()).await.unwrap();

    let claim = store.claim(&run, None).await.unwrap();
    let Claim::Granted { state: found, .. } = &claim else {
        panic!("{claim:?}");
    };
    assert_eq!(found.as_ref().map(|saved| &saved.state), Some(&state));
}

#[tokio::test]
async fn a_lease_that_ran_out_while_it_was_parked_belongs_to_who_claims_it_next() {
    let folder = Folder::new();
    let (store, run, lease) = parked(&folder).await;
    let other = store.clone();

    store.pass(RunRef::DEFAULT_LEASE + Duration::from_secs(1));
    let claimed = other.claim(&run, None).await.unwrap();

    let Claim::Granted { lease: newer, .. } = claimed else {
        panic!("{claimed:?}");
    };
    assert!(newer.token > lease.token);
    let claim = store.claim(&run, None).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
}

#[tokio::test]
async fn a_parked_lease_is_granted_once() {
    let folder = Folder::new();
    let (store, run, lease) = parked(&folder).await;

    let claims = [
        store.claim(&run, None).await.unwrap(),
        store.claim(&run, None).await.unwrap(),
    ];

    let granted = matches!(&claims[0], Claim::Granted { lease: taken, attempt: 1, .. } if taken.token == lease.token);
    assert!(granted, "{claims:?}");
    assert!(matches!(claims[1], Claim::Running { .. }), "{claims:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_of_a_claim_whose_caller_went_away_is_listed_for_its_owner() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let limits = [ExecutorLimits::new("agent", 1)];
    let note = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    for version in 1..=300 {
        let run = RunRef::new("agent", note.id, version);
        store.enqueue(vec![run.into()]).await.unwrap();
        let owner = LeaseOwner::unique();
        let mut claim = Box::pin(store.claim_next(1, &limits, owner));
        let mut polls = version % 40;
        while polls > 0 && futures::poll!(&mut claim).is_pending() {
            polls -= 1;
            tokio::task::yield_now().await;
        }
        drop(claim);

        let parked = store.runs(&RunFilter::parked_by(owner)).await.unwrap();

        let leased = RunFilter::all().state(RunState::Running);
        assert_eq!(store.runs(&leased).await.unwrap().len(), parked.len());
        for row in parked {
            store.release(row.lease.unwrap()).await.unwrap();
        }
    }
}
