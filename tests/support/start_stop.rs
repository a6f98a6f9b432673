//! Random interleavings of posts, starts, stops and drops of runtimes on one store: each trigger is answered exactly once.
//!
//! `START_STOP_CASES` sets the number of cases, and `START_STOP_SEED` the seed of the random numbers.

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use universal_executor::runtime::{RunReport, RuntimeError};
use universal_executor::source::StartAt;
use universal_executor::store::conformance::StoreUnderTest;
use universal_executor::store::{Run, RunFilter, RunState, StoreWithEvents};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, EventSource, ExecutionContext,
    NewBreadcrumb, Response, Runtime, Subscription, Subscriptions, UniversalExecutor, async_trait,
};

/// Maximum number of runtimes at the same time.
const SLOTS: usize = 3;

/// Maximum time without progress. It is shorter than a lease, so a run that waits for the end of its lease fails the test.
const MAX_IDLE: Duration = Duration::from_secs(20);

/// Maximum number of breadcrumbs of one schema in a case.
const MAX_BREADCRUMBS: usize = 1_000;

/// A store on which runtimes are started and stopped.
pub(crate) trait Restarted: StoreUnderTest<Store: StoreWithEvents> + Default {
    /// Returns the events of a named consumer whose position the store remembers, or `None` if the store has no named consumers.
    fn events_of(store: &Self::Store, consumer: &str) -> Option<Box<dyn EventSource>>;
}

/// One step of an interleaving.
#[derive(Clone, Debug)]
enum Action {
    /// Posts notes.
    Post(u8),
    /// Starts the runtime of a slot. The future that stops the runtime posts notes first.
    Start { slot: usize, posts: u8 },
    /// Signals the runtime of a slot to stop, without waiting for its end.
    Signal(usize),
    /// Signals the runtime of a slot to stop, and waits for its end.
    Stop(usize),
    /// Drops the `run_until` future of a slot.
    Drop(usize),
    /// Drops the `run_until` future of a slot and its runtime. The next start builds another runtime.
    Replace(usize),
    /// Makes executions wait until they are released.
    Hold,
    /// Releases all executions.
    Release,
    /// Lets the runtimes work for a number of turns.
    Work(u8),
}

/// The position at which the runtimes subscribe.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Start {
    /// The beginning of the store.
    Beginning,
    /// The current time. The runtime of slot 0 is never replaced, because only that runtime knows its position.
    Now,
    /// The current time, for consumers whose positions the store remembers. Stores without named consumers use `Beginning`.
    Named,
    /// The executor's saved position, or one hour ago without a saved position.
    OnStore,
}

/// An interleaving, and the settings of all its runtimes.
#[derive(Clone, Debug)]
struct Case {
    start: Start,
    max_inflight: usize,
    drain: Duration,
    actions: Vec<Action>,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1..4_u8).prop_map(Action::Post),
        6 => (0..SLOTS, 0..3_u8).prop_map(|(slot, posts)| Action::Start { slot, posts }),
        2 => (0..SLOTS).prop_map(Action::Signal),
        3 => (0..SLOTS).prop_map(Action::Stop),
        4 => (0..SLOTS).prop_map(Action::Drop),
        2 => (0..SLOTS).prop_map(Action::Replace),
        1 => Just(Action::Hold),
        1 => Just(Action::Release),
        6 => (0..30_u8).prop_map(Action::Work),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let start = prop::sample::select(vec![
        Start::Beginning,
        Start::Now,
        Start::Named,
        Start::OnStore,
    ]);
    let drain = prop::sample::select(vec![0, 20]).prop_map(Duration::from_millis);
    (start, 1..4_usize, drain, vec(action(), 1..40)).prop_map(
        |(start, max_inflight, drain, actions)| Case {
            start,
            max_inflight,
            drain,
            actions,
        },
    )
}

/// An executor that answers each note once the gate is open.
struct Answerer<S> {
    subscriptions: Subscriptions,
    store: S,
    gate: watch::Receiver<bool>,
    /// The highest attempt number so far.
    attempt: Arc<AtomicU32>,
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Answerer<S> {
    fn id(&self) -> &'static str {
        "answerer"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, cx: &ExecutionContext) -> Result<Value, BoxError> {
        self.attempt.fetch_max(cx.attempt(), Ordering::Relaxed);
        self.gate.clone().wait_for(|open| *open).await?;
        Ok(json!({}))
    }

    async fn respond(&self, note: &Breadcrumb, _: Value) -> Result<Response, BoxError> {
        let answer = json!({"note": note.id});
        Ok(Response::create(
            NewBreadcrumb::new("answer.v1").context(answer),
        ))
    }
}

