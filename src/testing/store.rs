//! Store for tests, with a clock that the test controls.

use super::idle::{Activity, IdleWatch, Limits, open_runs};
use super::{Faults, TestError, time};
use crate::clock::later;
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::runtime::{RunReport, Runtime};
use crate::source::EventSource;
use crate::store::{
    BreadcrumbStore, Capabilities, Commit, Committed, Fault, Faulty, MemoryStore, Query, RunLedger,
    RunState, Scored, StoreError, StoreId, StoreWithEvents, VectorQuery,
};
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A [`MemoryStore`] with a clock that the test moves. It can run a [`Runtime`] until the runtime is idle.
///
/// A clone is another handle on the same data. Pass it to [`Runtime::on`], to [`Client::new`](crate::Client::new) and to executors.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::testing::{TestStore, assert_responded, assert_suspended};
/// use universal_executor::{
///     BoxError, BreadcrumbStoreExt, NewBreadcrumb, Response, Runtime, Subscription, Wake, executor, suspend,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// let reminder = executor("reminder")
///     .on(Subscription::trigger("invoice.v1"))
///     .execute(|cx| async move {
///         match cx.resumed() {
///             None => Err(BoxError::from(suspend(Wake::at(cx.now() + 30 * DAY), serde_json::json!({})))),
///             Some(_) => Ok(Response::create(NewBreadcrumb::new("reminder.v1"))),
///         }
///     });
/// let store = TestStore::new()?;
/// let worker = Runtime::on(&store).executor(reminder).build()?;
///
/// let invoice = store.create(NewBreadcrumb::new("invoice.v1")).await?;
/// store.run_until_idle(&worker).await?;
/// assert_suspended(&store, "reminder", invoice.id).await;
///
/// store.advance(30 * DAY).await?;
/// store.run_until_idle(&worker).await?;
/// assert_responded(&store, "reminder", invoice.id).await;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone)]
pub struct TestStore {
    /// Wrapper of the memory store that counts the calls, to detect an idle runtime, and injects no faults.
    counted_store: Faulty<MemoryStore>,
    activity: Arc<Activity>,
    limits: Limits,
}

impl TestStore {
    /// Creates an empty test store and pauses tokio's time, unless it is paused already. The time stays paused after the store is dropped.
    ///
    /// # Errors
    /// [`TestError::WrongRuntime`] outside of a tokio runtime with one thread.
    pub fn new() -> Result<Self, TestError> {
        Self::on(MemoryStore::default())
    }

