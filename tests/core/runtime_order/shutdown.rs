//! Shutdown of a runtime: immediate, in order, and without effects of unfinished work.

use crate::runtime_order::harness::{
    LEASE, SECOND, count, from_beginning, in_state, tagged, until, until_ended,
};
use crate::support::{Call, Do, Probe, Shim, event_of, eventually, put, runs};
use async_trait::async_trait;
use futures::stream;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::time::{Instant, sleep, timeout};
use universal_executor::executor::OrderingKey;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{Fault, Faulty, NewRun, RunRef, RunState};
use universal_executor::{
    BreadcrumbStoreExt, EventSource, MemoryStore, Patch, Profile, RunLedger, Runtime, permanent,
};

const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);

/// Creates an executor that takes this number of seconds per run.
fn takes(store: &MemoryStore, seconds: u32) -> Probe {
    Probe::on("question.v1", "worker", store).executing(move |_| async move {
        sleep(SECOND * seconds).await;
        Ok(json!({}))
    })
}

/// Returns a stream with a signal at each of these seconds.
fn signals(seconds: &[u32]) -> impl futures::Stream<Item = ()> + use<> {
    let began = Instant::now();
    let moments: Vec<Instant> = seconds.iter().map(|at| began + SECOND * *at).collect();
    stream::unfold(moments.into_iter(), |mut moments| async move {
        tokio::time::sleep_until(moments.next()?).await;
        Some(((), moments))
    })
}

