use super::StoreError;
use super::claim::{Claim, ClaimId, Claimed, Enqueued, ExecutorLimits, Lease, Lost};
use super::lineage::WrittenBy;
use super::pause::PausedExecutor;
use super::request::{NewRequest, Requested};
use super::run::{Cancelled, NewRun, RunRef};
use super::run_list::{Run, RunFilter};
use super::run_page::{RunPage, RunQuery};
use super::worker::{Worker, WorkerRecord};
use crate::model::{BreadcrumbId, Json, Timestamp};
use async_trait::async_trait;
use std::sync::Arc;

/// Ledger of the runs of a store: one row for each run, with its state, attempts and lease.
///
/// A worker claims a run before it executes the run, and ends the run in the commit of its response. So each trigger version is
/// answered once, also if its event is delivered again or a worker crashes.
///
/// ```text
/// ready --claim: attempt + 1, new token, lease--> running --commit--> done | failed | skipped | superseded | suspended
/// running --retry--> ready (at a later time)     running --release--> ready (attempt - 1)
/// running, lease over --claim--> running         suspended --resume, or its time is up--> ready
/// failed, or skipped as unmatched --redo--> ready (in a new epoch)
/// ready, running or suspended --cancel--> failed (with the code `cancelled`)
/// running --transfer--> ready (for another version of the executor, attempt - 1)
/// transferred --skip--> skipped (as unmatched)
/// ```
///
/// A program uses the ledger to list, cancel and redo runs, and to pause executors. A
/// [`Runtime`](crate::Runtime) uses it to enqueue, claim and end runs.
/// [`MemoryStore`](super::MemoryStore), `SqliteStore` and `PostgresStore` implement the trait, so
/// import it to call its methods on them. For any store, use
/// [`BreadcrumbStore::ledger`](super::BreadcrumbStore::ledger).
///
/// # Examples
/// A worker without a runtime:
///
/// ```
/// use universal_executor::store::{ClaimId, Commit, ExecutorLimits, RunEnd, RunRef, Write};
/// use universal_executor::{
///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
/// store.enqueue(vec![RunRef::new("pricing", order.id, order.version).into()]).await?;
///
/// let of = [ExecutorLimits::new("pricing", 8)];
/// for claimed in store.claim_next(8, &of, ClaimId::unique()).await? {
///     let lease = claimed.lease;
///     // Extend the lease during long work, and stop if it is lost.
///     if !store.heartbeat(std::slice::from_ref(&lease)).await?.is_empty() {
///         continue;
///     }
///     let quote = Write::Create(NewBreadcrumb::new("quote.v1"));
///     let end = Some((lease, RunEnd::Done));
///     store.commit(Commit { writes: vec![quote], end }).await?;
/// }
/// assert!(store.latest("quote.v1").await?.is_some());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// # Contract
/// - **One run.** There is one row for each tenant, executor, trigger and trigger version, however often the run is enqueued.
/// - **Fenced.** The token of a lease decides, not the clock. The holder of an expired lease may commit until another worker
///   claims the run, and never after that.
/// - **Counted at claim.** The attempt counts when it starts, so a trigger that kills its worker runs out of attempts.
/// - **Ordered.** Of the rows of one executor with the same [ordering key](RunRef::order), only the first one that is not over
///   can be claimed. Later rows wait until the first one ends, also while it waits for a retry, is suspended, runs, or has an
///   expired lease. A row that is redone or made ready again goes to the end of the order. A row that [left](KeyPosition::Left)
///   its position with a transfer blocks no other row. It goes to the end of the order when it is accepted.
/// - **The store's clock.** All times and leases use the clock of the store. The clocks of workers do not matter.
/// - **Paused.** After a [pause](Self::pause_executor) has returned, it holds for every later claim, on every handle and in every
///   process, until the executor is resumed. It survives restarts of a durable store.
/// - **Before and after a suspension.** A breadcrumb that was committed before or with the suspension of a run has an
///   `updated_at` at or before the run's [`suspended_at`](Run::suspended_at). A breadcrumb that was committed later has an
///   `updated_at` after it.
#[async_trait]
pub trait RunLedger: Send + Sync {
    /// Adds a row to the ledger for each of the given runs that has none. Workers claim runs from these rows. An existing row
    /// stays as it is and retains its ordering key.
    ///
    /// One exception: an event can be delivered before the store has the announced version, so that its run is skipped or fails.
    /// Such a row is made ready again in a new epoch, behind all other rows.
    ///
    /// Enqueue a run when its trigger is known, and claim it later. The call is idempotent, so it
    /// can be repeated after an error.
    ///
    /// # Errors
    /// [`StoreError::Full`] if the ledger has the maximum number of open runs. No row is added then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the runs may have been added. Enqueue them again.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{RunFilter, RunRef};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version).ordered_by(Some("customer:7"));
    /// store.enqueue(vec![run.clone().into()]).await?;
    /// store.enqueue(vec![run.into()]).await?; // changes nothing
    ///
    /// let runs = store.runs(&RunFilter::all()).await?;
    /// assert_eq!(runs.len(), 1);
    /// assert_eq!(runs[0].run.order.as_deref(), Some("customer:7"));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError>;

