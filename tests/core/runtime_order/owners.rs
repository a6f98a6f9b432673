//! Leases belong to the runtime that claimed them, until the runtime releases them or ends.

use crate::runtime_order::harness::{SECOND, from_beginning, until_ended};
use crate::support::{Call, Do, Probe, Shim, eventually, put, runs};
use serde_json::json;
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use universal_executor::store::{Fault, Faulty, Moment, Operation, RunRef, RunState};
use universal_executor::{BreadcrumbStore, MemoryStore, Profile, RunLedger as _, Runtime};

/// Creates an executor that handles one run at a time, at most once, for ten seconds.
fn at_most_once(id: &str, store: &(impl BreadcrumbStore + Clone)) -> Arc<Probe> {
    with_lease(id, store, RunRef::DEFAULT_LEASE)
}

fn with_lease(id: &str, store: &(impl BreadcrumbStore + Clone), lease: Duration) -> Arc<Probe> {
    let mut profile = Profile::default().at_most_once().lease(lease);
    profile.max_inflight = Some(1);
    let probe = Probe::on("question.v1", id, store).profile(profile);
    let probe = probe.executing(|_| async {
        sleep(10 * SECOND).await;
        Ok(json!({}))
    });
    probe.shared()
}

fn runtime_of(probe: &Arc<Probe>, store: &MemoryStore) -> Runtime {
    let runtime = from_beginning(store).drain_timeout(SECOND);
    runtime.executor(Arc::clone(probe)).build().unwrap()
}

/// Returns the questions of an executor's calls, in order.
fn questions(probe: &Probe) -> Vec<u64> {
    let question = |call| probe.context(call).trigger().context["n"].as_u64().unwrap();
    (0..probe.executed()).map(question).collect()
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_on_one_store_handle_execute_no_run_twice_and_release_no_lease_of_the_other() {
    const QUESTIONS: usize = 4;
    for (ids, runs_of_all) in [(["a", "b"], 2 * QUESTIONS), (["a", "a"], QUESTIONS)] {
        let store = MemoryStore::default();
        let releases = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&releases);
        // The result of a claim takes a second, so that the other runtime claims meanwhile. A release is delayed until after its run has
        // started.
        let slow = move |operation, moment| match (operation, moment) {
            (Operation::ClaimNext, Moment::After) => Fault::Delay(SECOND),
            (Operation::Release, Moment::Before) => {
                counted.fetch_add(1, Ordering::SeqCst);
                Fault::Delay(2 * SECOND)
            }
            (_, _) => Fault::None,
        };
        let handle = Arc::new(Faulty::new(store.clone(), slow));
        for n in 0..QUESTIONS {
            put(&store, "question.v1", json!({"n": n})).await;
        }
        let probes = ids.map(|id| at_most_once(id, &handle));
        let [first, second] = [0, 1].map(|one| runtime_of(&probes[one], &store));

        let (first, second) = tokio::join!(
            first.run_until(until_ended(&store, runs_of_all)),
            second.run_until(until_ended(&store, runs_of_all)),
        );

        assert_eq!(
            first.unwrap().responded + second.unwrap().responded,
            runs_of_all as u64,
            "{ids:?}"
        );
        let calls = |id: &str, probe: &Probe| {
            let name = |question| (id.to_owned(), question);
            questions(probe).into_iter().map(name).collect::<Vec<_>>()
        };
        let [one, other] = [0, 1].map(|one| calls(ids[one], &probes[one]));
        let all: Vec<_> = one.into_iter().chain(other).collect();
        let different: BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), different.len()), (runs_of_all, runs_of_all));
        assert_eq!(releases.load(Ordering::SeqCst), 0, "{ids:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Drop,
    Stop,
}

/// Runs a runtime for one second, ends it, and waits another second for the release of its leases.
async fn run_for_a_second(runtime: &Runtime, end: End) {
    match end {
        End::Drop => drop(timeout(SECOND, runtime.run_until(pending())).await),
        End::Stop => drop(runtime.run_until(sleep(SECOND)).await.unwrap()),
    }
    sleep(SECOND).await;
}

