//! Many executors on one stream of events.
//!
//! The runtime puts a run into the ledger for every executor an event concerns, acknowledges the event, claims due
//! runs and lets the executors process them side by side. What it holds in memory can be lost at any time: the
//! ledger says what is left to do.
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

mod direct;
mod error;
pub mod graph;
mod intake;
mod limits;
mod report;
mod shared;
mod worker;

pub use error::RuntimeError;
pub use report::RunReport;

use crate::clock::later;
use crate::executor::{UniversalExecutor, check};
use crate::model::{Role, SubscriptionIndex};
use crate::source::{Delivery, EventSource, SourceError, StartAt};
use direct::Direct;
use futures::stream::BoxStream;
use intake::{Inboxes, Intake};
use shared::{Progress, Shared};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use worker::Worker;

type Deliveries = BoxStream<'static, Result<Delivery, SourceError>>;

/// Executors and the source of their events. Made by [`Runtime::builder`].
///
/// # Promises
/// - **Isolated.** An executor that fails, panics or hangs stops no other, nor does a store that does not answer.
/// - **Bounded.** At most [`concurrency`](RuntimeBuilder::concurrency) runs at a time, and
///   [`max_inflight`](RuntimeBuilder::max_inflight) of one executor. What has no place waits in the ledger.
/// - **Durable.** An event is acknowledged once its runs are in the ledger of each executor's store. Retries, runs left
///   by a worker that died and suspended runs whose time is up come from the ledger. An executor on a store without a
///   ledger is handed the event itself; it is acknowledged when it is processed, and given back to the source after an
///   error that may pass.
/// - **Ends.** When told to stop it stops claiming at once and has ended at the latest a few seconds after
///   [`drain_timeout`](RuntimeBuilder::drain_timeout).
pub struct Runtime {
    source: Box<dyn EventSource>,
    executors: BTreeMap<Arc<str>, Arc<dyn UniversalExecutor>>,
    index: SubscriptionIndex,
    settings: Settings,
    progress: Arc<Progress>,
}

/// How much longer than the drain the end may take: for giving back what was dropped.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
struct Settings {
    concurrency: usize,
    max_inflight: usize,
    start_at: StartAt,
    sweep: Duration,
    drain: Duration,
}

impl Runtime {
    /// Begins to build a runtime on a source.
    pub fn builder(source: impl EventSource) -> RuntimeBuilder {
        RuntimeBuilder {
            source: Box::new(source),
            executors: Vec::new(),
            settings: Settings {
                concurrency: 64,
                max_inflight: 16,
                start_at: StartAt::Now,
                sweep: Duration::from_secs(5),
                drain: Duration::from_secs(25),
            },
        }
    }