    /// Claims one run, even if the run is not due yet. Adds a row for the run if the ledger has none.
    ///
    /// A run that is behind another run of its ordering key stays ready, and the answer is [`Claim::Running`]. A run that
    /// [left](KeyPosition::Left) its position goes to the end of the order of its key first. A run of a
    /// [paused](Self::pause_executor) executor that could start stays as it is, and the answer is [`Claim::Paused`].
    ///
    /// `instead_of` is the lease of an older version of the same trigger. The run of that lease ends as superseded in the same
    /// step, whichever answer the claim has.
    ///
    /// Use it for one known run. [`Claim`] has an example. A worker that serves many runs uses
    /// [`claim_next`](Self::claim_next).
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if `instead_of` has been lost, [`StoreError::Full`] if the run cannot be added.
    ///
    /// # Cancel safety
    /// If the future is dropped, the run may have been claimed. It can be claimed again when this lease expires.
    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError>;

    /// Claims up to `n` due runs of the executors that `of` names. Executors take turns, and the runs of one executor start with
    /// the oldest. The result has this order. Omits [paused](Self::pause_executor) executors.
    ///
    /// `of` limits the number of runs of each executor. Only executors that `of` names are claimed.
    ///
    /// `id` names this claim, so that a lost answer loses no leases. If the answer does not arrive, list the leases with
    /// [`RunFilter::of_claim`] and [release](Self::release) them.
    ///
    /// [`RunLedger`] has an example of a worker, and [`ClaimId`] of a lost answer.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    ///
    /// # Cancel safety
    /// If the future is dropped, runs may have been claimed. List them with `id`, or wait until their leases expire.
    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError>;

    /// Adds runs to the ledger like [`enqueue`](Self::enqueue), then claims due runs like [`claim_next`](Self::claim_next).
    ///
    /// The default implementation calls both. A store that does both in one step saves a round trip for each batch of events.
    /// Runs whose triggers have just arrived start through this method.
    ///
    /// # Errors
    /// The errors of [`enqueue`](Self::enqueue). If the rows were added and the claim failed, [`Enqueued::claimed`] has the
    /// error.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{ClaimId, ExecutorLimits, RunRef};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let runs = vec![RunRef::new("pricing", order.id, order.version).into()];
    /// let of = [ExecutorLimits::new("pricing", 8)];
    ///
    /// let enqueued = store.enqueue_and_claim(runs, 8, &of, ClaimId::unique()).await?;
    /// assert_eq!(enqueued.claimed?.len(), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn enqueue_and_claim(
        &self,
        runs: Vec<NewRun>,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Enqueued, StoreError> {
        self.enqueue(runs).await?;
        let claimed = match n {
            0 => Ok(Vec::new()),
            n => self.claim_next(n, of, id).await,
        };
        Ok(Enqueued { claimed })
    }

