//! Executors on a store without a ledger: the crate adds a ledger in memory for the life of the process.
//!
//! Each `Shim::without_ledger` has a unique identity, so a second one on the same data represents a new process.

use crate::support::{Call, Do, Probe, Shim, all, event_of, eventually, put, unavailable};
use futures::StreamExt as _;
use serde_json::json;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;
use universal_executor::executor::{ExecutorError, OrderingKey};
use universal_executor::model::Timestamp;
use universal_executor::source::{Deliveries, Receipt, SourceError, StartAt};
use universal_executor::store::{FailureClass, RunState};
use universal_executor::{
    Breadcrumb, BreadcrumbStore as _, Delivery, Event, EventSource, MemoryStore, Outcome, Profile,
    Runtime, UniversalExecutor as _, async_trait,
};

const SECOND: Duration = Duration::from_secs(1);

/// A queue that delivers an event again after a nack, and after a restart unless the event was acknowledged.
#[derive(Clone, Default)]
struct Queue(Arc<Mutex<Unacknowledged>>);

#[derive(Default)]
struct Unacknowledged {
    events: Vec<Event>,
    told: Vec<&'static str>,
    again: Option<mpsc::UnboundedSender<Event>>,
}

impl Queue {
    fn of(breadcrumbs: &[&Breadcrumb]) -> Self {
        let queue = Self::default();
        let events = breadcrumbs.iter().map(|one| event_of(one)).collect();
        queue.0.lock().unwrap().events = events;
        queue
    }

    fn told(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().told.clone()
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap().events.is_empty()
    }

    fn delivery(&self, event: Event) -> Result<Delivery, SourceError> {
        let (queue, of) = (self.clone(), event.clone());
        Ok(Delivery::new(event).with_receipt(Arc::new(Ticket { queue, of })))
    }
}

struct Ticket {
    queue: Queue,
    of: Event,
}

#[async_trait]
impl Receipt for Ticket {
    async fn ack(&self) -> Result<(), SourceError> {
        let mut queue = self.queue.0.lock().unwrap();
        queue.told.push("ack");
        let id = self.of.breadcrumb_id;
        queue.events.retain(|event| event.breadcrumb_id != id);
        Ok(())
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        let mut queue = self.queue.0.lock().unwrap();
        queue.told.push("nack");
        if let Some(again) = queue.again.clone() {
            let event = self.of.clone();
            tokio::spawn(async move {
                sleep(delay).await;
                drop(again.send(event));
            });
        }
        Ok(())
    }
}

#[async_trait]
impl EventSource for Queue {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let (again, redelivered) = mpsc::unbounded_channel();
        let events = self.0.lock().unwrap().events.clone();
        events
            .into_iter()
            .for_each(|event| again.send(event).unwrap());
        self.0.lock().unwrap().again = Some(again);
        let queue = self.clone();
        let deliveries = futures::stream::unfold(redelivered, |mut redelivered| async {
            Some((redelivered.recv().await?, redelivered))
        });
        let deliveries = deliveries.map(move |event| queue.delivery(event));
        Ok(Deliveries::new(deliveries))
    }
}

fn runtime(queue: &Queue, probe: &Arc<Probe>) -> Runtime {
    let builder = Runtime::builder(queue.clone()).executor(Arc::clone(probe));
    builder.build().unwrap()
}

/// Runs a runtime until all events of the queue are acknowledged.
async fn run_until_acknowledged(queue: &Queue, probe: &Arc<Probe>) {
    let acknowledged = eventually(async || queue.is_empty());
    runtime(queue, probe).run_until(acknowledged).await.unwrap();
}

fn prober(store: &Shim) -> Probe {
    Probe::on("question.v1", "prober", store)
}