async fn post(store: &impl BreadcrumbStore, notes: u8) {
    for _ in 0..notes {
        store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    }
}

/// A runtime, and its current call of `run_until`.
#[derive(Default)]
struct RuntimeSlot {
    runtime: Option<Arc<Runtime>>,
    call: Option<Call>,
}

/// A call of `run_until`.
struct Call {
    signals: UnboundedSender<()>,
    /// `true` once the future that stops the runtime has posted its notes.
    posted: watch::Receiver<bool>,
    task: JoinHandle<Result<RunReport, RuntimeError>>,
    was_signalled: bool,
}

struct World<S: Restarted> {
    subject: S,
    store: S::Store,
    case: Case,
    slots: [RuntimeSlot; SLOTS],
    gate: watch::Sender<bool>,
    attempt: Arc<AtomicU32>,
}

impl<S: Restarted> World<S>
where
    S::Store: 'static,
{
    async fn new(case: Case) -> Self {
        let subject = S::default();
        let mut world = Self {
            store: subject.fresh().await,
            subject,
            case,
            slots: Default::default(),
            gate: watch::Sender::new(true),
            attempt: Arc::default(),
        };
        if matches!(world.case.start, Start::Now | Start::Named) {
            // Runtime 0 starts first, because a source at `Now` delivers only events after its first subscription.
            world.start(0, 0).await;
            world.posted(0).await;
        }
        world
    }

    fn runtime(&self, slot: usize) -> Runtime {
        let store = self.store.clone();
        let all = || self.subject.events(&store).unwrap();
        let builder = match self.case.start {
            Start::Beginning => Runtime::builder(all()).start_at(StartAt::Beginning),
            Start::Now => Runtime::builder(all()),
            Start::Named => match S::events_of(&store, &format!("slot-{slot}")) {
                Some(events) => Runtime::builder(events),
                None => Runtime::builder(all()).start_at(StartAt::Beginning),
            },
            Start::OnStore => Runtime::on(&store),
        };
        let notes = Subscription::trigger("note.v1");
        builder
            .max_inflight(self.case.max_inflight)
            .drain_timeout(self.case.drain)
            .sweep_every(Duration::from_millis(50))
            .executor(Answerer {
                subscriptions: Subscriptions::new([notes]).unwrap(),
                store,
                gate: self.gate.subscribe(),
                attempt: Arc::clone(&self.attempt),
            })
            .build()
            .unwrap()
    }

    async fn start(&mut self, slot: usize, posts: u8) {
        match &self.slots[slot].call {
            Some(call) if call.was_signalled => self.stop(slot).await,
            Some(_) => return,
            None => {}
        }
        if self.slots[slot].runtime.is_none() {
            self.slots[slot].runtime = Some(Arc::new(self.runtime(slot)));
        }
        let runtime = Arc::clone(self.slots[slot].runtime.as_ref().unwrap());
        let (signals, mut received) = unbounded();
        let (has_posted, posted) = watch::channel(false);
        let store = self.store.clone();
        let stop = async move {
            post(&store, posts).await;
            has_posted.send_replace(true);
            received.next().await;
        };
        let task = tokio::spawn(async move { runtime.run_until(stop).await });
        self.slots[slot].call = Some(Call {
            signals,
            posted,
            task,
            was_signalled: false,
        });
    }

    /// Waits until the future that stops the runtime of a slot has posted its notes.
    async fn posted(&mut self, slot: usize) {
        if let Some(call) = &mut self.slots[slot].call {
            let posted = timeout(MAX_IDLE, call.posted.wait_for(|posted| *posted));
            posted.await.unwrap().unwrap();
        }
    }

    fn signal(&mut self, slot: usize) {
        if let Some(call) = &mut self.slots[slot].call {
            call.was_signalled = true;
            drop(call.signals.unbounded_send(()));
        }
    }

    async fn stop(&mut self, slot: usize) {
        self.signal(slot);
        if let Some(call) = self.slots[slot].call.take() {
            let ended = timeout(MAX_IDLE, call.task).await;
            let report = ended.unwrap().unwrap().unwrap();
            assert_eq!((report.errors, report.panics), (0, 0), "{report:?}");
        }
        self.nothing_remains_running().await;
    }

    async fn abandon(&mut self, slot: usize) {
        if let Some(call) = self.slots[slot].call.take() {
            call.task.abort();
            drop(call.task.await);
        }
        self.nothing_remains_running().await;
    }

    async fn act(&mut self, action: &Action) {
        match *action {
            Action::Post(notes) => post(&self.store, notes).await,
            Action::Start { slot, posts } => self.start(slot, posts).await,
            Action::Signal(slot) => self.signal(slot),
            Action::Stop(slot) => self.stop(slot).await,
            Action::Replace(0) if self.case.start == Start::Now => self.abandon(0).await,
            Action::Drop(slot) => self.abandon(slot).await,
            Action::Replace(slot) => {
                // The runtime is dropped first, so that the task holds its last handle.
                self.slots[slot].runtime = None;
                self.abandon(slot).await;
            }
            Action::Hold => drop(self.gate.send_replace(false)),
            Action::Release => drop(self.gate.send_replace(true)),
            Action::Work(turns) => {
                for _ in 0..turns {
                    self.runs().await;
                    yield_now().await;
                }
            }
        }
    }

    async fn runs(&self) -> Vec<Run> {
        let ledger = self.store.ledger().unwrap();
        ledger.runs(&RunFilter::all()).await.unwrap()
    }

    /// Fails if a run stays in the running state without a runtime, because a lease was neither used nor released.
    async fn nothing_remains_running(&self) {
        if self.slots.iter().any(|slot| slot.call.is_some()) {
            return;
        }
        let released = async {
            loop {
                let runs = self.runs().await;
                if runs.iter().all(|run| run.state != RunState::Running) {
                    break;
                }
                // Dropped work is released in the background, without an event.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = timeout(MAX_IDLE, released).await.is_ok();
        assert!(in_time, "a lease was not released: {:?}", self.runs().await);
    }

    /// Starts all runtimes, waits until all notes are answered, and stops the runtimes.
    async fn finish(&mut self) {
        self.gate.send_replace(true);
        for slot in 0..SLOTS {
            self.start(slot, 0).await;
            self.posted(slot).await;
        }
        let notes = self
            .store
            .recent("note.v1", MAX_BREADCRUMBS)
            .await
            .unwrap()
            .len();
        let events = self.subject.events(&self.store).unwrap();
        let mut events = events.subscribe(StartAt::Beginning).await.unwrap();
        let mut answers = 0;
        while answers < notes {
            let Ok(event) = timeout(MAX_IDLE, events.next()).await else {
                let runs = self.runs().await;
                panic!("{answers} answers for {notes} notes: {runs:?}");
            };
            let event = event.unwrap().unwrap().event;
            answers += usize::from(event.schema_name.as_deref() == Some("answer.v1"));
        }
        for slot in 0..SLOTS {
            self.stop(slot).await;
        }
    }

    /// Fails unless each note has exactly one answer, each run is done, and no execution was a second attempt.
    async fn check(&self) {
        let notes = self.store.recent("note.v1", MAX_BREADCRUMBS).await.unwrap();
        let answers = self
            .store
            .recent("answer.v1", MAX_BREADCRUMBS)
            .await
            .unwrap();
        let mut by_note: BTreeMap<String, usize> = BTreeMap::new();
        for answer in &answers {
            let note = answer.context["note"].as_str().unwrap().to_owned();
            *by_note.entry(note).or_default() += 1;
        }
        let wanted = notes.iter().map(|note| (note.id.to_string(), 1)).collect();
        assert_eq!(by_note, wanted, "answers by note");
        let runs = self.runs().await;
        let done = runs.iter().filter(|run| run.state == RunState::Done);
        assert_eq!((done.count(), runs.len()), (notes.len(), notes.len()));
        let attempt = self.attempt.load(Ordering::Relaxed);
        assert!(attempt <= 1, "a stop or a drop counted as an attempt");
    }
}

/// Returns the number in an environment variable, or `None` if the variable is not set.
pub(crate) fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap())
}

/// Runs `cases` random interleavings on stores of `S`, or the number in `START_STOP_CASES`.
pub(crate) fn each_trigger_is_answered_once<S: Restarted>(cases: u32)
where
    S::Store: 'static,
{
    let cases = variable("START_STOP_CASES").map_or(cases, |cases| cases.try_into().unwrap());
    let config = Config {
        rng_seed: RngSeed::Fixed(variable("START_STOP_SEED").unwrap_or_default()),
        failure_persistence: None,
        // A test on a store with a real clock needs `MAX_IDLE` to notice a lost run.
        max_shrink_time: 60_000,
        ..Config::with_cases(cases)
    };
    proptest!(config, |(case in case())| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::<S>::new(case.clone()).await;
            for action in &case.actions {
                world.act(action).await;
            }
            world.finish().await;
            world.check().await;
        });
    });
}