    /// Starts the attempt of a run that [`claim_next`](Self::claim_next) claimed, or ends the run if the response of an earlier
    /// attempt is saved.
    ///
    /// The default implementation grants the run unchanged. A ledger that saved the response of an earlier attempt writes the
    /// response here and ends the run.
    ///
    /// # Errors
    /// The errors of [`claim`](Self::claim).
    async fn begin(&self, claimed: Claimed) -> Result<Claim, StoreError> {
        Ok(Claim::Granted(claimed))
    }

    /// Extends the given leases, and returns those of them that are lost. Each lease then lasts for its whole length from now. Call
    /// this method after every third of the lease length.
    ///
    /// A lost lease in this call proves that its owner is alive: only later leases then count as [abandoned](Lease::abandoned).
    ///
    /// One call can have the leases of many runs. An expired lease is extended too, unless another
    /// worker has claimed the run.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the leases may have been extended. Repeat the call.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{Claim, RunRef};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// let Claim::Granted(claimed) = store.claim(&run, None).await? else {
    ///     return Err("another worker has the run".into());
    /// };
    /// let leases = [claimed.lease];
    /// assert!(store.heartbeat(&leases).await?.is_empty());
    ///
    /// store.cancel(&run).await?; // by an operator
    /// let lost = store.heartbeat(&leases).await?;
    /// assert_eq!(lost.len(), 1);
    /// assert_eq!(lost[0].run, run);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError>;

    /// Releases a run after a failed attempt, and makes it due again at `at`.
    ///
    /// If `counts` is `false`, the failure uses no attempt, for example a rate limit, and the number of abandoned leases stays.
    /// `cause` is recorded as [`Run::cause`], truncated to [1,000 bytes](super::DeadLetter::LONGEST_CAUSE). `None` leaves the
    /// recorded cause as it is.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another worker has claimed the run, or the run was released or has ended.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::time::Duration;
    /// use universal_executor::store::{Claim, RunRef};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// let Claim::Granted(first) = store.claim(&run, None).await? else {
    ///     return Err("another worker has the run".into());
    /// };
    /// store.save(&first.lease, json!({"page": 3}).into()).await?;
    /// let at = first.lease.granted_at + Duration::from_secs(10);
    /// store.retry(first.lease, at, true, Some("the server is busy")).await?;
    ///
    /// // A claim by name does not wait until the run is due.
    /// let Claim::Granted(second) = store.claim(&run, None).await? else {
    ///     return Err("another worker has the run".into());
    /// };
    /// assert_eq!(second.attempt, 2);
    /// assert_eq!(second.state.ok_or("no state")?.state["page"], 3);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError>;

    /// Releases a run at once, as if it had not been claimed. Workers release their runs when they shut down.
    ///
    /// The attempt does not count, and the run is due at once. [`ClaimId`] has an example.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another worker has claimed the run, or the run was released or has ended.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{Claim, RunRef, StoreError};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// for _ in 0..3 {
    ///     let Claim::Granted(claimed) = store.claim(&run, None).await? else {
    ///         return Err("another worker has the run".into());
    ///     };
    ///     assert_eq!(claimed.attempt, 1, "a release uses no attempt");
    ///     store.release(claimed.lease.clone()).await?;
    ///
    ///     // The lease is lost now.
    ///     let again = store.release(claimed.lease).await;
    ///     assert!(matches!(again, Err(StoreError::LeaseLost { .. })));
    /// }
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;

