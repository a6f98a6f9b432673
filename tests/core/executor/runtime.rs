//! Many executors on one event stream: isolation, bounds, retries, recovery and shutdown.

use crate::support::{Call, Do, Probe, Shim, all, event_of, eventually, put, runs, unavailable};
use futures::StreamExt as _;
use futures::stream::{self};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::error::Retry;
use universal_executor::executor::{ExecutorError, Failure, RetryPolicy};
use universal_executor::runtime::RuntimeError;
use universal_executor::source::{Deliveries, Receipt, SourceError, StartAt};
use universal_executor::store::{
    Capabilities, FailureClass, MemoryLimits, NewRun, RunRef, RunState,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, Delivery, Event, EventKind, EventSource,
    ExecutionContext, MemoryStore, NewBreadcrumb, Outcome, Profile, Response, RunLedger, Runtime,
    Subscription, Subscriptions, UniversalExecutor, Wake, async_trait, permanent, suspend,
};

const LEASE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

fn runtime(store: &MemoryStore, executors: Vec<Arc<dyn UniversalExecutor>>) -> Runtime {
    Runtime::builder(store.events())
        .start_at(StartAt::Beginning)
        .executors(executors)
        .build()
        .unwrap()
}

async fn count(store: &MemoryStore, schema: &str) -> usize {
    all(store, schema).await.len()
}

/// Waits until at least `n` breadcrumbs of a schema exist.
async fn until(store: &MemoryStore, schema: &str, n: usize) {
    eventually(async || count(store, schema).await >= n).await;
}

/// Waits until all runs have ended.
async fn until_over(store: &MemoryStore) {
    eventually(async || runs(store).await.iter().all(|run| run.state.is_over())).await;
}

/// A probe whose `process_event` panics before it claims a run.
struct Panics {
    probe: Probe,
    calls: AtomicUsize,
}

#[async_trait]
impl UniversalExecutor for Panics {
    fn id(&self) -> &str {
        self.probe.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.probe.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        self.probe.store()
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({}))
    }

    async fn respond(&self, _: &Breadcrumb, _: Value) -> Result<Response, BoxError> {
        Ok(Response::none())
    }

    async fn process_event(&self, event: &Event) -> Result<Outcome, ExecutorError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        assert!(event.version == 0, "it always panics");
        Ok(Outcome::Gone)
    }
}

/// A source that plays streams one after another and records its calls.
#[derive(Default)]
struct Tape {
    streams: Mutex<VecDeque<Vec<(u64, Event)>>>,
    from: Mutex<Vec<StartAt>>,
    told: Arc<Mutex<Vec<(&'static str, u64)>>>,
}

struct TapeReceipt {
    position: u64,
    told: Arc<Mutex<Vec<(&'static str, u64)>>>,
}

#[async_trait]
impl Receipt for TapeReceipt {
    async fn ack(&self) -> Result<(), SourceError> {
        self.told.lock().unwrap().push(("ack", self.position));
        Ok(())
    }

    async fn nack(&self, _: Duration) -> Result<(), SourceError> {
        self.told.lock().unwrap().push(("nack", self.position));
        Ok(())
    }
}

#[derive(Clone)]
struct Played(Arc<Tape>);

impl Played {
    fn new(streams: impl IntoIterator<Item = Vec<(u64, Event)>>) -> Self {
        let tape = Tape::default();
        tape.streams.lock().unwrap().extend(streams);
        Self(Arc::new(tape))
    }

