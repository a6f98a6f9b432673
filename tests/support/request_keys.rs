//! Keys of requests: the time for which a store retains them, and their maximum number.

use std::time::Duration;
use universal_executor::store::conformance::StoreUnderTest;
use universal_executor::store::{
    Claim, Claimed, Commit, NewRequest, Requested, RunEnd, RunRef, StoreError,
};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Sends a request to "agent" with a key. Returns `true` if the request creates a breadcrumb.
async fn creates(store: &impl BreadcrumbStore, key: &str) -> bool {
    matches!(send(store, key).await.unwrap(), Requested::Created { .. })
}

async fn send(store: &impl BreadcrumbStore, key: &str) -> Result<Requested, StoreError> {
    let request = NewRequest::new("agent", key, NewBreadcrumb::new("question.v1"));
    store.ledger().unwrap().request(request).await
}

/// A request deletes keys without a run after seven days. Keys with a run are retained.
pub(crate) async fn old_keys_without_a_run_are_deleted<T: StoreUnderTest>(subject: &T) {
    let store = subject.fresh().await;
    let (id, version) = send(&store, "with a run").await.unwrap().trigger();
    let run = RunRef::new("agent", id, version);
    drop(store.ledger().unwrap().claim(&run, None).await.unwrap());
    for n in 0..70 {
        assert!(creates(&store, &n.to_string()).await);
    }

    subject.advance_clock(DAY * 6).await;
    assert!(creates(&store, "six days later").await);
    assert!(!creates(&store, "with a run").await);
    assert!(
        !creates(&store, "0").await,
        "a key is retained for seven days"
    );

    subject.advance_clock(DAY * 2).await;
    // One request may delete only some of the old keys.
    for key in ["eight days later", "and again"] {
        assert!(creates(&store, key).await);
    }
    for key in ["with a run", "six days later", "eight days later"] {
        assert!(!creates(&store, key).await, "{key:?} is retained");
    }
    for key in ["0", "69"] {
        assert!(creates(&store, key).await, "{key:?} was deleted");
    }

    subject.advance_clock(DAY * 8).await;
    for n in 0..4 {
        assert!(creates(&store, &format!("last {n}")).await);
    }
    assert!(
        !creates(&store, "with a run").await,
        "a key with a run is retained"
    );
    assert!(
        creates(&store, "six days later").await,
        "the old key was deleted"
    );
}

/// A store whose limits allow two runs holds two keys, until one of them is old.
pub(crate) async fn keys_have_the_limit_of_runs(
    store: &impl BreadcrumbStore,
    pass: impl AsyncFn(Duration),
) {
    assert!(creates(store, "a").await);
    assert!(creates(store, "b").await);

    let full = send(store, "c").await.unwrap_err();

    assert!(
        full.to_string()
            .ends_with("is full: it holds at most 2 request keys"),
        "{full}"
    );
    let created = store.recent("question.v1", 9).await.unwrap();
    assert_eq!(created.len(), 2, "a refused request creates nothing");
    assert!(!creates(store, "a").await);
    end_run(store, "a").await;
    pass(DAY * 8).await;
    assert!(
        creates(store, "c").await,
        "the key \"b\" has no run, so it was deleted"
    );
    assert!(!creates(store, "a").await, "a key with a run is retained");
    // The ledger retains one run that has ended.
    end_run(store, "c").await;
    pass(DAY * 2).await;
    assert!(
        creates(store, "d").await,
        "the run of \"a\" was removed, so its key was deleted"
    );
    assert!(!creates(store, "c").await);
}

/// Claims and ends the run of a recorded key.
async fn end_run(store: &impl BreadcrumbStore, key: &str) {
    let (id, version) = send(store, key).await.unwrap().trigger();
    let run = RunRef::new("agent", id, version);
    let claim = store.ledger().unwrap().claim(&run, None).await.unwrap();
    let Claim::Granted(Claimed { lease, .. }) = claim else {
        panic!("granted")
    };
    let end = Commit {
        writes: Vec::new(),
        end: Some((lease, RunEnd::Done)),
    };
    store.commit(end).await.unwrap();
}

/// Keys with a run take up room for as long as the run exists. Other keys make room once they are old, also if they come after many
/// keys with a run. `store` has room for 80 open runs and 20 ended runs.
pub(crate) async fn old_keys_without_a_run_make_room_in_a_full_store(
    store: &impl BreadcrumbStore,
    pass: impl AsyncFn(Duration),
) {
    let ledger = store.ledger().unwrap();
    for n in 0..100 {
        let (id, version) = send(store, &n.to_string()).await.unwrap().trigger();
        // After the first 40 keys, every second key has a run.
        if n < 40 || n % 2 == 0 {
            let run = RunRef::new("agent", id, version);
            drop(ledger.claim(&run, None).await.unwrap());
        }
    }

    for round in 0..2 {
        let full = send(store, "one more").await.unwrap_err();
        assert_eq!(full.code(), "full");
        pass(DAY * 8).await;
        for n in 0..30 {
            assert!(creates(store, &format!("{n} of round {round}")).await);
        }
    }
    let full = send(store, "one more").await.unwrap_err();

    assert_eq!(full.code(), "full");
    for n in [0, 39, 40, 98] {
        assert!(!creates(store, &n.to_string()).await, "{n} has a run");
    }
    assert!(!creates(store, "29 of round 1").await);
}