    /// Releases a run so that another version of its executor can claim it. The other version matches the trigger. The attempt
    /// does not count.
    ///
    /// The run becomes due when a worker of that version [accepts](Self::accept_transfers) it, at the latest at `until`.
    /// `position` decides whether later runs with its ordering key wait for the run. A run that leaves its position is not
    /// claimed before it is accepted: at `until` or later, a worker of any version of its executor accepts it.
    ///
    /// A runtime uses it in a rolling deploy, when the trigger does not match its own version of an
    /// executor and another live version matches.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another worker has claimed the run, or the run was released or has ended.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use universal_executor::store::{Claim, KeyPosition, RunRef};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// let Claim::Granted(claimed) = store.claim(&run, None).await? else {
    ///     return Err("another worker has the run".into());
    /// };
    /// let until = claimed.lease.until;
    /// store.transfer(claimed.lease, "v2", until, KeyPosition::Held).await?;
    ///
    /// // A worker with this version accepts the run, and can then claim it.
    /// let versions = [(Arc::from("pricing"), Arc::from("v2"))];
    /// assert_eq!(store.accept_transfers(&versions).await?, 1);
    /// assert_eq!(store.accept_transfers(&versions).await?, 0);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError>;

    /// Makes transferred runs due: the runs that were [transferred](Self::transfer) to one of `versions`, given as pairs of
    /// executor ID and version. Also makes the runs of these executors due that left the order of their ordering key and
    /// reached the time limit of their transfer, whichever version they were transferred to.
    ///
    /// A run that left the order of its ordering key goes to the end of this order. Several such runs retain their order among
    /// themselves.
    ///
    /// Returns the number of these runs, at most 1,000 for each version. After a result below 1,000, no such run is left.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError>;

    /// Stores the record of a worker (its name and executors) with the current time, and replaces the worker's earlier record.
    ///
    /// Deletes records older than [24 h](Worker::KEPT), and the oldest records beyond [1,000](Worker::MOST). If the store's clock
    /// may have just jumped ahead, the ledger must not delete records by their age: the live workers need time to store theirs
    /// again.
    ///
    /// A runtime calls it every 10 s. Other workers see from the record which versions of an
    /// executor run.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError>;

    /// Lists the workers of this tenant, first the worker that stored its record most recently.
    ///
    /// [`Worker::is_live`] is `false` for a worker that has stopped or is lost.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn workers(&self) -> Result<Vec<Worker>, StoreError>;

    /// Saves the event positions of these executors, from which a restarted runtime searches for triggers without a run in the
    /// ledger. A position is bytes that only the runtime interprets. Replaces the saved position of each of these executors.
    ///
    /// The ledger retains the [10,000](SavedPosition::MOST) most recently saved positions of a tenant and deletes the others.
    ///
    /// A runtime reads the triggers after the position when it starts, so that no trigger of a
    /// downtime is lost.
    ///
    /// # Errors
    /// [`StoreError::PositionTooLarge`] for a position of more than [1 KiB](SavedPosition::MAX_BYTES). No position is saved then.
    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError>;

    /// Returns the saved event position of each of these executors, in the order of `executors`, or `None` for an executor
    /// without a saved position.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use universal_executor::{MemoryStore, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let pricing: Arc<str> = "pricing".into();
    /// store.save_positions(&[(Arc::clone(&pricing), vec![1, 2])]).await?;
    ///
    /// let found = store.positions(&[pricing, "unknown".into()]).await?;
    /// assert_eq!(found, [Some(vec![1, 2]), None]);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

    /// Saves the progress of a running run, from which its next attempt continues.
    ///
    /// A runtime calls it when an executor saves its progress. [`retry`](Self::retry) has an
    /// example. The saved state replaces the previous one, and is removed when the run ends.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another worker has claimed the run, or the run was released or has ended.
    /// [`StoreError::Rejected`] if the state is nested too deeply or too large.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::store::{Claim, RunRef};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// let Claim::Granted(first) = store.claim(&run, None).await? else {
    ///     return Err("another worker has the run".into());
    /// };
    /// store.save(&first.lease, json!({"page": 1}).into()).await?;
    /// store.save(&first.lease, json!({"page": 2}).into()).await?;
    /// store.release(first.lease).await?;
    ///
    /// let Claim::Granted(next) = store.claim(&run, None).await? else {
    ///     return Err("another worker has the run".into());
    /// };
    /// assert_eq!(next.state.ok_or("no state")?.state["page"], 2);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError>;

