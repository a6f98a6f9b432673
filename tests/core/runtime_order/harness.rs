//! Shared parts of these tests: scripted sources, a notebook of executions, and executors with a shared store handle.

use crate::support::{Probe, all, eventually, runs};
use futures::StreamExt as _;
use futures::stream::{self};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use universal_executor::runtime::RuntimeBuilder;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{Run, RunFilter, RunState};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Delivery, Event, EventSource,
    ExecutionContext, Failure, MemoryStore, NewBreadcrumb, Profile, Response, RunLedger, Runtime,
    Subscriptions, UniversalExecutor, async_trait,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Creates the builder of a runtime on all events of a store.
pub(crate) fn from_beginning(store: &MemoryStore) -> RuntimeBuilder {
    Runtime::builder(store.events()).start_at(StartAt::Beginning)
}

pub(crate) async fn count(store: &MemoryStore, schema: &str) -> usize {
    all(store, schema).await.len()
}

/// Waits until at least `n` breadcrumbs of a schema exist.
pub(crate) async fn until(store: &MemoryStore, schema: &str, n: usize) {
    eventually(async || count(store, schema).await >= n).await;
}

/// Waits until `n` runs exist and all of them have ended.
pub(crate) async fn until_ended(store: &MemoryStore, n: usize) {
    let open = [RunState::Ready, RunState::Running, RunState::Suspended];
    let open = open
        .into_iter()
        .fold(RunFilter::all(), RunFilter::state)
        .limit(1);
    // Reading all runs costs more than letting some of them continue, so the interval grows with the number of runs.
    let pause = Duration::from_millis(200 + n as u64 / 2);
    eventually(async || {
        tokio::time::sleep(pause).await;
        store.runs(&open).await.unwrap().is_empty() && runs(store).await.len() >= n
    })
    .await;
}

/// Returns the runs of the ledger in a state.
pub(crate) async fn in_state(store: &MemoryStore, state: RunState) -> Vec<Run> {
    let mut runs = runs(store).await;
    runs.retain(|run| run.state == state);
    runs
}

/// Writes a breadcrumb with a tag.
pub(crate) async fn tagged(
    store: &MemoryStore,
    schema: &str,
    tag: &str,
    context: Value,
) -> Arc<Breadcrumb> {
    let new = NewBreadcrumb::new(schema).tag(tag).context(context);
    store.create(new).await.unwrap()
}

/// A pseudorandom number generator with a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates a generator for one attempt at a trigger with `key` and `n`.
    pub(crate) fn of(seed: u64, context: &ExecutionContext) -> Self {
        let trigger = &context.trigger().context;
        let key = trigger["key"].as_str().unwrap_or_default();
        let name = format!("{seed} {key} {} {}", trigger["n"], context.attempt());
        let mixed = name.bytes().fold(seed, |mixed, byte| {
            mixed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        Self(mixed)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        // SplitMix64 of Steele, Lea and Flood.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % n
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// One call of `execute`.
#[derive(Clone, Debug)]
pub(crate) struct ExecutionRecord {
    pub(crate) key: String,
    pub(crate) n: u64,
    pub(crate) attempt: u32,
    pub(crate) start: Instant,
    /// End of the execution, or `None` while it runs and after it was dropped.
    pub(crate) end: Option<Instant>,
}

/// A record of all executions.
#[derive(Clone, Default)]
pub(crate) struct ExecutionLog(Arc<Mutex<Vec<ExecutionRecord>>>);

impl ExecutionLog {
    /// Records the start of a run with `key` and `n` in its trigger. Returns the index of the record.
    pub(crate) fn start(&self, context: &ExecutionContext) -> usize {
        let trigger = &context.trigger().context;
        let turn = ExecutionRecord {
            key: trigger["key"].as_str().unwrap_or_default().to_owned(),
            n: trigger["n"].as_u64().unwrap_or_default(),
            attempt: context.attempt(),
            start: Instant::now(),
            end: None,
        };
        let mut turns = self.0.lock().unwrap();
        turns.push(turn);
        turns.len() - 1
    }

    pub(crate) fn end(&self, note: usize) {
        self.0.lock().unwrap().get_mut(note).unwrap().end = Some(Instant::now());
    }

    /// Returns all executions in the order of their starts.
    pub(crate) fn turns(&self) -> Vec<ExecutionRecord> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn starts(&self) -> Vec<Instant> {
        self.turns().iter().map(|turn| turn.start).collect()
    }

    /// Returns the first execution for a key and number.
    pub(crate) fn of(&self, key: &str, n: u64) -> ExecutionRecord {
        let turns = self.turns();
        let mut turns = turns
            .into_iter()
            .filter(|turn| turn.key == key && turn.n == n);
        turns.next().unwrap()
    }

    /// Returns the maximum number of concurrent executions.
    pub(crate) fn max_concurrent(&self) -> usize {
        let turns = self.turns();
        let at = |moment: Instant| {
            let going_on = turns
                .iter()
                .filter(|turn| turn.start <= moment && turn.end.is_none_or(|end| end > moment));
            going_on.count()
        };
        turns.iter().map(|turn| at(turn.start)).max().unwrap_or(0)
    }

    /// Fails unless the executions of each key were sequential, in the order of their numbers.
    pub(crate) fn assert_in_order(&self) {
        let mut by_key: BTreeMap<String, Vec<ExecutionRecord>> = BTreeMap::new();
        for turn in self.turns() {
            by_key.entry(turn.key.clone()).or_default().push(turn);
        }
        for turns in by_key.values() {
            for (before, after) in turns.iter().zip(turns.iter().skip(1)) {
                let ended = before.end.is_some_and(|end| end <= after.start);
                assert!(ended, "at a time: {before:?} and {after:?}");
                assert!(before.n <= after.n, "out of order: {before:?}, {after:?}");
            }
        }
    }
}

/// A source that plays some deliveries and then stays silent.
pub(crate) struct Played(Mutex<VecDeque<Event>>);

impl Played {
    pub(crate) fn new(events: impl IntoIterator<Item = Event>) -> Self {
        Self(Mutex::new(events.into_iter().collect()))
    }
}

#[async_trait]
impl EventSource for Played {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let events = std::mem::take(&mut *self.0.lock().unwrap());
        let deliveries = stream::iter(events).map(|event| Ok(Delivery::new(event)));
        Ok(Deliveries::new(deliveries.chain(stream::pending())))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

/// A probe with a shared store handle.
pub(crate) struct SharedStoreProbe {
    pub(crate) probe: Probe,
    pub(crate) store: Arc<dyn BreadcrumbStore>,
}

#[async_trait]
impl UniversalExecutor for SharedStoreProbe {
    fn id(&self) -> &str {
        self.probe.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.probe.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    fn profile(&self) -> &Profile {
        UniversalExecutor::profile(&self.probe)
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        self.probe.execute(trigger, context).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.probe.respond(trigger, output).await
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        self.probe.respond_failure(trigger, failure).await
    }
}