/// Ends a runtime with one at-most-once run while a store operation hangs. Returns the state and the attempts of the run.
async fn ended_while(hanging: impl Fn(&MemoryStore) -> Arc<Probe>, end: End) -> (RunState, u32) {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({"n": 0})).await;
    let probe = hanging(&store);
    let runtime = runtime_of(&probe, &store);

    run_for_a_second(&runtime, end).await;

    assert_eq!(probe.executed(), 0);
    let run = runs(&store).await.remove(0);
    (run.state, run.attempts)
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_ends_releases_every_run_whose_execute_was_not_called() {
    let claim_hangs = |store: &MemoryStore| {
        let plan = |operation, moment| match (operation, moment) {
            (Operation::ClaimNext, Moment::After) => Fault::Hang,
            (_, _) => Fault::None,
        };
        at_most_once("worker", &Arc::new(Faulty::new(store.clone(), plan)))
    };
    let reading_hangs = |store: &MemoryStore| {
        let hangs = Shim::new(store, |call| match call {
            Call::Get(_) => Do::Hang,
            _ => Do::Pass,
        });
        at_most_once("worker", &hangs)
    };
    for end in [End::Drop, End::Stop] {
        let left = ended_while(claim_hangs, end).await;
        assert_eq!(
            left,
            (RunState::Ready, 0),
            "a run whose claim hangs must be released, {end:?}"
        );
        let left = ended_while(reading_hangs, end).await;
        assert_eq!(
            left,
            (RunState::Ready, 0),
            "a run whose trigger read hangs must be released, {end:?}"
        );
    }
}

/// A release would make the run ready, so that the next claim could execute it a second time.
#[tokio::test(start_paused = true)]
async fn a_run_that_may_have_executed_under_an_earlier_lease_is_not_released() {
    for end in [End::Drop, End::Stop] {
        let store = MemoryStore::default();
        let question = put(&store, "question.v1", json!({"n": 0})).await;
        let run = RunRef::new("worker", question.id, 1).lasting(10 * SECOND);
        drop(store.claim(&run, None).await.unwrap());
        sleep(11 * SECOND).await;
        let plan = |operation, moment| match (operation, moment) {
            // The commit hangs, so the run cannot end as failed.
            (Operation::Commit, Moment::Before) => Fault::Hang,
            (_, _) => Fault::None,
        };
        let probe = at_most_once("worker", &Arc::new(Faulty::new(store.clone(), plan)));

        run_for_a_second(&runtime_of(&probe, &store), end).await;

        assert_eq!(probe.executed(), 0);
        let run = runs(&store).await.remove(0);
        assert_eq!((run.state, run.attempts), (RunState::Running, 2), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_release_failed_is_released_when_the_runtime_ends() {
    for end in [End::Drop, End::Stop] {
        let store = MemoryStore::default();
        // The result of the claim is late, so the run extends its lease before it starts. This extension and the first release
        // both fail.
        let releases = AtomicUsize::new(0);
        let plan = move |operation, moment| match (operation, moment) {
            (Operation::ClaimNext, Moment::After) => Fault::Delay(SECOND / 2),
            (Operation::Heartbeat, Moment::Before) => Fault::Fail,
            (Operation::Retry, Moment::Before) => match releases.fetch_add(1, Ordering::SeqCst) {
                0 => Fault::Fail,
                _ => Fault::None,
            },
            (_, _) => Fault::None,
        };
        let handle = Arc::new(Faulty::new(store.clone(), plan));
        put(&store, "question.v1", json!({"n": 0})).await;
        let probe = with_lease("worker", &handle, SECOND / 2);

        run_for_a_second(&runtime_of(&probe, &store), end).await;

        assert_eq!(probe.executed(), 0);
        let run = runs(&store).await.remove(0);
        assert_eq!((run.state, run.attempts), (RunState::Ready, 0), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn releases_that_fail_delay_other_executors_only_until_the_leases_expire() {
    let store = MemoryStore::default();
    let claims = AtomicUsize::new(0);
    // The first claimed run fails to extend its lease before it starts, and no release succeeds.
    let plan = move |operation, moment| match (operation, moment) {
        (Operation::ClaimNext, Moment::After) => match claims.fetch_add(1, Ordering::SeqCst) {
            0 => Fault::Delay(SECOND / 2),
            _ => Fault::None,
        },
        (Operation::Heartbeat | Operation::Retry | Operation::Release, Moment::Before) => {
            Fault::Fail
        }
        (_, _) => Fault::None,
    };
    let handle = Arc::new(Faulty::new(store.clone(), plan));
    let short = Profile::default().lease(SECOND / 2);
    let first = Probe::on("question.v1", "first", &handle).profile(short);
    let other = Probe::on("other.v1", "other", &handle).shared();
    let runtime = from_beginning(&store)
        .executor(first.shared())
        .executor(Arc::clone(&other))
        .build()
        .unwrap();
    put(&store, "question.v1", json!({"n": 0})).await;
    let began = Instant::now();
    let scenario = async {
        sleep(SECOND).await;
        put(&store, "other.v1", json!({"n": 1})).await;
        eventually(async || other.executed() == 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert!(began.elapsed() < 4 * SECOND, "{:?}", began.elapsed());
}