    /// Wakes a suspended run with the breadcrumb that it waited for.
    ///
    /// A runtime does this for each breadcrumb that matches the [`Wake`](super::Wake) of a
    /// suspended run. A program calls it to continue a run manually. The run is due at once.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if the run is not suspended, [`StoreError::UnknownRun`] if the ledger does not have the run.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::store::{Claim, Commit, RunEnd, RunRef};
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger, Selector,
    ///     Wake,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// let Claim::Granted(claimed) = store.claim(&run, None).await? else {
    ///     return Err("another worker has the run".into());
    /// };
    /// let wake = Wake::on(Selector::schema("release.v1"));
    /// let end = RunEnd::Suspended { wake, state: json!({"price": 5}).into() };
    /// store.commit(Commit { writes: Vec::new(), end: Some((claimed.lease, end)) }).await?;
    ///
    /// let release = store.create(NewBreadcrumb::new("release.v1")).await?;
    /// store.resume(&run, release.id).await?;
    /// let Claim::Granted(continued) = store.claim(&run, None).await? else {
    ///     return Err("another worker has the run".into());
    /// };
    /// let saved = continued.state.ok_or("no state")?;
    /// assert_eq!(saved.state["price"], 5);
    /// assert_eq!(saved.with, Some(release.id));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError>;

    /// Repeats a run that failed, or that was skipped because its executor did not match the trigger. The run goes behind all
    /// other runs, in a new epoch with fresh attempts and a new idempotency key.
    ///
    /// Correct the cause of the failure first. [`DeadLetter::run_of`](super::DeadLetter::run_of)
    /// has an example.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if the run is in another state, [`StoreError::UnknownRun`] if the ledger does not have the run.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{RunRef, RunState, StoreError};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// assert!(matches!(store.redo(&run).await, Err(StoreError::UnknownRun { .. })));
    ///
    /// store.enqueue(vec![run.clone().into()]).await?;
    /// let ready = store.redo(&run).await;
    /// assert!(matches!(ready, Err(StoreError::WrongState { state: RunState::Ready, .. })));
    ///
    /// // A cancelled run is a failed run.
    /// store.cancel(&run).await?;
    /// store.redo(&run).await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn redo(&self, run: &RunRef) -> Result<(), StoreError>;

    /// Cancels a run that is not over. The run ends as failed, with the code [`CANCELLED`](super::RunEnd::CANCELLED) and without
    /// a dead letter.
    ///
    /// The lease of a running run is lost. Its worker learns this from the next [heartbeat](Self::heartbeat), and later commits
    /// of this worker fail. The next run with the same ordering key can be claimed at once.
    ///
    /// [`redo`](Self::redo) repeats a cancelled run at once. Its last worker may then still execute it until its next heartbeat.
    /// Without a redo, a run stays cancelled for as long as the store retains its row.
    ///
    /// [`WithLedger`](super::WithLedger) writes a response before it ends the run, so a response that is written during the
    /// cancellation can become visible.
    ///
    /// # Errors
    /// [`StoreError::UnknownRun`] if the ledger does not have the run.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{Cancelled, RunRef, RunState};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// store.enqueue(vec![run.clone().into()]).await?;
    ///
    /// assert_eq!(store.cancel(&run).await?, Cancelled::Waiting);
    /// assert_eq!(store.cancel(&run).await?, Cancelled::Over(RunState::Failed));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError>;

