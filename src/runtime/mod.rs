//! Many executors on one stream of events.
//!
//! The runtime puts a run into the ledger for every executor an event concerns, acknowledges the event, claims due
//! runs and lets the executors process them side by side. What it holds in memory can be lost at any time: the
//! ledger says what is left to do.
//!
//! A runtime logs its life at `INFO`: started (with executors, stores, source and position), ready, subscribed again after a
//! failure, waiting for its running work, and stopped (with the counts of [`RunReport`]). A `WARN` line reports that it is not
//! ready, with the problems of [`Health`]. Readiness is checked every [`sweep_every`](RuntimeBuilder::sweep_every).
//!
//! ```
//! use serde_json::json;
//! use std::sync::Arc;
//! use universal_executor::source::StartAt;
//! use universal_executor::tool::{ToolExecutor, json_tool};
//! use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Runtime};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let store = MemoryStore::default();
//! let echo = json_tool("echo", "Says it again.", json!({}), |input, _| async move { Ok(input) });
//! let echo = ToolExecutor::new(echo, Arc::new(store.clone()))?;
//! let runtime = Runtime::builder(store.events()).executor(echo).start_at(StartAt::Beginning).build()?;
//! store.create(NewBreadcrumb::new("tool.request.v1").context(json!({"tool": "echo", "input": "hi"}))).await?;
//!
//! let answered = async {
//!     while !matches!(store.latest("tool.response.v1").await, Ok(Some(_))) {
//!         tokio::task::yield_now().await;
//!     }
//! };
//! let report = runtime.run_until(answered).await?;
//! assert_eq!(report.responded, 1);
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```

mod ack_tracker;
mod answers;
mod arrival;
mod backlog;
mod breakers;
mod builder;
mod checkpoint;
mod commands;
mod dedup;
mod definition_updates;
#[cfg(feature = "agents")]
pub mod definitions;
#[cfg(not(feature = "agents"))]
#[path = "no_definitions.rs"]
mod definitions;
mod enqueue;
mod error;
mod first_start;
pub mod graph;
mod health;
#[cfg(feature = "testing")]
mod idle;
mod intake;
mod into_executor;
mod lifecycle;
mod limits;
pub mod metrics;
mod others;
mod pace;
mod position;
mod process;
mod progress;
mod quota;
mod registry;
mod report;
mod running;
mod saved_position;
mod scheduler;
mod settings;
mod shared;
#[cfg(feature = "signal")]
mod signals;
mod store_context;
mod suspended;
mod sweep;
mod timeouts;
mod unended;
mod waker;
mod wakes;
mod watchdog;
mod worker_records;

pub use crate::executor::WaitError;
pub use backlog::{Backlog, Due};
pub use breakers::OpenBreaker;
pub use builder::RuntimeBuilder;
pub use error::RuntimeError;
pub use health::Health;
pub use into_executor::IntoExecutor;
pub use report::RunReport;
pub use running::Running;
pub use settings::FirstStart;

use crate::bugs::planted;
use crate::clock::later;
use crate::model::{Breadcrumb, Selector};
use crate::source::EventSource;
use crate::store::{BreadcrumbStore, StoreError, StoreWithEvents, Worker};
use definitions::Keeper;
use futures::stream::{self, Stream};
use futures::{FutureExt as _, StreamExt as _};
use graph::Graph;
use health::Vitals;
use intake::Intake;
use progress::Progress;
use registry::Registry;
use settings::Settings;
use shared::Shared;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use worker_records::WorkerRecords;

/// Executors and the source of their events. Made by [`Runtime::builder`].
///
/// # Promises
/// - **Isolated.** An executor that fails, panics or hangs stops no other. Nor does a store that does not answer, until
///   [`max_deliveries`](RuntimeBuilder::max_deliveries) deliveries wait for that store: then the source is held up.
/// - **Bounded.** At most [`concurrency`](RuntimeBuilder::concurrency) runs execute at a time, and
///   [`max_inflight`](RuntimeBuilder::max_inflight) of one executor. Other runs wait in the ledger.
/// - **Fair.** Executors with work to do take turns, however much one of them has.
/// - **Ordered.** Runs of one executor with an equal [ordering key](crate::executor::OrderingKey) go one at a time, in
///   the order in which their events came.
/// - **Durable.** An event is acknowledged once its runs are in the ledger of each executor's store. Retries, runs left
///   by a worker that died and suspended runs come from the ledger. Events are hints: what a source loses is found in
///   the store, later. Events from the time without a process are found too, from the [position](crate::RunLedger::save_positions)
///   that the runtime saves for each executor. (A deletion that no event told of is not found.)
/// - **Woken once.** A suspended run goes on when a breadcrumb committed after the suspension matches what it waits for,
///   or its time is up, once, on whichever worker sees it first.
/// - **Ends.** When told to stop it stops claiming at once and has ended at the latest a few seconds after
///   [`drain_timeout`](RuntimeBuilder::drain_timeout). [`run_until`](Self::run_until) polls its future only after the start,
///   which takes up to a minute with a store that hangs; [`run_until_signals`](Self::run_until_signals) ends then, too.
///
/// # Stores without a ledger
/// The runtime adds a ledger in memory for the life of the process, see
/// [`BreadcrumbStore::ledger`]. All of the above holds while the process lives, except
/// *Durable* and *Woken once*: an event is acknowledged when its runs have ended, and released to its source while a failed run
/// waits for its retry, so that the source delivers the event again after a crash. A restarted process may execute a trigger
/// again. Such an executor cannot suspend or [redo](Self::redo) runs. [`RunReport::without_ledger`] names such executors.
/// [`WithLedger`](crate::WithLedger) adds a durable ledger.
pub struct Runtime {
    source: Box<dyn EventSource>,
    registry: Arc<Registry>,
    settings: Settings,
    progress: Arc<Progress>,
    keeper: Option<Arc<Keeper>>,
    vitals: Arc<Vitals>,
    /// Name of this worker.
    name: Arc<str>,
}

/// How much longer than the drain the end may take: for giving back what was dropped.
const GRACE: Duration = Duration::from_secs(5);

impl Runtime {
    /// Begins to build a runtime on a source.
    pub fn builder(source: impl EventSource) -> RuntimeBuilder {
        RuntimeBuilder::new(Box::new(source), None)
    }

    /// Begins to build a runtime on a store and the events of this store. The store handle is cloned.
    ///
    /// All executors of the runtime use the store. An executor without a saved position starts as [`FirstStart`] says.
    ///
    /// ```
    /// use serde_json::json;
    /// use std::time::Duration;
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Response, Runtime, Selector, Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let echo = executor("echo")
    ///     .on(Subscription::trigger("question.v1"))
    ///     .execute(|cx| async move {
    ///         let said = cx.trigger().context["said"].clone();
    ///         Ok(Response::create(NewBreadcrumb::new("answer.v1").context(json!({"said": said}))))
    ///     });
    /// let store = MemoryStore::default();
    /// let running = Runtime::on(&store).executor(echo).start().await?;
    ///
    /// let answer = running.runtime().wait_for(Selector::schema("answer.v1"), Duration::from_secs(10));
    /// store.create(NewBreadcrumb::new("question.v1").context(json!({"said": "hi"}))).await?;
    /// assert_eq!(answer.await?.context["said"], "hi");
    ///
    /// let report = running.stop().await?;
    /// assert_eq!(report.responded, 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn on(store: &impl StoreWithEvents) -> RuntimeBuilder {
        RuntimeBuilder::new(store.event_source(), Some(Arc::new(store.clone())))
    }

    /// Begins to build a runtime on a store whose events come from another source, for example an RCRT (Right Context Right Time)
    /// server with its event stream, or a mock store. The store handle is cloned.
    pub fn on_source<B>(store: &B, source: impl EventSource) -> RuntimeBuilder
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        RuntimeBuilder::new(Box::new(source), Some(Arc::new(store.clone())))
    }

    /// Processes events until a future resolves, then finishes what is running and says what happened. Called again it
    /// goes on where it stopped, with the first event that was not taken care of.
    ///
    /// The future is first polled once the source is subscribed to: an event of what it writes is never missed.
    ///
    /// When the future resolves nothing more is pulled or claimed. What still runs after
    /// [`drain_timeout`](RuntimeBuilder::drain_timeout) is dropped: it writes nothing, and its run is given back without
    /// having used an attempt. (An at-most-once run whose `execute` was called is left to its lease, and then ends as
    /// `outcome_unknown`.) Dropping this future drops running work at once. Its runs, and runs that were claimed and not
    /// started, are released in the background, while tokio runs.
    ///
    /// # Errors
    /// If the source cannot be subscribed to, or it is running already.
    pub async fn run_until(
        &self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<RunReport, RuntimeError> {
        // The future may write breadcrumbs whose events the source must deliver, so it is polled only after the subscription.
        self.run(shutdown.into_stream(), false, None).await
    }

    /// As [`run_until`](Self::run_until), told to stop by the first item of a stream; a second one ends the drain at
    /// once, and the running work is given back in the background, while tokio runs. The end of the stream is no signal.
    ///
    /// The stream is polled from the start, so that a signal also ends a start that waits for a store or for the source.
    ///
    /// # Errors
    /// If the source cannot be subscribed to.
    pub async fn run_until_signals(
        &self,
        signals: impl Stream<Item = ()>,
    ) -> Result<RunReport, RuntimeError> {
        self.run(signals, true, None).await
    }

    /// Runs until a signal. If `from_start` is `true`, the signals are polled before the source is subscribed to. Notifies `started`
    /// once every subscription is active.
    async fn run(
        &self,
        signals: impl Stream<Item = ()>,
        from_start: bool,
        started: Option<oneshot::Sender<()>>,
    ) -> Result<RunReport, RuntimeError> {
        let mut signals = std::pin::pin!(signals.chain(stream::pending()));
        let shared = Shared::new(
            self.settings,
            Arc::clone(&self.registry),
            self.keeper.clone(),
            Arc::clone(&self.progress),
            &*self.source,
        );
        if !self.vitals.begin(&shared) {
            return Err(RuntimeError::AlreadyRunning);
        }
        let mut running = EndsRunning {
            runtime: self,
            dropped: true,
        };
        let report = self.run_once(&shared, signals.as_mut(), from_start, started);
        let report = report.await;
        running.dropped = false;
        if let Ok(report) = &report {
            lifecycle::log_stopped(self, report);
        }
        report
    }

    /// Runs until a signal, once nothing else runs this runtime.
    async fn run_once(
        &self,
        shared: &Arc<Shared>,
        mut signals: Pin<&mut impl Stream<Item = ()>>,
        from_start: bool,
        started: Option<oneshot::Sender<()>>,
    ) -> Result<RunReport, RuntimeError> {
        let mut tasks = JoinSet::new();
        let _gone = shared.gone_when_dropped();
        let vitals = Arc::clone(&self.vitals);
        tasks.spawn(vitals.beat(Arc::clone(shared), Arc::clone(&self.name)));
        let mut records = WorkerRecords::new(Arc::clone(shared), Arc::clone(&self.name));
        tokio::select! {
            biased;
            _ = signals.next(), if from_start => return Ok(shared.report()),
            () = records.begin() => {}
        }
        tokio::select! {
            biased;
            _ = signals.next(), if from_start => return Ok(shared.report()),
            begun = first_start::begin(shared) => begun?,
        }
        tasks.spawn(records.run());
        let mut intake = Intake::new(self, Arc::clone(shared), &mut tasks);
        let deliveries = tokio::select! {
            biased;
            _ = signals.next(), if from_start => return Ok(shared.report()),
            deliveries = intake.subscribe() => deliveries.map_err(RuntimeError::Source)?,
        };
        let position = deliveries.start();
        tokio::select! {
            biased;
            () = intake.load_definitions() => {}
            _ = signals.next() => return Ok(shared.report()),
        }
        lifecycle::log_started(self, position);
        self.vitals.started();
        self.vitals.note_readiness(shared, &self.name);
        if let Some(started) = started {
            // The receiver is gone if the caller dropped the start.
            started.send(()).ok();
        }
        tokio::select! {
            biased;
            _ = signals.next() => {}
            () = intake.run(deliveries) => {}
            () = backlog::watch(self) => {}
            () = health::check_source(&*self.source, shared) => {}
        }
        shared.stop.cancel();
        lifecycle::log_draining(self, shared);
        if planted("drop-at-drain") {
            return Ok(shared.report());
        }
        // Tasks end by themselves; one whose store hangs is not waited for.
        let end = later(Instant::now(), self.settings.drain.saturating_add(GRACE));
        let drained = async { while let Ok(Some(_)) = timeout_at(end, tasks.join_next()).await {} };
        tokio::select! {
            biased;
            () = drained => {}
            _ = signals.next() => {
                tracing::warn!("told to stop twice; the running work is given back in the background");
            }
        }
        Ok(shared.report())
    }

    /// Whether it lives and does its work, for liveness and readiness probes.
    #[must_use]
    pub fn health(&self) -> Health {
        self.vitals.health(&self.registry)
    }

    /// What waits to be done, as the stores and the source have it now: of all workers that share them. The metrics of a
    /// [runtime](metrics) tell it from time to time.
    ///
    /// # Errors
    /// [`StoreError`] if a store does not answer. What the source does not say is left out.
    pub async fn backlog(&self) -> Result<Backlog, StoreError> {
        backlog::of(&*self.source, &self.registry).await
    }

    /// Lists the workers that share the stores of these executors, the most recently recorded first: one record for each
    /// [`Runtime`] and store handle. Workers that stopped are listed for 24 h.
    ///
    /// # Errors
    /// [`StoreError`] if a store does not answer.
    pub async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        worker_records::all(&self.registry.store_contexts()).await
    }

    /// Who triggers whom, as a graph of executors and schemas, with the circles in it.
    #[must_use]
    pub fn graph(&self) -> Graph {
        let members = self.registry.all();
        Graph::of(members.iter().map(|member| &*member.executor))
    }

    /// The ids of the executors that run here now, those made of definitions included.
    #[must_use]
    pub fn executors(&self) -> Vec<Arc<str>> {
        let members = self.registry.all();
        members
            .iter()
            .map(|member| member.executor.id().into())
            .collect()
    }

    /// Waits for the first breadcrumb that matches a selector and is announced from now on: call it, write the request,
    /// then await it, and no answer slips between.
    ///
    /// The breadcrumb is read from the store of the first executor, and must match as it is there. If the source
    /// [shares](EventSource::is_shared) its events among workers, the store is also searched, at least once each
    /// [`sweep_every`](RuntimeBuilder::sweep_every), and a breadcrumb from shortly before the call can match. The time counts from
    /// the call; dropping the future ends the wait. At most 10,000 waits may be open at a time. Somebody must
    /// [run](Self::run_until) the runtime meanwhile.
    ///
    /// # Errors
    /// [`WaitError`] if the time is up, too many wait, the selector cannot be evaluated, or there is no executor.
    pub fn wait_for(
        &self,
        selector: Selector,
        timeout: Duration,
    ) -> impl Future<Output = Result<Arc<Breadcrumb>, WaitError>> + Send + 'static + use<> {
        let store_contexts = self.registry.store_contexts();
        let wait = match store_contexts.first() {
            Some(store_context) => store_context.waits.begin(selector, timeout),
            None => Err(WaitError::NoStore),
        };
        async move { wait?.answered().await }
    }
}

/// Notes the end of a call of `run_until`, also if its future is dropped.
struct EndsRunning<'r> {
    runtime: &'r Runtime,
    dropped: bool,
}

impl Drop for EndsRunning<'_> {
    fn drop(&mut self) {
        self.runtime.vitals.end();
        if self.dropped {
            lifecycle::log_dropped(self.runtime);
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.registry.all();
        let ids: Vec<&str> = members.iter().map(|member| member.executor.id()).collect();
        f.debug_struct("Runtime")
            .field("executors", &ids)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