#[tokio::test(start_paused = true)]
async fn a_stopping_runtime_claims_nothing_and_leaves_waiting_runs_unchanged() {
    let store = MemoryStore::default();
    for n in 0..10 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let worker = takes(&store, 10).shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&worker))
        .max_inflight(3)
        .build()
        .unwrap();

    let report = runtime.run_until(sleep(SECOND)).await.unwrap();

    assert_eq!((worker.executed(), report.responded), (3, 3));
    let waiting = in_state(&store, RunState::Ready).await;
    assert_eq!(waiting.len(), 7);
    assert!(waiting.iter().all(|run| run.attempts == 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_claimed_during_the_stop_does_not_start() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let run = RunRef::of("worker", &event_of(&question));
    store.enqueue(vec![NewRun::from(run)]).await.unwrap();
    let slow = Shim::new(&store, |call| match call {
        Call::Claim => Do::Wait(3 * SECOND),
        _ => Do::Pass,
    });
    let worker = Probe::on("question.v1", "worker", &slow).shared();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::clone(&worker))
        .build()
        .unwrap();

    runtime.run_until(sleep(SECOND)).await.unwrap();

    assert_eq!(worker.executed(), 0);
    let run = runs(&store).await.remove(0);
    assert_eq!((run.state, run.attempts), (RunState::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn a_released_run_has_used_no_attempt_and_starts_elsewhere_immediately() {
    let store = MemoryStore::default();
    for n in 0..5 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let first = from_beginning(&store)
        .executor(takes(&store, 1_000))
        .drain_timeout(3 * SECOND)
        .build()
        .unwrap();
    let began = Instant::now();

    let report = first.run_until(sleep(SECOND)).await.unwrap();

    assert_eq!(began.elapsed(), 4 * SECOND);
    assert_eq!((report.dropped, report.responded), (5, 0));
    let given_back = in_state(&store, RunState::Ready).await;
    assert_eq!(given_back.len(), 5);
    assert!(given_back.iter().all(|run| run.attempts == 0));
    let worker = takes(&store, 0).shared();
    let next = Runtime::builder(store.events())
        .executor(Arc::clone(&worker))
        .build()
        .unwrap();
    let began = Instant::now();
    next.run_until(until(&store, "answer.v1", 5)).await.unwrap();
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    assert!((0..5).all(|call| worker.context(call).attempt() == 1));
}

#[tokio::test(start_paused = true)]
async fn a_released_run_is_found_by_a_runtime_that_is_already_running() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let leaves = from_beginning(&store)
        .executor(takes(&store, 1_000))
        .drain_timeout(3 * SECOND)
        .build()
        .unwrap();
    let stays = Runtime::builder(store.events())
        .executor(takes(&store, 0))
        .sweep_every(SECOND)
        .build()
        .unwrap();
    let began = Instant::now();

    let (left, stayed) = tokio::join!(
        leaves.run_until(sleep(SECOND)),
        stays.run_until(until(&store, "answer.v1", 1))
    );

    assert_eq!((left.unwrap().dropped, stayed.unwrap().responded), (1, 1));
    assert!(began.elapsed() <= 6 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_moved_to_a_newer_version_is_released_as_that_version() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({"n": 1})).await;
    let run = RunRef::of("worker", &event_of(&question));
    store.enqueue(vec![NewRun::from(run)]).await.unwrap();
    let patch = Patch::new().context(json!({"n": 2}));
    store.update(question.id, 1, patch).await.unwrap();
    let runtime = Runtime::builder(store.events())
        .executor(takes(&store, 1_000))
        .drain_timeout(SECOND)
        .build()
        .unwrap();

    runtime.run_until(sleep(SECOND)).await.unwrap();

    let given_back = in_state(&store, RunState::Ready).await;
    assert_eq!(given_back.len(), 1);
    let newer = &given_back[0];
    assert_eq!((newer.run.trigger_version, newer.attempts), (2, 0));
    assert_eq!(in_state(&store, RunState::Superseded).await.len(), 1);
    let next = Runtime::builder(store.events())
        .executor(takes(&store, 0))
        .build()
        .unwrap();
    let began = Instant::now();
    next.run_until(until(&store, "answer.v1", 1)).await.unwrap();
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_key_resumes_after_a_shutdown_with_the_released_run() {
    let store = MemoryStore::default();
    for n in 0..2 {
        tagged(&store, "question.v1", "key:a", json!({"n": n})).await;
    }
    let ordered = || Profile::default().ordering(OrderingKey::tag("key:"));
    let first = from_beginning(&store)
        .executor(takes(&store, 1_000).profile(ordered()))
        .drain_timeout(SECOND)
        .build()
        .unwrap();
    first.run_until(sleep(SECOND)).await.unwrap();
    let worker = takes(&store, 1).profile(ordered()).shared();
    let next = from_beginning(&store)
        .executor(Arc::clone(&worker))
        .build()
        .unwrap();

    next.run_until(until_ended(&store, 2)).await.unwrap();

    let n = |call| worker.context(call).trigger().context["n"].clone();
    assert_eq!((n(0), n(1)), (json!(0), json!(1)));
    assert_eq!(worker.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_ends_the_drain_at_once_and_gives_the_running_work_back() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let worker = takes(&store, 10).shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&worker))
        .build()
        .unwrap();
    let began = Instant::now();

    let report = runtime.run_until_signals(signals(&[1, 3])).await.unwrap();

    assert_eq!(began.elapsed(), 3 * SECOND);
    assert_eq!((report.responded, report.dropped), (0, 0));
    sleep(20 * SECOND).await;
    let left = runs(&store).await.remove(0);
    assert_eq!((left.state, left.attempts), (RunState::Ready, 0));
    assert_eq!(count(&store, "answer.v1").await, 0);
    let next = from_beginning(&store)
        .executor(takes(&store, 0))
        .build()
        .unwrap();
    next.run_until(until(&store, "answer.v1", 1)).await.unwrap();
    assert!(began.elapsed() < 24 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_signal_stream_that_ends_is_not_a_signal() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let runtime = from_beginning(&store)
        .executor(takes(&store, 2))
        .build()
        .unwrap();
    let began = Instant::now();

    let report = runtime.run_until_signals(signals(&[1])).await.unwrap();
    let never = timeout(LEASE, runtime.run_until_signals(signals(&[]))).await;

    assert_eq!(report.responded, 1);
    assert!(never.is_err());
    assert_eq!(began.elapsed(), 2 * SECOND + LEASE);
}

/// Creates an executor that runs without a timer until a flag is set.
fn restless(store: &MemoryStore, let_go: &Arc<AtomicBool>) -> Probe {
    let let_go = Arc::clone(let_go);
    Probe::on("question.v1", "restless", store).executing(move |_| {
        let let_go = Arc::clone(&let_go);
        async move {
            while !let_go.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            Ok(json!({}))
        }
    })
}

#[tokio::test]
async fn a_second_signal_prevents_all_writes_including_those_of_finished_work() {
    let store = MemoryStore::default();
    let let_go = Arc::new(AtomicBool::new(false));
    for n in 0..5 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let restless = restless(&store, &let_go).shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&restless))
        .build()
        .unwrap();
    let worker = Arc::clone(&restless);
    let working = stream::unfold(0, move |told| {
        let worker = Arc::clone(&worker);
        async move {
            while worker.executed() < 5 {
                tokio::task::yield_now().await;
            }
            (told < 2).then_some(((), told + 1))
        }
    });

    runtime.run_until_signals(working).await.unwrap();

    let_go.store(true, Ordering::SeqCst);
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&store, "answer.v1").await, 0);
}