    /// Cancels a run like [`cancel`](Self::cancel), even if the ledger does not have the run yet. In the same step, first adds a
    /// run that the ledger does not have, like [`enqueue`](Self::enqueue). The answer for such a run is [`Cancelled::Waiting`].
    ///
    /// A run that no worker has enqueued yet is then never executed, because a worker that enqueues it later finds the ended run.
    /// This holds for as long as the store retains its row. The maximum number of open runs does not apply, because the run never
    /// becomes open.
    ///
    /// Use it to cancel a request right after its breadcrumb was written, when the run may not
    /// exist yet.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{Cancelled, Claim, RunRef, RunState};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// assert_eq!(store.enqueue_cancelled(&run).await?, Cancelled::Waiting);
    ///
    /// let claim = store.claim(&run, None).await?;
    /// assert!(matches!(claim, Claim::Done { state: RunState::Failed, .. }));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError>;

    /// Ends a [transferred](Self::transfer) run as skipped, because no version of its executor matches the trigger. The reason
    /// of the run is [`UNMATCHED`](super::RunEnd::UNMATCHED). Other runs with its ordering key may be running.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if the run does not wait for another version of its executor, [`StoreError::UnknownRun`] if the
    /// ledger does not have the run.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{Claim, KeyPosition, RunRef, RunState};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    /// let Claim::Granted(claimed) = store.claim(&run, None).await? else {
    ///     return Err("another worker has the run".into());
    /// };
    /// let until = claimed.lease.until;
    /// store.transfer(claimed.lease, "v2", until, KeyPosition::Held).await?;
    /// store.skip(&run).await?;
    ///
    /// let claim = store.claim(&run, None).await?;
    /// assert!(matches!(claim, Claim::Done { state: RunState::Skipped, .. }));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn skip(&self, run: &RunRef) -> Result<(), StoreError>;

    /// Pauses an executor, so that no worker claims its runs. A claim that starts after this call has returned claims no run of
    /// the executor, on any handle and in any process, until [`resume_executor`](Self::resume_executor). Returns `false` if the
    /// executor was paused already. Its time of pause then stays the same.
    ///
    /// The pause affects only claims:
    /// - Runs are enqueued as usual.
    /// - A running run continues: its worker extends the lease, saves its progress and ends the run. If it fails, or its lease
    ///   expires, the run waits.
    /// - A suspended run can be resumed, and then waits too.
    ///
    /// The ID of an executor that no worker has is accepted.
    ///
    /// Use it when an executor harms another system, or while an operator corrects its
    /// configuration.
    ///
    /// # Errors
    /// [`StoreError::Full`] if [`PausedExecutor::MOST`] executors are paused.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{Claim, RunRef};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = RunRef::new("pricing", order.id, order.version);
    ///
    /// assert!(store.pause_executor("pricing").await?);
    /// assert!(matches!(store.claim(&run, None).await?, Claim::Paused { .. }));
    /// assert_eq!(&*store.paused_executors().await?[0].executor, "pricing");
    ///
    /// assert!(store.resume_executor("pricing").await?);
    /// assert!(matches!(store.claim(&run, None).await?, Claim::Granted(_)));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError>;

    /// Ends the [pause](Self::pause_executor) of an executor. Its runs can be claimed again, in their previous order. Returns
    /// `false` if the executor is not paused.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError>;

    /// Lists the [paused](Self::pause_executor) executors of this tenant in the order of their IDs.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError>;

