//! Runtime that feeds many executors from one stream of events.
//!
//! Use this to run executors in a service. For every executor that an event triggers, the runtime enqueues a run in the ledger.
//! Then it acknowledges the event, claims due runs and lets the executors process them concurrently. The state in memory can be
//! lost at any time, because the ledger contains all pending work.
//!
//! A runtime logs these changes at `INFO`: started (with executors, stores, source and position), ready, subscribed again after
//! a failure, draining, and stopped (with the counts of [`RunReport`]). A `WARN` line reports that the runtime is not ready, with
//! the problems of [`Health`]. Readiness is checked every [`sweep_every`](RuntimeBuilder::sweep_every).
//!
//! Start with these types:
//!
//! | to | use |
//! |---|---|
//! | build and start a runtime | [`Runtime::on`], [`RuntimeBuilder`] |
//! | stop a started runtime and read its counts | [`Running`], [`RunReport`] |
//! | answer health probes | [`Runtime::health`], [`Health`] |
//! | measure the pending work | [`Runtime::backlog`], [`metrics`] |
//! | redo, cancel or skip a run, pause an executor | [`Runtime::redo`], [`Runtime::pause`] |
//! | find executors that trigger each other | [`graph`] |
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
mod other_versions;
mod page_size;
mod pending_acks;
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
use definitions::DefinitionLoader;
use futures::stream::{self, Stream};
use futures::{FutureExt as _, StreamExt as _};
use graph::Graph;
use health::HealthState;
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

/// Executors and the event source that triggers them, run by one process. Created by [`Runtime::on`] and [`Runtime::builder`].
///
/// # Promises
/// - **Isolated.** An executor that fails, panics or hangs stops no other executor. A store that does not answer stops no other
///   store, until [`max_deliveries`](RuntimeBuilder::max_deliveries) deliveries wait for it. Then the runtime takes no events.
/// - **Bounded.** At most [`concurrency`](RuntimeBuilder::concurrency) runs execute at a time, and
///   [`max_inflight`](RuntimeBuilder::max_inflight) of one executor. Other runs wait in the ledger.
/// - **Fair.** Executors with due runs take turns, however many runs one of them has.
/// - **Ordered.** Runs of one executor with an equal [ordering key](crate::executor::OrderingKey) execute one at a time, in
///   the order of their events.
/// - **Durable.** An event is acknowledged once its runs are in the ledger of each executor's store. Retries, the runs of lost workers and
///   suspended runs come from the ledger. Events are hints: the runtime later finds the breadcrumbs of lost events in the store. After a
///   downtime, it finds events from the [position](crate::RunLedger::save_positions) that it saves for each executor. A deletion is not
///   found if its event is lost.
/// - **Woken once.** A suspended run resumes when a breadcrumb committed after the suspension matches its selectors, or when its
///   time is up. It resumes once, on the first worker that notices.
/// - **Ends.** After a stop signal, the runtime claims no more runs, and ends at most a few seconds after
///   [`drain_timeout`](RuntimeBuilder::drain_timeout). [`run_until`](Self::run_until) polls its future only after the start,
///   which takes up to a minute with a store that hangs. [`run_until_signals`](Self::run_until_signals) can also end during the
///   start.
///
/// # Retries
/// Retries of one executor have a budget, so that an outage does not multiply the load. Each first
/// attempt adds a fifth of a retry, each second adds one, and at most 10 unused retries accumulate.
/// A retry without budget waits in the ledger. After failures of ten different triggers without a
/// success, a circuit breaker also delays the retries; see [`OpenBreaker`].
///
/// # Stores without a ledger
/// The runtime adds a ledger in memory for the life of the process, see [`BreadcrumbStore::ledger`]. All promises hold while the
/// process lives, except *Durable* and *Woken once*. An event is acknowledged when its runs have ended, so that the source delivers
/// the event again after a crash. While a failed run waits for its retry, the event is returned to its source. A restarted process
/// may execute a trigger again. Such an executor cannot suspend or [redo](Self::redo) runs. [`RunReport::without_ledger`] names
/// such executors. [`WithLedger`](crate::WithLedger) adds a durable ledger.
pub struct Runtime {
    source: Box<dyn EventSource>,
    registry: Arc<Registry>,
    settings: Settings,
    progress: Arc<Progress>,
    definition_loader: Option<Arc<DefinitionLoader>>,
    health_state: Arc<HealthState>,
    /// Name of this worker in logs and worker records.
    name: Arc<str>,
}