#[tokio::test]
async fn a_dropped_runtime_writes_nothing_even_for_finished_work() {
    let store = MemoryStore::default();
    let let_go = Arc::new(AtomicBool::new(false));
    for n in 0..5 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let restless = restless(&store, &let_go).shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&restless))
        .build()
        .unwrap();
    let all_work = async {
        while restless.executed() < 5 {
            tokio::task::yield_now().await;
        }
    };

    tokio::select! {
        () = all_work => {}
        _ = runtime.run_until(std::future::pending()) => {}
    }

    let_go.store(true, Ordering::SeqCst);
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&store, "answer.v1").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_makes_no_store_calls_after_it_returns() {
    let store = MemoryStore::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let watched = Shim::new(&store, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Do::Pass
    });
    let worker = Probe::on("question.v1", "worker", &watched).hanging();
    let runtime = from_beginning(&store)
        .executor(worker)
        .drain_timeout(SECOND)
        .build()
        .unwrap();
    put(&store, "question.v1", json!({})).await;
    runtime.run_until(sleep(SECOND)).await.unwrap();
    let asked = calls.load(Ordering::SeqCst);

    put(&store, "question.v1", json!({})).await;
    sleep(10 * LEASE).await;

    assert!(asked > 0);
    assert_eq!(calls.load(Ordering::SeqCst), asked);
}

#[tokio::test(start_paused = true)]
async fn the_report_counts_the_outcome_of_every_run() {
    let store = MemoryStore::default();
    let mixed = Probe::on("question.v1", "mixed", &store).executing(|context| async move {
        let n = context.trigger().context["n"].as_u64().unwrap_or_default();
        match (n, context.attempt()) {
            (0..5, _) => Ok(json!({})),
            (5..8, _) => Err(permanent("no")),
            (8..10, 1) => Err("reset".into()),
            (8..10, _) => Ok(json!({})),
            _ => std::future::pending().await,
        }
    });
    for n in 0..12 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    put(&store, "other.v1", json!({})).await;
    let runtime = from_beginning(&store)
        .executor(mixed)
        .drain_timeout(SECOND)
        .build()
        .unwrap();
    let rest = eventually(async || count(&store, "answer.v1").await == 7);

    let report = runtime.run_until(rest).await.unwrap();

    assert_eq!(
        (report.responded, report.failed, report.postponed),
        (7, 3, 2)
    );
    assert_eq!((report.dropped, report.skipped, report.errors), (2, 0, 0));
    // The questions, their answers, and the remaining breadcrumbs.
    assert_eq!(report.events, 13 + 7 + 3);
}

#[tokio::test(start_paused = true)]
async fn a_second_call_delivers_the_events_since_an_idle_first_call() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({"before": "the first call"})).await;
    let worker = Probe::on("question.v1", "worker", &store).shared();
    let runtime = Runtime::builder(store.events())
        .start_at(StartAt::Now)
        .executor(Arc::clone(&worker))
        .build()
        .unwrap();

    runtime.run_until(std::future::ready(())).await.unwrap();
    put(&store, "question.v1", json!({})).await;
    let report = runtime.run_until(sleep(MINUTE)).await.unwrap();

    assert_eq!((report.responded, worker.executed()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_future_that_stops_it_is_polled_after_the_source_is_subscribed_to() {
    let store = MemoryStore::default();
    let worker = Probe::on("question.v1", "worker", &store);
    let source = Slow(store.events());
    let runtime = Runtime::builder(source)
        .start_at(StartAt::Now)
        .executor(worker)
        .build()
        .unwrap();
    let posts = async {
        put(&store, "question.v1", json!({})).await;
        sleep(MINUTE).await;
    };

    let report = runtime.run_until(posts).await.unwrap();

    assert_eq!((report.events > 0, report.responded), (true, 1));
}

#[tokio::test(start_paused = true)]
async fn repeated_drops_of_the_runtime_do_not_count_as_crashes_of_a_healthy_run() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let worker = Probe::on("question.v1", "worker", &store)
        .executing(|_| async {
            sleep(SECOND).await;
            Ok(json!({"ok": true}))
        })
        .shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&worker))
        .build()
        .unwrap();
    for begun in 1..=30 {
        let executes = async {
            while worker.executed() < begun {
                sleep(SECOND / 10).await;
            }
        };
        let dropped = async {
            tokio::select! {
                () = executes => {}
                _ = runtime.run_until(std::future::pending()) => {}
            }
        };
        timeout(2 * LEASE, dropped).await.unwrap();
    }

    let report = runtime.run_until(sleep(MINUTE)).await.unwrap();

    assert_eq!((report.responded, report.failed), (1, 0));
    assert_eq!(count(&store, "answer.v1").await, 1);
    assert_eq!(count(&store, "executor.failed.v1").await, 0);
}

/// A source whose subscription takes one second.
struct Slow<E>(E);

#[async_trait]
impl<E: EventSource> EventSource for Slow<E> {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        sleep(SECOND).await;
        self.0.subscribe(from).await
    }

    fn is_complete(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_ends_a_start_that_waits_for_a_store() {
    let store = MemoryStore::default();
    let hanging = Faulty::new(store.clone(), |_, _| Fault::Hang);
    let runtime = Runtime::builder(store.events())
        .executor(Probe::on("question.v1", "worker", &hanging))
        .build()
        .unwrap();
    let began = Instant::now();

    runtime.run_until_signals(signals(&[1])).await.unwrap();

    assert_eq!(began.elapsed(), SECOND);
}