    /// Processes events until a future resolves, then finishes what is running and says what happened. Called again it
    /// goes on where it stopped, with the first event that was not taken care of.
    ///
    /// When the future resolves nothing more is pulled or claimed. What still runs after
    /// [`drain_timeout`](RuntimeBuilder::drain_timeout) is dropped: it writes nothing, and its run is given back without
    /// having used an attempt. (One that may run at most once is left to its lease, and then ends as
    /// `outcome_unknown`.) Dropping this future drops what runs at once, and leaves all of it to the leases.
    ///
    /// # Errors
    /// If the source cannot be subscribed to.
    pub async fn run_until(
        &self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<RunReport, RuntimeError> {
        let mut shutdown = std::pin::pin!(shutdown);
        // Before the other future is looked at: what it makes happen is not to be missed.
        let deliveries = tokio::select! {
            biased;
            deliveries = self.source.subscribe(self.progress.from(self.settings.start_at)) => deliveries.map_err(RuntimeError::Source)?,
            () = &mut shutdown => return Ok(RunReport::default()),
        };
        let shared = Shared::new(self.settings, Arc::clone(&self.progress));
        let mut workers = JoinSet::new();
        let inboxes = self.start_workers(&shared, &mut workers);
        tokio::select! {
            biased;
            () = shutdown => {}
            () = Intake::new(self, Arc::clone(&shared), inboxes).run(deliveries) => {}
        }
        shared.stop.cancel();
        // Workers end by themselves; one whose store hangs is not waited for.
        let end = later(Instant::now(), self.settings.drain.saturating_add(GRACE));
        while let Ok(Some(_)) = timeout_at(end, workers.join_next()).await {}
        Ok(shared.report())
    }

    /// One task for each executor, and where the deliveries for it wait.
    fn start_workers(&self, shared: &Arc<Shared>, workers: &mut JoinSet<()>) -> Inboxes {
        let mut inboxes = Inboxes::new();
        for (id, executor) in &self.executors {
            let (sender, inbox) = mpsc::channel(worker::INBOX);
            let (shared, executor) = (Arc::clone(shared), Arc::clone(executor));
            if executor.store().ledger().is_some() {
                workers.spawn(Worker::new(shared, executor, inbox).run());
            } else {
                workers.spawn(Direct::new(shared, executor, inbox).run());
            }
            inboxes.insert(Arc::clone(id), sender);
        }
        inboxes
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("executors", &self.executors.keys())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Collects executors and settings; see [`Runtime::builder`].
pub struct RuntimeBuilder {
    source: Box<dyn EventSource>,
    executors: Vec<Arc<dyn UniversalExecutor>>,
    settings: Settings,
}

impl RuntimeBuilder {
    /// Adds an executor.
    #[must_use]
    pub fn executor(mut self, executor: impl UniversalExecutor + 'static) -> Self {
        self.executors.push(Arc::new(executor));
        self
    }

    /// Adds executors.
    #[must_use]
    pub fn executors(
        mut self,
        executors: impl IntoIterator<Item = Arc<dyn UniversalExecutor>>,
    ) -> Self {
        self.executors.extend(executors);
        self
    }

    /// Sets how many runs there may be at a time, of all executors together; 64 by default.
    #[must_use]
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.settings.concurrency = runs;
        self
    }

    /// Sets how many runs of one executor there may be at a time, so that a slow one leaves places for others; 16 by
    /// default.
    #[must_use]
    pub fn max_inflight(mut self, runs: usize) -> Self {
        self.settings.max_inflight = runs;
        self
    }

    /// Sets where in the source to start: by default with what happens once it runs. What was there before is then not
    /// seen; with [`StartAt::Beginning`] it is, and what was answered already is not answered again.
    #[must_use]
    pub fn start_at(mut self, start: StartAt) -> Self {
        self.settings.start_at = start;
        self
    }

    /// Sets how often the ledger is asked for runs that nobody told of: those of workers that died; 5 s by default.
    #[must_use]
    pub fn sweep_every(mut self, interval: Duration) -> Self {
        self.settings.sweep = interval;
        self
    }

    /// Sets how long running work may take to finish at a shutdown; 25 s by default.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain = timeout;
        self
    }

    /// Checks the executors and indexes their subscriptions.
    ///
    /// # Errors
    /// [`RuntimeError`] if two executors have one id, one can never work on its store, or a setting is zero.
    pub fn build(self) -> Result<Runtime, RuntimeError> {
        for (setting, is_zero) in [
            ("concurrency", self.settings.concurrency == 0),
            ("max_inflight", self.settings.max_inflight == 0),
            ("sweep_every", self.settings.sweep.is_zero()),
        ] {
            if is_zero {
                return Err(RuntimeError::ZeroSetting { setting });
            }
        }
        let mut index = SubscriptionIndex::new();
        let mut executors: BTreeMap<Arc<str>, Arc<dyn UniversalExecutor>> = BTreeMap::new();
        for executor in self.executors {
            check(&*executor)?;
            log_oddities(&*executor);
            let id: Arc<str> = executor.id().into();
            index.insert(&id, executor.subscriptions());
            if executors.insert(Arc::clone(&id), executor).is_some() {
                return Err(RuntimeError::DuplicateId { id: id.to_string() });
            }
        }
        Ok(Runtime {
            source: self.source,
            executors,
            index,
            settings: self.settings,
            progress: Arc::default(),
        })
    }
}

/// Says what is odd in the subscriptions of an executor, which works all the same.
fn log_oddities(executor: &dyn UniversalExecutor) {
    let (id, subscriptions) = (executor.id(), executor.subscriptions());
    for warning in subscriptions.warnings() {
        tracing::warn!(executor = id, %warning, "odd subscription");
    }
    let triggers = subscriptions
        .as_slice()
        .iter()
        .filter(|subscription| subscription.role == Role::Trigger);
    if triggers.count() == 0 {
        tracing::warn!(executor = id, "no trigger: nothing sets this executor off");
    }
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