    fn told(&self) -> Vec<(&'static str, u64)> {
        self.0.told.lock().unwrap().clone()
    }
}

#[async_trait]
impl EventSource for Played {
    /// Returns the next stream of the tape. The last stream does not end.
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        self.0.from.lock().unwrap().push(from);
        let mut streams = self.0.streams.lock().unwrap();
        let events = streams.pop_front().unwrap_or_default();
        let told = Arc::clone(&self.0.told);
        let deliveries = stream::iter(events).map(move |(position, event)| {
            let told = Arc::clone(&told);
            let receipt = TapeReceipt { position, told };
            Ok(Delivery::new(event)
                .at(position)
                .with_receipt(Arc::new(receipt)))
        });
        if streams.is_empty() {
            Ok(Deliveries::new(deliveries.chain(stream::pending())))
        } else {
            Ok(Deliveries::new(deliveries))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_event_reaches_every_matching_executor_and_no_other() {
    let store = MemoryStore::default();
    let probes: Vec<Arc<Probe>> = (0..20)
        .map(|n| Probe::on(&format!("s{n}.v1"), &format!("p{n}"), &store).shared())
        .collect();
    let all_ears = Probe::on("*", "all", &store)
        .writing(Response::none())
        .shared();
    for n in 0..20 {
        for _ in 0..3 {
            put(&store, &format!("s{n}.v1"), json!({})).await;
        }
    }
    let mut executors: Vec<Arc<dyn UniversalExecutor>> = vec![all_ears.clone()];
    executors.extend(probes.iter().map(|probe| Arc::clone(probe) as _));
    let runtime = runtime(&store, executors);

    let done = async {
        until(&store, "answer.v1", 60).await;
        until_over(&store).await;
    };
    let report = runtime.run_until(done).await.unwrap();

    assert!(probes.iter().all(|probe| probe.executed() == 3));
    assert_eq!(all_ears.executed(), 120, "requests and answers alike");
    assert_eq!((report.events, report.responded), (120, 180));
}

#[tokio::test(start_paused = true)]
async fn executors_that_fail_or_panic_do_not_stop_other_executors() {
    let store = MemoryStore::default();
    let fails = Probe::on("question.v1", "fails", &store)
        .failing(|| permanent("no"))
        .shared();
    let throws = Probe::on("question.v1", "throws", &store)
        .executing(|context| async move {
            assert!(context.attempt() == 0, "it always panics");
            Ok(json!({}))
        })
        .shared();
    let panics = Panics {
        probe: Probe::on("question.v1", "panics", &store),
        calls: AtomicUsize::new(0),
    };
    let healthy = Probe::on("question.v1", "healthy", &store).shared();
    let runtime = runtime(
        &store,
        vec![fails, throws, Arc::new(panics), healthy.clone()],
    );
    for n in 0..10 {
        put(&store, "question.v1", json!({"n": n})).await;
    }

    let report = runtime
        .run_until(until(&store, "answer.v1", 10))
        .await
        .unwrap();

    assert_eq!(healthy.executed(), 10);
    assert_eq!(report.responded, 10);
    assert!(report.panics >= 1, "{report:?}");
    assert!(report.failed >= 1, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_process_event_panicked_waits_for_its_lease_to_end() {
    let store = MemoryStore::default();
    let panics = Arc::new(Panics {
        probe: Probe::on("question.v1", "panics", &store),
        calls: AtomicUsize::new(0),
    });
    let runtime = runtime(&store, vec![panics.clone()]);
    let traffic = async {
        for n in 0..10 {
            put(&store, "question.v1", json!({"n": n})).await;
            sleep(SECOND).await;
        }
    };

    runtime.run_until(traffic).await.unwrap();

    assert_eq!(panics.calls.load(Ordering::SeqCst), 10);
}

#[tokio::test(start_paused = true)]
async fn no_more_runs_at_a_time_than_the_bound() {
    let store = MemoryStore::default();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let busy = |id: &str| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        Probe::on("question.v1", id, &store).executing(move |_| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(SECOND).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(json!({}))
            }
        })
    };
    for n in 0..20 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let runtime = Runtime::builder(store.events())
        .start_at(StartAt::Beginning)
        .executor(busy("one"))
        .executor(busy("two"))
        .concurrency(4)
        .build()
        .unwrap();
    let began = Instant::now();

    runtime
        .run_until(until(&store, "answer.v1", 40))
        .await
        .unwrap();

    assert_eq!(most.load(Ordering::SeqCst), 4);
    assert!(began.elapsed() < 12 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn retries_happen_by_themselves_when_they_are_due() {
    let store = MemoryStore::default();
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&times);
    let probe = Probe::on("question.v1", "prober", &store)
        .executing(move |context| {
            noted.lock().unwrap().push(Instant::now());
            async move {
                match context.attempt() {
                    1 => Err("reset".into()),
                    2 => Err(universal_executor::retry_after(20 * SECOND, "slow down")),
                    _ => Ok(json!({})),
                }
            }
        })
        .shared();
    put(&store, "question.v1", json!({})).await;
    let limited = Arc::clone(&times);
    let runtime = runtime(&store, vec![probe.clone()]);

    // The second attempt does not count, so it is repeated until the test stops the runtime.
    let stop = eventually(async || limited.lock().unwrap().len() >= 4);
    let report = runtime.run_until(stop).await.unwrap();

    let times = times.lock().unwrap().clone();
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[0] <= SECOND + SECOND / 100, "{gaps:?}");
    for gap in &gaps[1..] {
        assert!(*gap >= 20 * SECOND && *gap < 21 * SECOND, "{gaps:?}");
    }
    assert!(report.postponed >= 3, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_keeps_failing_ends_with_one_dead_letter() {
    let store = MemoryStore::default();
    let probe = Probe::on("question.v1", "prober", &store)
        .failing(|| "reset".into())
        .shared();
    put(&store, "question.v1", json!({})).await;
    let runtime = runtime(&store, vec![probe.clone()]);

    let report = runtime
        .run_until(until(&store, "executor.failed.v1", 1))
        .await
        .unwrap();

    assert_eq!((report.postponed, report.failed), (4, 1));
    assert_eq!((probe.executed(), probe.failures().len()), (5, 1));
    assert_eq!(count(&store, "executor.failed.v1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn runs_left_over_from_before_are_processed_at_the_start() {
    let store = MemoryStore::default();
    let with_event = put(&store, "question.v1", json!({})).await;
    let by_hand = put(&store, "question.v1", json!({})).await;
    let rows = vec![
        NewRun::from(RunRef::of("prober", &event_of(&with_event))),
        NewRun::from(RunRef::new("prober", by_hand.id, 1)),
    ];
    store.enqueue(rows).await.unwrap();
    let probe = Probe::on("question.v1", "prober", &store).shared();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();
    let began = Instant::now();

    runtime
        .run_until(until(&store, "answer.v1", 2))
        .await
        .unwrap();

    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    assert_eq!(probe.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_run_of_a_worker_that_died_is_picked_up() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    store
        .claim(&RunRef::of("prober", &event_of(&question)), None)
        .await
        .unwrap();
    let probe = Probe::on("question.v1", "prober", &store).shared();
    let runtime = runtime(&store, vec![probe.clone()]);
    let began = Instant::now();

    runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    let took = began.elapsed();
    assert!(took >= LEASE && took <= LEASE + 6 * SECOND, "{took:?}");
    assert_eq!(probe.context(0).attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_running_work_and_starts_no_new_run() {
    let store = MemoryStore::default();
    let slow = Probe::on("question.v1", "slow", &store)
        .executing(|_| async {
            sleep(10 * SECOND).await;
            Ok(json!({}))
        })
        .shared();
    let runtime = runtime(&store, vec![slow.clone()]);
    put(&store, "question.v1", json!({})).await;
    let late = async {
        sleep(5 * SECOND).await;
        put(&store, "question.v1", json!({})).await;
    };
    let began = Instant::now();

    let (report, ()) = tokio::join!(runtime.run_until(sleep(SECOND)), late);

    assert_eq!(began.elapsed(), 10 * SECOND);
    assert_eq!((report.unwrap().responded, slow.executed()), (1, 1));
    assert_eq!(count(&store, "answer.v1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_exceeds_the_drain_timeout_is_dropped_and_writes_nothing() {
    let store = MemoryStore::default();
    let hangs = Probe::on("question.v1", "hangs", &store).hanging().shared();
    let runtime = Runtime::builder(store.events())
        .start_at(StartAt::Beginning)
        .executor(Arc::clone(&hangs))
        .drain_timeout(7 * SECOND)
        .build()
        .unwrap();
    let question = put(&store, "question.v1", json!({})).await;
    let began = Instant::now();

    let report = runtime.run_until(sleep(SECOND)).await.unwrap();

    assert_eq!(began.elapsed(), 8 * SECOND);
    assert_eq!((report.dropped, report.responded), (1, 0));
    assert_eq!(count(&store, "executor.failed.v1").await, 0);
    let run = &runs(&store).await[0];
    assert_eq!((run.state, run.attempts), (RunState::Ready, 0));
    let next = Probe::on("question.v1", "hangs", &store);
    let outcome = next.sees(&question).await.unwrap();
    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    assert_eq!(next.context(0).attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_at_most_once_run_dropped_at_shutdown_has_an_unknown_outcome() {
    let store = MemoryStore::default();
    let hangs = Probe::on("question.v1", "hangs", &store)
        .profile(Profile::default().at_most_once())
        .hanging();
    let runtime = Runtime::builder(store.events())
        .start_at(StartAt::Beginning)
        .executor(hangs)
        .drain_timeout(SECOND)
        .build()
        .unwrap();
    let question = put(&store, "question.v1", json!({})).await;

    runtime.run_until(sleep(SECOND)).await.unwrap();

    sleep(LEASE).await;
    let next = Probe::on("question.v1", "hangs", &store).profile(Profile::default().at_most_once());
    let outcome = next.sees(&question).await.unwrap();
    assert!(
        matches!(
            outcome,
            Outcome::Failed {
                class: FailureClass::OutcomeUnknown,
                ..
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(next.executed(), 0);
}

/// An executor that handles every event and ends no run.
struct NeverEnds(Probe);

#[async_trait]
impl UniversalExecutor for NeverEnds {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.0.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        self.0.store()
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({}))
    }

    async fn respond(&self, _: &Breadcrumb, _: Value) -> Result<Response, BoxError> {
        Ok(Response::none())
    }

    async fn process_event(&self, _: &Event) -> Result<Outcome, ExecutorError> {
        Ok(Outcome::Responded {
            written: Vec::new(),
        })
    }

    async fn respond_failure(
        &self,
        _: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        let told = json!({"attempts": failure.attempts, "message": failure.message});
        Ok(Response::create(
            NewBreadcrumb::new("sorry.v1").context(told),
        ))
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_never_finishes_is_ended_and_the_requester_receives_an_answer() {
    let store = MemoryStore::default();
    let never_ends = Arc::new(NeverEnds(Probe::on("question.v1", "odd", &store)));
    let runtime = runtime(&store, vec![never_ends]);
    put(&store, "question.v1", json!({})).await;

    runtime
        .run_until(until(&store, "executor.failed.v1", 1))
        .await
        .unwrap();

    let letter = &all(&store, "executor.failed.v1").await[0];
    assert_eq!(letter.context["code"], "never_ended");
    let told = &all(&store, "sorry.v1").await[0];
    let attempts = u64::from(RetryPolicy::default().attempts + 5);
    assert_eq!(told.context["attempts"], attempts);
    let message = format!("the run was started {attempts} times and never ended");
    assert_eq!(told.context["message"], message);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_never_finishes_ends_even_if_its_answer_cannot_be_written() {
    let store = MemoryStore::default();
    let commits = AtomicUsize::new(0);
    // The runtime tries to write the answer four times. The dead letter is then written alone.
    let broken = Shim::new(&store, move |call| match call {
        Call::Commit(_) if commits.fetch_add(1, Ordering::SeqCst) < 4 => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let never_ends = Arc::new(NeverEnds(Probe::on("question.v1", "odd", &broken)));
    let runtime = runtime(&store, vec![never_ends]);
    put(&store, "question.v1", json!({})).await;

    runtime
        .run_until(until(&store, "executor.failed.v1", 1))
        .await
        .unwrap();

    let letter = &all(&store, "executor.failed.v1").await[0];
    assert_eq!(letter.context["code"], "never_ended");
    assert_eq!(all(&store, "sorry.v1").await, []);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_runtime_writes_nothing_more() {
    let store = MemoryStore::default();
    let slow = Probe::on("question.v1", "slow", &store)
        .executing(|_| async {
            sleep(10 * SECOND).await;
            Ok(json!({}))
        })
        .shared();
    let runtime = runtime(&store, vec![slow.clone()]);
    put(&store, "question.v1", json!({})).await;

    let dropped = tokio::time::timeout(SECOND, runtime.run_until(std::future::pending())).await;
    sleep(20 * SECOND).await;

    assert!(dropped.is_err());
    assert_eq!(slow.executed(), 1);
    assert_eq!(count(&store, "answer.v1").await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_acknowledged_once_its_runs_are_enqueued_or_processed() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let other = put(&store, "other.v1", json!({})).await;
    let source = Played::new([vec![(1, event_of(&question)), (2, event_of(&other))]]);
    let early = source.clone();
    let kept = Probe::on("question.v1", "kept", &store)
        .executing(move |_| {
            let early = early.clone();
            async move {
                sleep(SECOND).await;
                Ok(json!({"acked": early.told().contains(&("ack", 1))}))
            }
        })
        .shared();
    let runtime = Runtime::builder(source.clone())
        .executor(kept)
        .build()
        .unwrap();

    runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    let mut told = source.told();
    told.sort_unstable();
    assert_eq!(told, [("ack", 1), ("ack", 2)]);
    let answer = all(&store, "answer.v1").await.remove(0);
    assert_eq!(answer.context["acked"], true);
}

#[tokio::test(start_paused = true)]
async fn an_executor_without_a_ledger_processes_an_event_before_it_is_acknowledged() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let source = Played::new([vec![(1, event_of(&question))]]);
    let early = source.clone();
    let plain = Shim::without_ledger(&store);
    let slow = Probe::on("question.v1", "slow", &plain)
        .executing(move |_| {
            let early = early.clone();
            async move {
                sleep(SECOND).await;
                Ok(json!({"acked": !early.told().is_empty()}))
            }
        })
        .shared();
    let runtime = Runtime::builder(source.clone())
        .executor(slow)
        .build()
        .unwrap();

    let acked = eventually(async || !source.told().is_empty());
    let report = runtime.run_until(acked).await.unwrap();

    let answer = all(&store, "answer.v1").await.remove(0);
    assert_eq!(answer.context["acked"], false);
    assert_eq!(source.told(), [("ack", 1)]);
    assert_eq!(report.responded, 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_failed_without_a_ledger_is_redelivered() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let failed = AtomicUsize::new(0);
    let flaky =
        Probe::on("question.v1", "flaky", &Shim::without_ledger(&store)).executing(move |_| {
            let first = failed.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if first {
                    Err("reset".into())
                } else {
                    Ok(json!({}))
                }
            }
        });
    let runtime = runtime(&store, vec![flaky.shared()]);

    let report = runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    assert_eq!((report.postponed, report.responded), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_not_acknowledged_before_its_run_is_enqueued() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let source = Played::new([vec![(1, event_of(&question))]]);
    let (up, told) = (Arc::new(AtomicUsize::new(0)), source.clone());
    let tries = Arc::clone(&up);
    let down = Shim::new(&store, move |call| match call {
        Call::Enqueue if tries.fetch_add(1, Ordering::SeqCst) < 3 => {
            assert!(told.told().is_empty(), "{:?}", told.told());
            Do::Fail(unavailable())
        }
        _ => Do::Pass,
    });
    let runtime = Runtime::builder(source.clone())
        .executor(Probe::on("question.v1", "prober", &down))
        .build()
        .unwrap();

    runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    assert_eq!(source.told(), [("ack", 1)]);
    assert_eq!(up.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn events_are_taken_in_while_all_places_are_taken() {
    let mut limits = MemoryLimits::default();
    limits.events = 10;
    let store = MemoryStore::with_limits(limits);
    let slow = Probe::on("question.v1", "slow", &store).executing(|_| async {
        sleep(SECOND).await;
        Ok(json!({}))
    });
    let runtime = Runtime::builder(store.events())
        .executor(slow)
        .concurrency(1)
        .build()
        .unwrap();
    let traffic = async {
        for _ in 0..50 {
            put(&store, "question.v1", json!({})).await;
            sleep(Duration::from_millis(10)).await;
        }
        until(&store, "answer.v1", 50).await;
    };

    let report = runtime.run_until(traffic).await.unwrap();

    assert_eq!(
        (report.events, report.missed, report.responded),
        (100, 0, 50)
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_ledger_slows_the_source_down_and_loses_nothing() {
    let mut limits = MemoryLimits::default();
    limits.open_runs = 5;
    let store = MemoryStore::with_limits(limits);
    for _ in 0..300 {
        put(&store, "question.v1", json!({})).await;
    }
    let probe = Probe::on("question.v1", "prober", &store)
        .writing(Response::none())
        .shared();
    let runtime = runtime(&store, vec![probe.clone()]);

    let report = runtime
        .run_until(eventually(async || probe.executed() == 300))
        .await
        .unwrap();

    assert_eq!(report.events, 300);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_stops_neither_the_others_nor_the_shutdown() {
    let store = MemoryStore::default();
    let hangs = Shim::new(&store, |call| match call {
        Call::Enqueue => Do::Hang,
        _ => Do::Pass,
    });
    put(&store, "question.v1", json!({})).await;
    put(&store, "other.v1", json!({})).await;
    let runtime = Runtime::builder(store.events())
        .start_at(StartAt::Beginning)
        .executor(Probe::on("question.v1", "stuck", &hangs))
        .executor(Probe::on("other.v1", "healthy", &store))
        .build()
        .unwrap();
    let began = Instant::now();

    runtime.run_until(sleep(SECOND)).await.unwrap();

    assert_eq!(count(&store, "answer.v1").await, 1);
    assert!(began.elapsed() < 60 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_executor_leaves_places_for_others() {
    let store = MemoryStore::default();
    let slow = Probe::on("slow.v1", "a-slow", &store)
        .executing(|_| async {
            sleep(100 * SECOND).await;
            Ok(json!({}))
        })
        .writing(Response::none());
    for _ in 0..200 {
        put(&store, "slow.v1", json!({})).await;
    }
    put(&store, "quick.v1", json!({})).await;
    let quick = Probe::on("quick.v1", "quick", &store);
    let runtime = runtime(&store, vec![slow.shared(), quick.shared()]);
    let began = Instant::now();

    runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    assert!(began.elapsed() < 30 * SECOND, "{:?}", began.elapsed());
}

/// A source that always has an event or an error, so that its reader never waits.
struct Firehose(Option<Event>);

#[async_trait]
impl EventSource for Firehose {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let event = self.0.clone();
        let always = stream::repeat_with(move || match &event {
            Some(event) => Ok(Delivery::new(event.clone())),
            None => Err(SourceError::Unavailable {
                retry_after: SECOND,
                source: "down".into(),
            }),
        });
        Ok(Deliveries::new(always))
    }
}

#[tokio::test]
async fn a_source_that_is_always_ready_does_not_starve_the_workers() {
    for errors in [false, true] {
        let store = MemoryStore::default();
        let noise = put(&store, "noise.v1", json!({})).await;
        let question = put(&store, "question.v1", json!({})).await;
        let run = RunRef::of("prober", &event_of(&question));
        store.enqueue(vec![NewRun::from(run)]).await.unwrap();
        let probe = Probe::on("question.v1", "prober", &store).shared();
        let runtime = Runtime::builder(Firehose((!errors).then(|| event_of(&noise))))
            .executor(Arc::clone(&probe))
            .build()
            .unwrap();

        let answered = async {
            while count(&store, "answer.v1").await == 0 {
                tokio::task::yield_now().await;
            }
        };
        let report = runtime.run_until(answered).await.unwrap();

        assert_eq!(report.responded, 1, "errors: {errors}");
        assert!(report.errors <= 1, "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_cannot_be_enqueued_are_bounded_by_max_deliveries() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let away = Shim::new(&store, |call| match call {
        Call::Enqueue => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let runtime = Runtime::builder(Firehose(Some(event_of(&question))))
        .max_deliveries(1_024)
        .executor(Probe::on("question.v1", "prober", &away))
        .build()
        .unwrap();

    let report = runtime.run_until(sleep(60 * SECOND)).await.unwrap();

    assert_eq!(report.events, 1_024, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_memory_store_redelivers_events_that_could_not_be_enqueued() {
    let store = MemoryStore::default();
    let failures = AtomicUsize::new(0);
    let flaky = Shim::new(&store, move |call| match call {
        Call::Enqueue if failures.fetch_add(1, Ordering::SeqCst) < 3 => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    put(&store, "question.v1", json!({})).await;
    let runtime = runtime(
        &store,
        vec![Probe::on("question.v1", "prober", &flaky).shared()],
    );

    let report = runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    assert_eq!(report.responded, 1);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_away_for_a_while_is_asked_again() {
    let store = MemoryStore::default();
    let began = Instant::now();
    let outage = Shim::new(&store, move |call| match call {
        Call::Claim if began.elapsed() < 10 * SECOND => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    put(&store, "question.v1", json!({})).await;
    let runtime = runtime(
        &store,
        vec![Probe::on("question.v1", "prober", &outage).shared()],
    );

    runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    assert!(began.elapsed() < 12 * SECOND, "{:?}", began.elapsed());
}

#[test]
fn an_invalid_runtime_is_refused_when_it_is_built() {
    let store = MemoryStore::default();
    let probe = || Probe::on("question.v1", "prober", &store);
    let builder = || Runtime::builder(store.events());

    let twice = builder()
        .executor(probe())
        .executor(probe())
        .build()
        .unwrap_err();
    let no_place = builder().concurrency(0).build().unwrap_err();
    let no_sweep = builder().sweep_every(Duration::ZERO).build().unwrap_err();
    let plain = Shim::new(&store, |_| Do::Pass).able_to(Capabilities::default());
    let deletions = Subscription::trigger("question.v1").on([EventKind::Deleted]);
    let deaf = builder()
        .executor(Probe::new("deaf", &plain, [deletions]))
        .build()
        .unwrap_err();

    assert_eq!(
        twice.to_string(),
        r#"two executors have the ID "prober"; give one of them another ID"#
    );
    assert_eq!(
        no_place.to_string(),
        "cannot build the runtime: concurrency must be more than zero"
    );
    assert_eq!(
        no_sweep.to_string(),
        "cannot build the runtime: sweep_every must be more than zero"
    );
    assert!(matches!(deaf, RuntimeError::Invalid(_)), "{deaf:?}");
    for error in [twice, no_place, no_sweep, deaf] {
        assert_eq!(error.retry(), Retry::Never);
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ends_is_subscribed_to_again_from_its_position() {
    let store = MemoryStore::default();
    let mut events = Vec::new();
    for n in 0..3 {
        let question = put(&store, "question.v1", json!({"n": n})).await;
        events.push((n + 7, event_of(&question)));
    }
    // Nothing was committed in the last hour, so the runtime finds nothing in the store before the source delivers events.
    tokio::time::advance(7_200 * SECOND).await;
    put(&store, "note.v1", json!({})).await;
    let last = events.split_off(2);
    let source = Played::new([Vec::new(), events, last]);
    let probe = Probe::on("question.v1", "prober", &store).shared();
    let runtime = Runtime::builder(source.clone())
        .start_at(StartAt::Beginning)
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();

    runtime
        .run_until(until(&store, "answer.v1", 3))
        .await
        .unwrap();

    let from = source.0.from.lock().unwrap().clone();
    assert_eq!(
        from,
        [StartAt::Beginning, StartAt::Beginning, StartAt::After(8)]
    );
    assert_eq!(probe.executed(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_event_is_harmless() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let frames = (1..=5).map(|position| (position, event_of(&question)));
    let source = Played::new([frames.collect()]);
    let probe = Probe::on("question.v1", "prober", &store).shared();
    let runtime = Runtime::builder(source.clone())
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();

    let done =
        eventually(async || source.told().len() == 5 && count(&store, "answer.v1").await > 0);
    runtime.run_until(done).await.unwrap();

    assert_eq!((probe.executed(), count(&store, "answer.v1").await), (1, 1));
}

/// A source that is unavailable.
struct Away;

#[async_trait]
impl EventSource for Away {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        Err(SourceError::Unavailable {
            retry_after: 3 * SECOND,
            source: "connection refused".into(),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_reached_at_the_start_is_an_error() {
    let store = MemoryStore::default();
    let runtime = Runtime::builder(Away)
        .executor(Probe::on("question.v1", "prober", &store))
        .build()
        .unwrap();

    let error = runtime.run_until(std::future::pending()).await.unwrap_err();

    assert!(matches!(error, RuntimeError::Source(_)), "{error:?}");
    assert_eq!(error.retry(), Retry::After(3 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn events_dropped_by_the_source_are_counted() {
    let mut limits = MemoryLimits::default();
    limits.events = 10;
    let store = MemoryStore::with_limits(limits);
    for n in 0..100 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let probe = Probe::on("question.v1", "prober", &store)
        .writing(Response::none())
        .shared();
    let runtime = Runtime::builder(store.events())
        .start_at(StartAt::After(0))
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();

    let done = eventually(async || probe.executed() >= 10);
    let report = runtime.run_until(done).await.unwrap();

    assert_eq!((report.missed, report.events), (90, 10));
}

#[tokio::test(start_paused = true)]
async fn a_timed_suspension_wakes_up_by_itself() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let until_then = question.updated_at + 60 * SECOND;
    let waits = Probe::on("question.v1", "waits", &store)
        .executing(move |context| async move {
            match context.resumed() {
                None => Err(suspend(Wake::at(until_then), json!({})).writing(Response::none())),
                Some(resumed) => Ok(json!({"with": resumed.with.is_some()})),
            }
        })
        .shared();
    let runtime = runtime(&store, vec![waits.clone()]);
    let began = Instant::now();

    let report = runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    let took = began.elapsed();
    assert!(took >= 59 * SECOND && took <= 66 * SECOND, "{took:?}");
    assert_eq!((report.suspended, report.responded), (1, 1));
    assert_eq!(waits.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn runs_that_subscriptions_no_longer_ask_for_are_skipped() {
    let store = MemoryStore::default();
    let old = put(&store, "old.v1", json!({})).await;
    let noted = put(&store, "noted.v1", json!({})).await;
    let rows = [&old, &noted].map(|trigger| NewRun::from(RunRef::of("prober", &event_of(trigger))));
    store.enqueue(rows.into()).await.unwrap();
    let subscriptions = [
        Subscription::trigger("new.v1"),
        Subscription::context("noted.v1"),
    ];
    let probe = Probe::new("prober", &store, subscriptions).shared();
    let runtime = runtime(&store, vec![probe.clone()]);

    let report = runtime.run_until(until_over(&store)).await.unwrap();

    let rows = runs(&store).await;
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(
            (row.state, row.reason.as_deref()),
            (RunState::Skipped, Some("unmatched"))
        );
    }
    assert_eq!((report.skipped, probe.executed()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn two_busy_executors_share_one_place() {
    let store = MemoryStore::default();
    let order = Arc::new(Mutex::new(String::new()));
    let busy = |id: &'static str| {
        let order = Arc::clone(&order);
        Probe::on(&format!("{id}.v1"), id, &store)
            .executing(move |_| {
                order.lock().unwrap().push_str(id);
                async {
                    sleep(SECOND).await;
                    Ok(json!({}))
                }
            })
            .shared()
    };
    for id in ["a", "b"] {
        for _ in 0..20 {
            put(&store, &format!("{id}.v1"), json!({})).await;
        }
    }
    let rows = all(&store, "a.v1")
        .await
        .into_iter()
        .chain(all(&store, "b.v1").await);
    let rows = rows.map(|trigger| {
        let executor = trigger
            .schema_name
            .as_ref()
            .unwrap()
            .trim_end_matches(".v1")
            .to_owned();
        NewRun::from(RunRef::of(executor, &event_of(&trigger)))
    });
    store.enqueue(rows.collect()).await.unwrap();
    let runtime = Runtime::builder(store.events())
        .executor(busy("a"))
        .executor(busy("b"))
        .concurrency(1)
        .build()
        .unwrap();

    runtime
        .run_until(until(&store, "answer.v1", 40))
        .await
        .unwrap();

    let first = order.lock().unwrap().chars().take(20).collect::<String>();
    assert!((9..=11).contains(&first.matches('a').count()), "{first}");
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_executors_runs_end_to_end_over_breadcrumbs() {
    let store = MemoryStore::default();
    let step = |from: &str, to: &'static str| {
        Probe::on(from, to, &store)
            .executing(|context| async move {
                let n = context.trigger().context["n"].as_i64().unwrap_or(0);
                Ok(json!({"n": n + 1}))
            })
            .responding(move |_, output| {
                Ok(Response::create(
                    NewBreadcrumb::new(format!("{to}.v1")).context(output),
                ))
            })
            .shared()
    };
    let steps = [step("start.v1", "a"), step("a.v1", "b"), step("b.v1", "c")];
    let runtime = runtime(&store, steps.map(|step| step as _).into());
    let start = NewBreadcrumb::new("start.v1")
        .tag("session:7")
        .context(json!({"n": 0}));
    let start = universal_executor::BreadcrumbStoreExt::create(&store, start)
        .await
        .unwrap();

    let report = runtime.run_until(until(&store, "c.v1", 1)).await.unwrap();

    let end = all(&store, "c.v1").await.remove(0);
    assert_eq!(
        (&end.context["n"], &end.tags),
        (&json!(3), &vec!["session:7".to_owned()])
    );
    let creator = &end.context["creator"];
    assert_eq!((&creator["hops"], &creator["id"]), (&json!(3), &json!("c")));
    assert_eq!(creator["correlation_id"], start.id.to_string());
    assert_eq!(report.responded, 3);
}

#[tokio::test(start_paused = true)]
async fn a_cycle_of_executors_comes_to_an_end_by_itself() {
    let store = MemoryStore::default();
    let step = |from: &str, to: &str| {
        let next = Response::create(NewBreadcrumb::new(to));
        Probe::on(from, from, &store).writing(next).shared()
    };
    let runtime = runtime(&store, vec![step("a.v1", "b.v1"), step("b.v1", "a.v1")]);
    put(&store, "a.v1", json!({})).await;

    let done = async {
        until(&store, "executor.failed.v1", 1).await;
        until_over(&store).await;
    };
    let report = runtime.run_until(done).await.unwrap();

    assert_eq!((report.responded, report.failed), (16, 1));
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_on_one_store_answer_once() {
    let store = MemoryStore::default();
    let slow = |store: &MemoryStore| {
        Probe::on("question.v1", "slow", store)
            .executing(|_| async {
                sleep(SECOND).await;
                Ok(json!({}))
            })
            .shared()
    };
    let (here, there) = (slow(&store), slow(&store.clone()));
    let (one, two) = (
        runtime(&store, vec![here.clone()]),
        runtime(&store, vec![there.clone()]),
    );
    for n in 0..20 {
        put(&store, "question.v1", json!({"n": n})).await;
    }

    let done = || async {
        until(&store, "answer.v1", 20).await;
        until_over(&store).await;
    };
    let (first, second) = tokio::join!(one.run_until(done()), two.run_until(done()));

    assert_eq!(here.executed() + there.executed(), 20);
    assert_eq!(first.unwrap().responded + second.unwrap().responded, 20);
    assert_eq!(count(&store, "answer.v1").await, 20);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_runtime_resumes_after_the_last_event() {
    let store = MemoryStore::default();
    let probe = Probe::on("question.v1", "prober", &store).shared();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();
    let first = async {
        put(&store, "question.v1", json!({"n": 1})).await;
        until(&store, "answer.v1", 1).await;
    };
    runtime.run_until(first).await.unwrap();
    put(&store, "question.v1", json!({"n": 2})).await;

    runtime
        .run_until(until(&store, "answer.v1", 2))
        .await
        .unwrap();

    assert_eq!(probe.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_could_not_be_enqueued_is_enqueued_by_the_next_run() {
    let store = MemoryStore::default();
    let is_down = Arc::new(AtomicUsize::new(1));
    let down = Arc::clone(&is_down);
    let flaky = Shim::new(&store, move |call| match call {
        Call::Enqueue if down.load(Ordering::SeqCst) == 1 => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let runtime = Runtime::builder(store.events())
        .executor(Probe::on("question.v1", "prober", &flaky))
        .build()
        .unwrap();
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        sleep(3 * SECOND).await;
    };
    runtime.run_until(asked).await.unwrap();
    put(&store, "noise.v1", json!({})).await;
    is_down.store(0, Ordering::SeqCst);

    let report = runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    assert_eq!(report.responded, 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_without_its_context_makes_runs_only_for_the_executors_it_concerns() {
    let store = MemoryStore::default();
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let shim = Shim::new(&store, move |call| {
        if matches!(call, Call::Get(_)) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Do::Pass
    });
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(shim);
    let tools = (0..100).map(|number| {
        let request =
            Subscription::trigger("request.v1").matching("$.tool", "eq", format!("tool-{number}"));
        Probe::new(&format!("tool-{number}"), &shared, [request]).shared()
    });
    // Probes box their store, so each has a separate handle. `OneStore` makes them share one handle.
    let tools: Vec<Arc<OneStore>> = tools
        .map(|probe| Arc::new(OneStore(probe, Arc::clone(&shared))))
        .collect();
    let executors = tools.iter().map(|tool| Arc::clone(tool) as Arc<_>);
    let large = json!({"tool": "tool-7", "text": "x".repeat(Event::MAX_CONTEXT_BYTES)});
    put(&store, "request.v1", large).await;

    let report = runtime(&store, executors.collect())
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    let rows = runs(&store).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((report.responded, report.skipped), (1, 0));
    assert!(reads.load(Ordering::SeqCst) < 10);
}

/// A probe on a shared store handle.
struct OneStore(Arc<Probe>, Arc<dyn BreadcrumbStore>);

#[async_trait]
impl UniversalExecutor for OneStore {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.0.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.1
    }

    async fn execute(&self, one: &Breadcrumb, two: &ExecutionContext) -> Result<Value, BoxError> {
        self.0.execute(one, two).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.0.respond(trigger, output).await
    }
}
