//! A store with planned faults: their effects on the data, and the reaction of an executor.

use crate::support::{Probe, Shim, all, put, runs};
use crate::wrappers::calls::{able, call, of_stores};
use serde_json::json;
use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, advance, timeout};
use universal_executor::store::{Fault, Faulty, Injected, Moment, Operation, RunState, StoreError};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Outcome, Profile,
};

const MINUTE: Duration = Duration::from_secs(60);

/// The calls of a fault plan.
type Asked = Arc<Mutex<Vec<(Operation, Moment)>>>;

/// Wraps a store without faults and records when each operation starts and ends.
fn noted<S>(inner: S) -> (Faulty<S>, Asked) {
    let asked = Asked::default();
    let notes = Arc::clone(&asked);
    let store = Faulty::new(inner, move |operation, moment| {
        notes.lock().unwrap().push((operation, moment));
        Fault::None
    });
    (store, asked)
}

/// Wraps a store with a fault at one moment of every call of an operation, and records the calls that reach the store.
fn faulty(
    inside: &MemoryStore,
    at: (Operation, Moment),
    fault: Fault,
) -> (Faulty<Faulty<Shim>>, Asked) {
    let (store, asked) = noted(able(inside));
    let plan = move |operation, moment| match (operation, moment) {
        now if now == at => fault,
        _ => Fault::None,
    };
    (Faulty::new(store, plan), asked)
}

/// Returns the injected fault in an error.
fn injected(error: &StoreError) -> (Operation, Moment) {
    let injected = error.source().unwrap().downcast_ref::<Injected>().unwrap();
    (injected.operation, injected.moment)
}

#[tokio::test]
async fn a_plan_is_asked_once_before_and_once_after_each_call() {
    for operation in of_stores() {
        let inside = MemoryStore::default();
        let (store, asked) = noted(able(&inside));

        call(&store, &inside, operation).await.unwrap();

        let expected = [(operation, Moment::Before), (operation, Moment::After)];
        assert_eq!(*asked.lock().unwrap(), expected);
    }
}

#[tokio::test]
async fn a_plan_is_not_asked_after_a_call_that_failed_by_itself() {
    let (store, asked) = noted(MemoryStore::default());

    let answer = store.get(Default::default()).await;

    assert!(matches!(answer, Err(StoreError::NotFound { .. })));
    assert_eq!(*asked.lock().unwrap(), [(Operation::Get, Moment::Before)]);
}

#[tokio::test]
async fn a_call_that_fails_before_is_not_done_and_can_be_tried_again() {
    for operation in of_stores() {
        let inside = MemoryStore::default();
        let at = (operation, Moment::Before);
        let (store, asked) = faulty(&inside, at, Fault::Fail);

        let error = call(&store, &inside, operation).await.unwrap_err();

        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert_eq!(injected(&error), at);
        assert_eq!(*asked.lock().unwrap(), []);
        let said = error.source().unwrap().to_string();
        assert_eq!(said, format!("a fault was injected before {operation}"));
    }
}

#[tokio::test]
async fn a_call_that_fails_after_is_done_and_its_answer_is_lost() {
    for operation in of_stores() {
        let inside = MemoryStore::default();
        let at = (operation, Moment::After);
        let (store, asked) = faulty(&inside, at, Fault::Fail);

        let error = call(&store, &inside, operation).await.unwrap_err();

        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert_eq!(injected(&error), at);
        assert_eq!(asked.lock().unwrap().last(), Some(&at));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_delayed_takes_so_long_and_is_done() {
    for operation in of_stores() {
        for moment in [Moment::Before, Moment::After] {
            let inside = MemoryStore::default();
            let delay = Fault::Delay(MINUTE);
            let (store, asked) = faulty(&inside, (operation, moment), delay);
            let began = Instant::now();

            let half = timeout(MINUTE / 2, call(&store, &inside, operation)).await;
            let was_done = !asked.lock().unwrap().is_empty();
            call(&store, &inside, operation).await.unwrap();

            assert!(half.is_err(), "{operation}");
            assert_eq!(was_done, moment == Moment::After, "{operation}");
            assert!(began.elapsed() >= MINUTE * 3 / 2, "{operation}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_never_ends() {
    for operation in of_stores() {
        for moment in [Moment::Before, Moment::After] {
            let inside = MemoryStore::default();
            let (store, asked) = faulty(&inside, (operation, moment), Fault::Hang);

            let answer = timeout(60 * MINUTE, call(&store, &inside, operation)).await;

            assert!(answer.is_err(), "{operation}");
            let was_done = !asked.lock().unwrap().is_empty();
            assert_eq!(was_done, moment == Moment::After, "{operation}");
        }
    }
}

#[tokio::test]
async fn a_commit_that_fails_after_the_call_is_applied_and_one_before_is_not() {
    for (moment, kept) in [(Moment::Before, 0), (Moment::After, 1)] {
        let inside = MemoryStore::default();
        let (store, _) = faulty(&inside, (Operation::Commit, moment), Fault::Fail);

        let answer = store.create(NewBreadcrumb::new("note.v1")).await;

        assert!(answer.is_err());
        assert_eq!(all(&inside, "note.v1").await.len(), kept);
    }
}

#[tokio::test]
async fn a_store_without_a_ledger_has_none_with_faults() {
    let inside = MemoryStore::default();
    let without = Faulty::new(Shim::without_ledger(&inside), |_, _| Fault::None);
    let with = Faulty::new(inside, |_, _| Fault::None);

    assert!(without.ledger().is_none() && with.ledger().is_some());
}

#[tokio::test]
async fn a_store_behind_a_pointer_can_have_faults() {
    let inside: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default().in_tenant("acme"));
    let store = Faulty::new(inside, |_, _| Fault::None);

    store.create(NewBreadcrumb::new("note.v1")).await.unwrap();

    assert_eq!(store.tenant(), "acme");
    assert!(store.latest("note.v1").await.unwrap().is_some());
}

/// Returns a plan that fails the first `n` calls of an operation at a moment.
fn first(n: usize, at: (Operation, Moment)) -> impl Fn(Operation, Moment) -> Fault {
    let calls = AtomicUsize::new(0);
    move |operation, moment| {
        let fails = (operation, moment) == at && calls.fetch_add(1, Ordering::SeqCst) < n;
        if fails { Fault::Fail } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn an_executor_whose_commit_fails_after_it_was_done_answers_once() {
    for moment in [Moment::Before, Moment::After] {
        for failures in 1..4 {
            let inside = MemoryStore::default();
            let plan = first(failures, (Operation::Commit, moment));
            let store = Faulty::new(inside.clone(), plan);
            let probe =
                Probe::on("question.v1", "prober", &store).profile(Profile::default().attempts(10));
            let question = put(&inside, "question.v1", json!({})).await;

            let mut ended = false;
            for _ in 0..20 {
                // The source delivers the event repeatedly until the executor has handled it.
                let outcome = probe.sees(&question).await;
                ended = matches!(
                    outcome,
                    Ok(Outcome::Responded { .. } | Outcome::AlreadyDone { .. })
                );
                if ended {
                    break;
                }
                advance(MINUTE).await;
            }

            assert!(ended, "{moment:?}");
            assert_eq!(all(&inside, "answer.v1").await.len(), 1, "{moment:?}");
            let runs = runs(&inside).await;
            assert_eq!((runs.len(), runs[0].state), (1, RunState::Done));
        }
    }
}