async fn answers(store: &MemoryStore) -> usize {
    all(store, "answer.v1").await.len()
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_processed_by_hand_is_not_answered_again_by_a_runtime() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let probe = prober(&Shim::without_ledger(&store)).shared();
    let queue = Queue::of(&[&question]);

    let by_hand = probe.sees(&question).await.unwrap();
    run_until_acknowledged(&queue, &probe).await;

    assert!(matches!(by_hand, Outcome::Responded { .. }), "{by_hand:?}");
    assert_eq!((probe.executed(), answers(&store).await), (1, 1));
    assert_eq!(queue.told(), ["ack"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_a_runtime_answered_is_not_answered_again_by_hand() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let plain = Shim::without_ledger(&store);
    let probe = prober(&plain).shared();

    run_until_acknowledged(&Queue::of(&[&question]), &probe).await;
    let by_hand = prober(&plain.clone()).sees(&question).await.unwrap();

    let state = RunState::Done;
    assert!(
        matches!(by_hand, Outcome::AlreadyDone { state: found, .. } if found == state),
        "{by_hand:?}"
    );
    assert_eq!(answers(&store).await, 1);
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_on_one_store_answer_an_event_once_and_both_acknowledge_it() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let plain = Shim::without_ledger(&store);
    let slow = || {
        let probe = prober(&plain).executing(|_| async {
            sleep(SECOND).await;
            Ok(json!({}))
        });
        probe.shared()
    };
    let (one, other) = (Queue::of(&[&question]), Queue::of(&[&question]));

    let (first, second) = (slow(), slow());
    tokio::join!(
        run_until_acknowledged(&one, &first),
        run_until_acknowledged(&other, &second),
    );

    assert_eq!((one.told(), other.told()), (vec!["ack"], vec!["ack"]));
    assert_eq!(first.executed() + second.executed(), 1);
    assert_eq!(answers(&store).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_by_hand_while_its_delivery_waits_is_acknowledged() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let plain = Shim::without_ledger(&store);
    // The first attempt, in the runtime, asks for a long delay, so that the test can make the second attempt itself.
    let waits = prober(&plain)
        .profile(Profile::default().attempts(9))
        .failing(|| universal_executor::retry_after(3_600 * SECOND, "429"))
        .shared();
    let queue = Queue::of(&[&question]);
    let scenario = async {
        eventually(async || queue.told() == ["nack"]).await;
        let event = event_of(&question);
        queue
            .0
            .lock()
            .unwrap()
            .again
            .clone()
            .unwrap()
            .send(event)
            .unwrap();
        sleep(SECOND).await;
        assert!(!queue.is_empty());
        prober(&plain).sees(&question).await.unwrap();
        eventually(async || queue.is_empty()).await;
    };

    runtime(&queue, &waits).run_until(scenario).await.unwrap();

    assert_eq!(queue.told(), ["nack", "ack"]);
    assert_eq!((waits.executed(), answers(&store).await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_end_of_a_run_loses_no_delivery() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let queue = Queue::of(&[&question]);
    let dies = prober(&Shim::without_ledger(&store)).hanging().shared();
    let first = runtime(&queue, &dies);
    tokio::select! {
        _ = first.run_until(pending()) => {}
        () = eventually(async || dies.executed() == 1) => {}
    }
    drop(first);
    sleep(60 * SECOND).await;
    assert_eq!(queue.told(), [""; 0]);

    let probe = prober(&Shim::without_ledger(&store)).shared();
    run_until_acknowledged(&queue, &probe).await;

    assert_eq!(queue.told(), ["ack"]);
    assert_eq!((probe.executed(), answers(&store).await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_run_waits_for_its_retry_loses_no_delivery() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let queue = Queue::of(&[&question]);
    let fails = prober(&Shim::without_ledger(&store)).failing(|| "reset".into());
    let fails = fails.shared();
    let first = runtime(&queue, &fails);
    tokio::select! {
        _ = first.run_until(pending()) => {}
        () = eventually(async || fails.executed() == 1) => {}
    }
    drop(first);

    let probe = prober(&Shim::without_ledger(&store)).shared();
    run_until_acknowledged(&queue, &probe).await;

    assert_eq!((probe.executed(), answers(&store).await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_failed_comes_again_and_is_acknowledged_after_the_retry() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let attempts = AtomicUsize::new(0);
    let probe = prober(&Shim::without_ledger(&store)).executing(move |_| {
        let first = attempts.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match first {
                true => Err("reset".into()),
                false => Ok(json!({})),
            }
        }
    });
    let (queue, probe) = (Queue::of(&[&question]), probe.shared());

    run_until_acknowledged(&queue, &probe).await;

    assert_eq!(queue.told(), ["nack", "ack"]);
    assert_eq!((probe.executed(), answers(&store).await), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_acknowledged_when_the_runs_of_all_executors_have_ended() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let plain = Shim::without_ledger(&store);
    let queue = Queue::of(&[&question]);
    let early = queue.clone();
    let slow = Probe::on("question.v1", "slow", &plain).executing(move |_| {
        let early = early.clone();
        async move {
            sleep(SECOND).await;
            Ok(json!({"told": early.told()}))
        }
    });
    let runtime = Runtime::builder(queue.clone())
        .executor(prober(&plain))
        .executor(slow)
        .build()
        .unwrap();

    let acknowledged = eventually(async || queue.is_empty());
    let report = runtime.run_until(acknowledged).await.unwrap();

    assert_eq!(all(&store, "answer.v1").await[0].context["told"], json!([]));
    assert_eq!(report.responded, 2);
    assert_eq!(report.without_ledger, ["prober", "slow"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_finishes_running_events_and_nacks_the_others() {
    let store = MemoryStore::default();
    let questions = [1, 2, 3].map(|n| put(&store, "question.v1", json!({"n": n})));
    let questions = futures::future::join_all(questions).await;
    let queue = Queue::of(&questions.iter().map(|one| &**one).collect::<Vec<_>>());
    let slow = prober(&Shim::without_ledger(&store)).executing(|_| async {
        sleep(SECOND).await;
        Ok(json!({}))
    });
    let slow = slow.shared();
    let first = Runtime::builder(queue.clone())
        .executor(Arc::clone(&slow))
        .max_inflight(1)
        .build()
        .unwrap();

    let started = eventually(async || slow.executed() == 1);
    let report = first.run_until(started).await.unwrap();

    assert_eq!((report.responded, report.dropped), (1, 0));
    let told = queue.told();
    assert_eq!(told.iter().filter(|what| **what == "ack").count(), 1);
    assert_eq!(told.iter().filter(|what| **what == "nack").count(), 2);
    let probe = prober(&Shim::without_ledger(&store)).shared();
    run_until_acknowledged(&queue, &probe).await;
    assert_eq!((probe.executed(), answers(&store).await), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_uses_its_attempts_up_leaves_one_dead_letter_and_its_event_is_acknowledged() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let probe = prober(&Shim::without_ledger(&store))
        .profile(Profile::default().attempts(3))
        .failing(|| "reset".into())
        .shared();
    let queue = Queue::of(&[&question]);

    run_until_acknowledged(&queue, &probe).await;

    assert_eq!(probe.executed(), 3);
    let letters = all(&store, "executor.failed.v1").await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].context["attempts"], 3);
    let class = FailureClass::AttemptsUsedUp.as_str();
    assert_eq!(letters[0].context["class"], class);
}

#[tokio::test(start_paused = true)]
async fn runs_of_one_key_take_turns() {
    let store = MemoryStore::default();
    let mut questions = Vec::new();
    for n in 0..5 {
        questions.push(put(&store, "question.v1", json!({"key": "a", "n": n})).await);
    }
    let queue = Queue::of(&questions.iter().map(|one| &**one).collect::<Vec<_>>());
    let (running, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(vec![])));
    let noted = Arc::clone(&seen);
    let probe = prober(&Shim::without_ledger(&store))
        .profile(Profile::default().ordering(OrderingKey::path("$.key").unwrap()))
        .executing(move |context| {
            let (running, seen) = (Arc::clone(&running), Arc::clone(&noted));
            async move {
                let others = running.fetch_add(1, Ordering::SeqCst);
                seen.lock()
                    .unwrap()
                    .push((others, context.trigger().context["n"].clone()));
                sleep(SECOND).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(json!({}))
            }
        });

    run_until_acknowledged(&queue, &probe.shared()).await;

    let expected: Vec<_> = (0..5).map(|n| (0, json!(n))).collect();
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_response_is_written_later_without_another_execution_if_the_store_is_down() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let commits = AtomicUsize::new(0);
    let down = Shim::new(&store, move |call| match call {
        Call::Commit(_) if commits.fetch_add(1, Ordering::SeqCst) < 3 => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let down = down.ledgerless();
    let (queue, probe) = (Queue::of(&[&question]), prober(&down).shared());

    run_until_acknowledged(&queue, &probe).await;

    assert_eq!((probe.executed(), answers(&store).await), (1, 1));
}

#[tokio::test]
async fn after_a_restart_a_trigger_is_executed_again() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;

    for _ in 0..2 {
        let probe = prober(&Shim::without_ledger(&store));
        let outcome = probe.sees(&question).await.unwrap();
        assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    }

    assert_eq!(answers(&store).await, 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_again_while_its_run_is_claimed_by_hand_waits_for_its_end() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let plain = Shim::without_ledger(&store);
    let slow = prober(&plain).executing(|_| async {
        sleep(10 * SECOND).await;
        Ok(json!({}))
    });
    let (by_hand, again) = (slow.sees(&question), prober(&plain));
    let meanwhile = async {
        sleep(SECOND).await;
        again.sees(&question).await
    };

    let (first, second) = tokio::join!(by_hand, meanwhile);

    assert!(matches!(first, Ok(Outcome::Responded { .. })), "{first:?}");
    assert!(
        matches!(second, Ok(Outcome::InProgress { .. })),
        "{second:?}"
    );
    assert_eq!(again.executed(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_reports_the_due_time_of_the_retry() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let probe = prober(&Shim::without_ledger(&store)).failing(|| "reset".into());

    let error = probe.sees(&question).await.unwrap_err();

    let ExecutorError::Postponed { run, source, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!((&*run.executor, run.trigger_id), ("prober", question.id));
    assert!(matches!(*source, ExecutorError::Execute(_)), "{source:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_search_for_an_earlier_answer_failed_is_executed_when_its_event_comes_again() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let searches = AtomicUsize::new(0);
    let down = Shim::new(&store, move |call| match call {
        Call::Search(_) if searches.fetch_add(1, Ordering::SeqCst) == 0 => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let able = store.capabilities().run_keys(true);
    let probe = prober(&down.able_to(able).ledgerless());

    // The event is so old that an earlier process may have answered it.
    let mut event = event_of(&question);
    event.updated_at = Timestamp::UNIX_EPOCH;

    let first = probe.process_event(&event).await;
    // The store has a ledger without this run, so it refuses the response.
    drop(probe.process_event(&event).await);

    let is_postponed = matches!(first, Err(ExecutorError::Postponed { .. }));
    assert!(is_postponed, "{first:?}");
    assert_eq!(probe.executed(), 1);
}