    /// Creates a test store on an existing memory store, and pauses tokio's time as [`new`](Self::new) does. The memory store can
    /// have its own limits, tenant or embeddings.
    ///
    /// # Errors
    /// [`TestError::WrongRuntime`] outside of a tokio runtime with one thread.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::MemoryStore;
    /// use universal_executor::testing::TestStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = TestStore::on(MemoryStore::default())?;
    /// assert_eq!(store.next_due().await?, None);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn on(store: MemoryStore) -> Result<Self, TestError> {
        const HOUR: Duration = Duration::from_secs(60 * 60);
        time::pause()?;
        Ok(Self::with_limit(store, HOUR))
    }

    /// Creates an empty test store without pausing tokio's time, for tests with real servers or blocking tools. [`advance`](Self::advance)
    /// then fails with [`TestError::NotPaused`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::testing::{TestStore, assert_responded};
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, NewBreadcrumb, Response, Runtime, Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = TestStore::in_real_time();
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::none()) });
    /// let worker = Runtime::on(&store).executor(clerk).build()?;
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// store.run_until_idle(&worker).await?;
    /// assert!(assert_responded(&store, "clerk", order.id).await.is_empty());
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn in_real_time() -> Self {
        const HALF_A_MINUTE: Duration = Duration::from_secs(30);
        Self::with_limit(MemoryStore::default(), HALF_A_MINUTE)
    }

    fn with_limit(store: MemoryStore, time: Duration) -> Self {
        const REAL_TIME: Duration = Duration::from_secs(60);
        let activity = Arc::new(Activity::default());
        let recorder = Arc::clone(&activity);
        Self {
            counted_store: Faulty::new(store, move |_, moment| {
                recorder.note(moment);
                Fault::None
            }),
            activity,
            limits: Limits {
                time,
                real_time: REAL_TIME,
            },
        }
    }

    /// Sets the maximum time, measured by tokio's clock, in which a runtime under test must become idle. Defaults to one hour, and to 30 s
    /// in real time.
    ///
    /// Raise it for an executor that sleeps for more than an hour.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::testing::TestStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = TestStore::new()?.time_limit(Duration::from_secs(24 * 60 * 60));
    /// assert_eq!(store.next_due().await?, None);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limits.time = limit;
        self
    }

    /// Sets the maximum time, measured by the computer's clock, in which a runtime under test must become idle. Defaults to 60 s. This
    /// limit ends a test whose tasks never wait, because tokio then never moves a paused clock.
    #[must_use]
    pub fn real_time_limit(mut self, limit: Duration) -> Self {
        self.limits.real_time = limit;
        self
    }

    /// Returns a handle on this test store that simulates failures of store calls. `faults` decides which calls through this
    /// handle fail. Build a runtime on this handle. The executors of the runtime must use the same handle.
    ///
    /// See [`Faults`] for an example.
    #[must_use]
    pub fn with_faults(&self, faults: &Faults) -> Faulty<Self> {
        let faults = faults.clone();
        Faulty::new(self.clone(), move |operation, moment| {
            faults.decide(operation, moment)
        })
    }

    /// Returns the current time of the test store's clock.
    ///
    /// After [`TestStore::new`], the time moves only with tokio's paused clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.memory().now()
    }

    /// Advances tokio's clock, which is also the test store's clock. Leases, timeouts, retry delays and waits that end in this period
    /// expire.
    ///
    /// This method runs no executor: call [`run_until_idle`](Self::run_until_idle) afterwards. One call advances the clock by at most
    /// 30 years.
    ///
    /// # Errors
    /// [`TestError::NotPaused`] in real time, [`TestError::WrongRuntime`] outside of a tokio runtime with one thread.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::testing::TestStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = TestStore::new()?;
    /// let before = store.now();
    /// store.advance(Duration::from_secs(60)).await?;
    /// assert!(store.now().since(before) >= Duration::from_secs(60));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn advance(&self, by: Duration) -> Result<(), TestError> {
        time::check_runtime()?;
        if !time::is_paused() {
            return Err(TestError::NotPaused { by });
        }
        let now = Instant::now();
        tokio::time::advance(later(now, by).saturating_duration_since(now)).await;
        Ok(())
    }

    /// Returns the time until the next waiting run is due, because its retry delay or its suspension ends. Returns `None` if no run waits
    /// for a later time. Runs that are already due do not count.
    ///
    /// Pass the result to [`advance`](Self::advance) to reach a retry or the end of a wait.
    ///
    /// # Errors
    /// [`TestError::Store`] if the store cannot be read.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::testing::TestStore;
    /// use universal_executor::{
    ///     BoxError, BreadcrumbStoreExt, NewBreadcrumb, Runtime, Subscription, Wake, executor,
    ///     suspend,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    /// let reminder = executor("reminder")
    ///     .on(Subscription::trigger("invoice.v1"))
    ///     .execute(|cx| async move {
    ///         let wake = Wake::at(cx.now() + 30 * DAY);
    ///         Err(BoxError::from(suspend(wake, serde_json::json!({}))))
    ///     });
    /// let store = TestStore::new()?;
    /// let worker = Runtime::on(&store).executor(reminder).build()?;
    /// store.create(NewBreadcrumb::new("invoice.v1")).await?;
    /// store.run_until_idle(&worker).await?;
    ///
    /// let due = store.next_due().await?.ok_or("nothing is due")?;
    /// assert!(due > 29 * DAY);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn next_due(&self) -> Result<Option<Duration>, TestError> {
        let now = self.now();
        let open = open_runs(self.memory()).await;
        let open = open.map_err(TestError::of_store)?;
        let waiting = open.iter().filter(|run| run.state != RunState::Running);
        let due = waiting.filter_map(|run| run.due.filter(|due| *due > now));
        Ok(due.min().map(|due| due.since(now)))
    }

    /// Runs a runtime until it is idle, stops the runtime, and returns a report of the handled events and runs. The runtime can run again
    /// afterwards.
    ///
    /// A runtime is idle if it has handled every event of the store and none of its executors has a run that is due or running. These
    /// runs are idle:
    ///
    /// - a suspended run, unless the store already has the answer that it waits for,
    /// - a run that waits for a retry, until the clock reaches its time,
    /// - a run of a [paused](RunLedger::pause_executor) executor, and a run behind an idle one with the same
    ///   [ordering key](crate::executor::OrderingKey),
    /// - a run of an executor that is not in this runtime.
    ///
    /// While a run is due or running and every task waits, tokio moves a paused clock to the next timer. Examples are the end of a
    /// sleep in `execute`, of a rate limit, and of the lease of a crashed worker.
    ///
    /// # Errors
    /// - [`TestError::NotIdle`] after [`time_limit`](Self::time_limit), [`real_time_limit`](Self::real_time_limit) or a million store
    ///   calls, with the runs that are due or running. The runtime is dropped then. A task that blocks the thread also blocks this call.
    /// - [`TestError::OtherStore`] if an executor of the runtime uses another store.
    /// - [`TestError::Runtime`] if the runtime fails.
    /// - [`TestError::Store`] if the store cannot be read, and [`TestError::Thread`] if the system refuses a thread.
    /// - [`TestError::WrongRuntime`] outside of a tokio runtime with one thread.
    pub async fn run_until_idle(&self, runtime: &Runtime) -> Result<RunReport, TestError> {
        time::check_runtime()?;
        self.check_store(runtime)?;
        let watch = IdleWatch::new(self.memory(), &self.activity, runtime);
        let mut idle = Ok(());
        let run = runtime.run_until(async { idle = watch.wait_idle().await });
        let ended = tokio::select! {
            biased;
            expired = watch.wait_for_limit(self.limits) => expired.map(|()| None),
            report = run => report.map(Some).map_err(TestError::of_runtime),
        };
        match ended? {
            Some(report) => idle.map(|()| report),
            None => Err(watch.not_idle_error().await),
        }
    }

    /// Runs a runtime until its worker crashes at the store call that [`Faults::crash_at`] selects, and drops the runs in flight. The
    /// worker's leases remain until they expire.
    ///
    /// # Errors
    /// [`TestError::NoCrash`] if the runtime becomes idle before the crash, and the errors of
    /// [`run_until_idle`](Self::run_until_idle).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::testing::{Faults, Moment, Operation, TestStore, assert_responded};
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, NewBreadcrumb, Response, Runtime, Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let (store, faults) = (TestStore::new()?, Faults::new());
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
    /// let first = Runtime::on(&store.with_faults(&faults)).executor(clerk.clone()).build()?;
    /// let second = Runtime::on(&store).executor(clerk).build()?;
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    ///
    /// faults.crash_at(Operation::Commit, Moment::Before);
    /// store.run_until_crash(&first, &faults).await?;
    ///
    /// store.run_until_idle(&second).await?;
    /// assert_eq!(assert_responded(&store, "clerk", order.id).await.len(), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn run_until_crash(
        &self,
        runtime: &Runtime,
        faults: &Faults,
    ) -> Result<(), TestError> {
        tokio::select! {
            biased;
            () = faults.wait_for_crash() => Ok(()),
            report = self.run_until_idle(runtime) => {
                report?;
                let at = faults.planned_crash();
                Err(TestError::NoCrash { at })
            }
        }
    }

    /// Checks that a runtime uses this test store, either directly or through a handle with faults.
    fn check_store(&self, runtime: &Runtime) -> Result<(), TestError> {
        let store = self.identity();
        let mut used = runtime.store_ids().into_iter();
        match used.find(|used| !used.is_of(&store)) {
            Some(found) => Err(TestError::OtherStore { store, found }),
            None => Ok(()),
        }
    }

    /// Returns the inner memory store, whose calls are not counted in the check that a runtime is idle.
    fn memory(&self) -> &MemoryStore {
        self.counted_store.inner()
    }
}

#[async_trait]
impl BreadcrumbStore for TestStore {
    fn tenant(&self) -> &str {
        self.memory().tenant()
    }

    fn identity(&self) -> StoreId {
        self.memory().identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.memory().capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.counted_store.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.counted_store.search(query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.counted_store.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.counted_store.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        self.counted_store.ledger()
    }
}

impl StoreWithEvents for TestStore {
    fn event_source(&self) -> Box<dyn EventSource> {
        self.memory().event_source()
    }
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestStore")
            .field("store", self.memory())
            .finish_non_exhaustive()
    }
}