    /// Creates a breadcrumb as the trigger of an executor, unless an earlier request with the same executor and idempotency key
    /// has created one. In one step, the call creates the breadcrumb, publishes its event and records the key. If the tenant
    /// already has the key for this executor, the call returns the trigger of the earlier request. Of several concurrent calls,
    /// one creates the breadcrumb.
    ///
    /// The event enqueues the run, as for any other breadcrumb, so all executors that match are triggered. A repeated request
    /// must have an equal breadcrumb, in all fields. This includes its [`ttl`](crate::Breadcrumb::ttl): set a time that is the
    /// same in each call.
    ///
    /// A key is retained for at least [7 days](NewRequest::KEPT), and for as long as the ledger has its run. Later requests
    /// delete older keys. Needs [`Capabilities::keyed_requests`](super::Capabilities::keyed_requests).
    ///
    /// [`NewRequest`] has an example.
    ///
    /// # Errors
    /// [`StoreError::KeyConflict`] if the earlier request has another breadcrumb, [`StoreError::InvalidKey`],
    /// [`StoreError::Unsupported`], [`StoreError::Full`] if the ledger has as many keys as it may have runs, and the errors of a
    /// commit.
    ///
    /// # Cancel safety
    /// If the future is dropped, the breadcrumb may have been created. Call the method again with the same request.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{NewRequest, StoreError};
    /// use universal_executor::{MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = NewBreadcrumb::new("order.v1");
    /// let changed = order.clone().title("changed");
    /// store.request(NewRequest::new("pricing", "order-17", order)).await?;
    ///
    /// let conflict = store.request(NewRequest::new("pricing", "order-17", changed)).await;
    /// assert!(matches!(conflict, Err(StoreError::KeyConflict { .. })));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError>;

    /// Lists the ledger rows of the runs that a filter selects, in the order in which they are due. Rows that are due at the same
    /// time are in the order in which they were added.
    ///
    /// The whole list is in memory: set a [limit](RunFilter::limit()) for a large store, or read
    /// pages with [`runs_page`](Self::runs_page). [`RunFilter`] has an example.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError>;

    /// Returns one page of the runs that a query selects, the most recently enqueued first. A redo counts as enqueuing. A
    /// transferred run that [left](KeyPosition::Left) the order of its ordering key comes before all others until it is
    /// accepted.
    ///
    /// The pages of one walk contain each run that did not change meanwhile exactly once. Runs that were enqueued or redone since
    /// the first page can be on a later page only while the pages contain transferred runs.
    ///
    /// [`RunQuery`] has an example that reads all pages.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError>;

    /// Returns the recorded writer of each of these breadcrumb versions, in the order of `versions`.
    ///
    /// The writer of a breadcrumb chooses fields such as `creator` and `created_by`, so an approval must not depend on them
    /// alone.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::WrittenBy;
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// // The author is only a claim of the writer. No run wrote this breadcrumb.
    /// let approval = NewBreadcrumb::new("approval.v1").created_by("pricing");
    /// let approval = store.create(approval).await?;
    ///
    /// let writers = store.written_by(&[(approval.id, approval.version)]).await?;
    /// assert_eq!(writers, [WrittenBy::Outside]);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError>;
}

/// Limits of a ledger for the saved event [positions](RunLedger::save_positions) of executors: their size and their number.
///
/// The type has no values: it only carries the two constants, 1 KiB and 10,000.
#[derive(Debug)]
#[non_exhaustive]
pub struct SavedPosition;

impl SavedPosition {
    /// Maximum size of an executor's saved event position in bytes.
    pub const MAX_BYTES: usize = 1024;
    /// Maximum number of event positions that a ledger saves for one tenant, one for each executor.
    pub const MOST: usize = 10_000;

    /// Returns an error if the event position of one of these executors is too large.
    pub(in crate::store) fn check(positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        match positions
            .iter()
            .find(|(_, bytes)| bytes.len() > Self::MAX_BYTES)
        {
            Some((executor, bytes)) => Err(StoreError::PositionTooLarge {
                executor: Arc::clone(executor),
                size: bytes.len(),
                limit: Self::MAX_BYTES,
            }),
            None => Ok(()),
        }
    }
}

/// Effect of a [transfer](RunLedger::transfer) on the position of the run in the order of its ordering key. Without an ordering
/// key, both variants are the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyPosition {
    /// Later runs with the same ordering key wait for the transferred run.
    ///
    /// Use it if the order of the runs matters more than their delay.
    Held,
    /// Later runs with the same ordering key do not wait for the transferred run. When the run is accepted, it goes behind the
    /// runs that were added before.
    ///
    /// Use it if a delay of the later runs is worse than a changed order.
    Left,
}