/// Extra time after the drain timeout in which a stopping runtime releases the leases of dropped runs.
const GRACE: Duration = Duration::from_secs(5);

impl Runtime {
    /// Creates a builder for a runtime on an event source, without a store: each executor must be bound to a store.
    ///
    /// Use this if the executors are on several stores, or are bound already. Otherwise use
    /// [`on`](Self::on). Executors without a saved position start at [`RuntimeBuilder::start_at`],
    /// by default with the next event.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{
    ///     MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let store = MemoryStore::default();
    /// let clerk = clerk.bind(&store)?;
    ///
    /// let runtime = Runtime::builder(store.events()).executor(clerk).build()?;
    /// assert_eq!(runtime.executors().len(), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn builder(source: impl EventSource) -> RuntimeBuilder {
        RuntimeBuilder::new(Box::new(source), None)
    }

    /// Creates a builder for a runtime on a store and the store's events. The store handle is cloned.
    ///
    /// All executors of the runtime use the store. [`FirstStart`] sets the start of an executor without a saved position.
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

    /// Creates a builder for a runtime on a store, with a separate event source. Examples are an RCRT (Right Context Right Time) server
    /// with its event stream, and a mock store. The store handle is cloned.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{MemoryStore, Response, Runtime, Subscription, executor};
    ///
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::none()) });
    /// let store = MemoryStore::default();
    /// let runtime = Runtime::on_source(&store, store.events()).executor(clerk).build()?;
    /// # drop(runtime);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn on_source<B>(store: &B, source: impl EventSource) -> RuntimeBuilder
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        RuntimeBuilder::new(Box::new(source), Some(Arc::new(store.clone())))
    }

    /// Processes events until `shutdown` resolves, then finishes the running work and returns a report of the handled events
    /// and runs. Another call continues with the first unhandled event.
    ///
    /// `shutdown` is first polled after the subscription to the source, so the runtime never misses an event of a breadcrumb that
    /// `shutdown` writes.
    ///
    /// After `shutdown` has resolved, the runtime takes no events and claims no runs. A run that still executes after
    /// [`drain_timeout`](RuntimeBuilder::drain_timeout) is dropped: it writes nothing, and is released without using an attempt.
    /// An at-most-once run whose `execute` was called keeps its lease instead, and ends as `outcome_unknown` when the lease expires.
    ///
    /// Use this in tests, and in programs whose stop is a future. [`RuntimeBuilder::start`] runs
    /// the runtime in the background instead.
    ///
    /// # Errors
    /// - [`RuntimeError::AlreadyRunning`] if the runtime is running.
    /// - [`RuntimeError::Source`] if the runtime cannot subscribe to the source.
    /// - [`RuntimeError::OlderTriggers`] if an executor starts for the first time and the store has older triggers for it.
    /// - [`RuntimeError::Store`] if the store cannot be searched for these triggers.
    ///
    /// # Cancel safety
    /// Dropping this future drops the running work immediately. The runs in flight, and runs that were claimed and not started, are
    /// released in the background, while tokio runs.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Response, Runtime, Subscription,
    ///     executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let store = MemoryStore::default();
    /// let runtime = Runtime::on(&store).executor(clerk).build()?;
    ///
    /// let answered = async {
    ///     store.create(NewBreadcrumb::new("order.v1")).await.ok();
    ///     while !matches!(store.latest("receipt.v1").await, Ok(Some(_))) {
    ///         tokio::task::yield_now().await;
    ///     }
    /// };
    /// let report = runtime.run_until(answered).await?;
    /// assert_eq!(report.responded, 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn run_until(
        &self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<RunReport, RuntimeError> {
        // The future may write breadcrumbs whose events the source must deliver, so it is polled only after the subscription.
        self.run(shutdown.into_stream(), false, None).await
    }

    /// Processes events until the stream `signals` yields an item, then finishes the running work and returns a report of the
    /// handled events and runs.
    ///
    /// A second item ends the drain immediately, and the running work is released in the background, while tokio runs. The end of the
    /// stream does not stop the runtime. The stream is polled from the beginning, so that a signal also ends a start that waits for a
    /// store or the source. For the rest, see [`run_until`](Self::run_until).
    ///
    /// Use this for a worker that handles signals itself, for example together with health probes.
    /// `RuntimeBuilder::run_until_signal` (feature `signal`) handles Ctrl-C and SIGTERM.
    ///
    /// # Errors
    /// The errors of [`run_until`](Self::run_until).
    ///
    /// # Cancel safety
    /// As with [`run_until`](Self::run_until).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{
    ///     MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let store = MemoryStore::default();
    /// let runtime = Runtime::on(&store).executor(clerk).build()?;
    ///
    /// let (stop, mut stops) = tokio::sync::mpsc::channel(2);
    /// let signals = futures::stream::poll_fn(move |cx| stops.poll_recv(cx));
    /// stop.send(()).await?; // for example in a handler of SIGTERM
    /// let report = runtime.run_until_signals(signals).await?;
    /// assert_eq!(report.dropped, 0);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn run_until_signals(
        &self,
        signals: impl Stream<Item = ()>,
    ) -> Result<RunReport, RuntimeError> {
        self.run(signals, true, None).await
    }

    /// Runs the runtime until `signals` yields an item, or fails if the runtime is already running. If `from_start` is `true`, the signals
    /// are polled before the subscription to the source. Notifies `started` once every subscription is active.
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
            self.definition_loader.clone(),
            Arc::clone(&self.progress),
            &*self.source,
        );
        if !self.health_state.begin(&shared) {
            return Err(RuntimeError::AlreadyRunning);
        }
        let mut running = RunningGuard {
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

    /// Runs the runtime until `signals` yields an item. The caller makes sure that the runtime is not running already.
    async fn run_once(
        &self,
        shared: &Arc<Shared>,
        mut signals: Pin<&mut impl Stream<Item = ()>>,
        from_start: bool,
        started: Option<oneshot::Sender<()>>,
    ) -> Result<RunReport, RuntimeError> {
        let mut tasks = JoinSet::new();
        let _end_guard = shared.end_guard();
        let health_state = Arc::clone(&self.health_state);
        tasks.spawn(health_state.heartbeat(Arc::clone(shared), Arc::clone(&self.name)));
        let mut records = WorkerRecords::new(Arc::clone(shared), Arc::clone(&self.name));
        tokio::select! {
            biased;
            _ = signals.next(), if from_start => return Ok(shared.report()),
            () = records.begin() => {}
        }
        tokio::select! {
            biased;
            _ = signals.next(), if from_start => return Ok(shared.report()),
            result = first_start::set_start_positions(shared) => result?,
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
        self.health_state.started();
        self.health_state.note_readiness(shared, &self.name);
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
        // Tasks end on their own. After the timeout, tasks whose store hangs are dropped.
        let end = later(Instant::now(), self.settings.drain.saturating_add(GRACE));
        let drained = async { while let Ok(Some(_)) = timeout_at(end, tasks.join_next()).await {} };
        tokio::select! {
            biased;
            () = drained => {}
            _ = signals.next() => {
                tracing::warn!("received a second stop signal, will release the running work in the background");
            }
        }
        Ok(shared.report())
    }

    /// Returns the health of the runtime, for liveness and readiness probes.
    ///
    /// The call reads only memory, so a probe can call it often. Before a run and after it, the
    /// runtime is live and not ready.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{
    ///     MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let store = MemoryStore::default();
    /// let running = Runtime::on(&store).executor(clerk).start().await?;
    /// let health = running.runtime().health();
    /// assert!(health.live && health.ready, "{:?}", health.problems);
    /// running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.health_state.health(&self.registry)
    }

    /// Returns the number of events that the runtime's consumer has not acknowledged, and the number of due runs of each
    /// executor. The numbers cover all workers that share the stores and the source. The [metrics of the runtime](metrics) report
    /// the same at intervals.
    ///
    /// Use this to scale the number of workers, or for an alert. The call reads up to 1,000 runs of
    /// each executor, so call it about once a minute and not per request.
    ///
    /// # Errors
    /// [`StoreError`] if a store does not answer. If the source does not answer, [`Backlog::behind`] is `None`.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{
    ///     MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let store = MemoryStore::default();
    /// let runtime = Runtime::on(&store).executor(clerk).build()?;
    /// let backlog = runtime.backlog().await?;
    /// assert_eq!(&*backlog.executors[0].executor, "clerk");
    /// assert_eq!(backlog.executors[0].due, 0);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn backlog(&self) -> Result<Backlog, StoreError> {
        backlog::of(&*self.source, &self.registry).await
    }

    /// Lists the records of the workers that share the stores of this runtime, newest record first. Each [`Runtime`] has one record for
    /// each store handle. Workers that stopped are listed for 24 h.
    ///
    /// [`Client::workers`](crate::Client::workers) returns the same in a process without a runtime.
    ///
    /// # Errors
    /// [`StoreError`] if a store does not answer.
    pub async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        worker_records::all(&self.registry.store_contexts()).await
    }

    /// Returns the graph of the runtime's executors that trigger each other, with its cycles.
    ///
    /// [`RuntimeBuilder::build`] logs each cycle of the graph at `WARN`.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{
    ///     MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let store = MemoryStore::default();
    /// let runtime = Runtime::on(&store).executor(clerk).build()?;
    /// assert!(runtime.graph().cycles().is_empty());
    /// println!("{}", runtime.graph().to_mermaid());
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn graph(&self) -> Graph {
        let members = self.registry.all();
        Graph::of(members.iter().map(|member| &*member.executor))
    }

    /// Returns the IDs of the runtime's current executors, including the executors of definitions.
    ///
    /// Executors of definitions are in the list while their definition is loaded.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{
    ///     MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let store = MemoryStore::default();
    /// let runtime = Runtime::on(&store).executor(clerk).build()?;
    /// assert_eq!(&*runtime.executors()[0], "clerk");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn executors(&self) -> Vec<Arc<str>> {
        let members = self.registry.all();
        members
            .iter()
            .map(|member| member.executor.id().into())
            .collect()
    }

    /// Waits for the first breadcrumb that matches a selector and of which the runtime receives an event after this call. To miss
    /// no answer, call this method, then write the request, then await the future.
    ///
    /// The breadcrumb is read from the store of the first executor, and the stored version must match. If the source
    /// [shares](EventSource::is_shared) its events among workers, the store is also searched, at least once each
    /// [`sweep_every`](RuntimeBuilder::sweep_every). Then a breadcrumb from shortly before the call can match. The `timeout` counts
    /// from the call. At most 10,000 waits may be open at a time. The runtime must be [running](Self::run_until) during the wait.
    ///
    /// Use this in a program that is a worker itself. In a process without a runtime, or for the
    /// reply of one executor, use [`Client::request`](crate::Client::request).
    ///
    /// # Errors
    /// [`WaitError`] if the timeout has passed, too many waits are open, the selector cannot be evaluated, or there is no executor.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Response, Runtime, Selector,
    ///     Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let store = MemoryStore::default();
    /// let running = Runtime::on(&store).executor(clerk).start().await?;
    ///
    /// let receipt = Selector::schema("receipt.v1");
    /// let receipt = running.runtime().wait_for(receipt, Duration::from_secs(10));
    /// store.create(NewBreadcrumb::new("order.v1")).await?;
    /// assert_eq!(receipt.await?.created_by.as_deref(), Some("clerk"));
    /// running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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

/// Records the end of a call of `run_until`, even if the call's future is dropped.
struct RunningGuard<'r> {
    runtime: &'r Runtime,
    dropped: bool,
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.runtime.health_state.end();
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
