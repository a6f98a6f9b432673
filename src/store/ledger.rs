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
    /// Adds a row to the ledger for each of these runs. Workers claim runs from these rows. An existing row stays as it is and
    /// retains its ordering key.
    ///
    /// One exception: an event can be delivered before the store has the announced version, so that its run is skipped or fails.
    /// Such a row is made ready again in a new epoch, behind all other rows.
    ///
    /// # Errors
    /// [`StoreError::Full`] if the ledger has the maximum number of open runs. No row is added then.
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
    /// # Errors
    /// [`StoreError::LeaseLost`] if `instead_of` has been lost, [`StoreError::Full`] if the run cannot be added.
    ///
    /// # Cancel safety
    /// If the future is dropped, the run may have been claimed. It can be claimed again when this lease expires.
    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError>;

    /// Claims up to `n` due runs. Executors take turns, and the runs of one executor start with the oldest. The result has this
    /// order. Omits [paused](Self::pause_executor) executors.
    ///
    /// `of` limits the number of runs of each executor. Only executors that `of` names are claimed.
    ///
    /// `id` names this claim, so that a lost answer loses no leases. If the answer does not arrive, list the leases with
    /// [`RunFilter::of_claim`] and [release](Self::release) them.
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

    /// Starts the attempt of a run that [`claim_next`](Self::claim_next) claimed, or ends the run with its saved response.
    ///
    /// The default implementation grants the run unchanged. A ledger that saved the response of an earlier attempt writes the
    /// response here and ends the run.
    ///
    /// # Errors
    /// The errors of [`claim`](Self::claim).
    async fn begin(&self, claimed: Claimed) -> Result<Claim, StoreError> {
        Ok(Claim::Granted(claimed))
    }

    /// Extends each lease by its length from now, and returns the leases that are lost. Call it every third of a lease.
    ///
    /// A lost lease in this call proves that its owner is alive: only later leases then count as [abandoned](Lease::abandoned).
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError>;

    /// Releases a run after a failed attempt, and makes it due again at `at`.
    ///
    /// If `counts` is `false`, the failure uses no attempt, for example a rate limit, and the number of abandoned leases stays.
    /// `cause` is recorded as [`Run::cause`], truncated to [1,000 bytes](super::DeadLetter::LONGEST_CAUSE). `None` leaves the
    /// recorded cause as it is.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another worker has claimed the run, or the run was released or has ended.
    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError>;

    /// Releases a run at once, as if it had not been claimed. Workers release their runs when they shut down.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another worker has claimed the run, or the run was released or has ended.
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;

    /// Releases a run so that another version of its executor can claim it. The other version matches the trigger. The attempt
    /// does not count.
    ///
    /// The run becomes due when a worker of that version [accepts](Self::accept_transfers) it, at the latest at `until`.
    /// `position` decides whether later runs with its ordering key wait for the run. A run that leaves its position is not
    /// claimed before it is accepted: at `until` or later, a worker of any version of its executor accepts it.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another worker has claimed the run, or the run was released or has ended.
    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError>;

    /// Makes transferred runs due: the runs that were [transferred](Self::transfer) to one of `versions`, given as pairs of
    /// executor ID and version. Also makes the runs of these executors due that left their position and reached their time,
    /// whichever version they were transferred to.
    ///
    /// A run that left its position goes to the end of the order of its ordering key. Several such runs retain their order among
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

    /// Stores the record of a worker with the current time, and replaces the record with the same ID.
    ///
    /// Deletes records older than [24 h](Worker::KEPT), and the oldest records beyond [1,000](Worker::MOST). If the store's clock
    /// may have just jumped ahead, the ledger must not delete records by their age: the live workers need time to store theirs
    /// again.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError>;

    /// Lists the workers of this tenant, the most recently stored record first.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn workers(&self) -> Result<Vec<Worker>, StoreError>;

    /// Saves the position of a worker for each of these executors: the intervals of time with triggers that the ledger possibly
    /// does not contain yet. A position is bytes that only the runtime interprets. Replaces the saved position of each of these
    /// executors.
    ///
    /// The ledger retains the [10,000](SavedPosition::MOST) most recently saved positions of a tenant and deletes the others.
    ///
    /// # Errors
    /// [`StoreError::PositionTooLarge`] for a position of more than [1 KiB](SavedPosition::MAX_BYTES). No position is saved then.
    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError>;

    /// Returns the saved position of each of these executors, in the order of `executors`. The position of an executor without
    /// one is `None`.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

    /// Saves the progress of a running run, from which its next attempt continues.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another worker has claimed the run, or the run was released or has ended.
    /// [`StoreError::Rejected`] if the state is nested too deeply or too large.
    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError>;

    /// Wakes a suspended run with the breadcrumb that it waited for.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if the run is not suspended, [`StoreError::UnknownRun`] if the ledger does not have the run.
    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError>;

    /// Repeats a run that failed, or that was skipped because its executor did not match the trigger. The run goes behind all
    /// other runs, in a new epoch with fresh attempts and a new idempotency key.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if the run is in another state, [`StoreError::UnknownRun`] if the ledger does not have the run.
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
    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError>;

    /// Cancels a run like [`cancel`](Self::cancel), even if the ledger does not have the run yet. In the same step, first adds a
    /// run that the ledger does not have, like [`enqueue`](Self::enqueue). The answer for such a run is [`Cancelled::Waiting`].
    ///
    /// A run that no worker has enqueued yet is then never executed, because a worker that enqueues it later finds the ended run.
    /// This holds for as long as the store retains its row. The maximum number of open runs does not apply, because the run never
    /// becomes open.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError>;

    /// Ends a [transferred](Self::transfer) run as skipped, because no version of its executor matches the trigger. The reason
    /// of the run is [`UNMATCHED`](super::RunEnd::UNMATCHED). Other runs with its ordering key may be running.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if the run does not wait for another version of its executor, [`StoreError::UnknownRun`] if the
    /// ledger does not have the run.
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
    /// # Errors
    /// [`StoreError::Full`] if [`PausedExecutor::MOST`] executors are paused.
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

    /// Creates a breadcrumb that triggers an executor, once for each idempotency key. If no earlier request of this tenant has the
    /// executor and the key, the call creates the breadcrumb, publishes its event and records the key, in one step. Otherwise it
    /// returns the trigger of the earlier request. Of several concurrent calls, one creates the breadcrumb.
    ///
    /// The event enqueues the run, as for any other breadcrumb, so all executors that match are triggered. A repeated request
    /// must have an equal breadcrumb, in all fields. This includes its [`ttl`](crate::Breadcrumb::ttl): set a time that is the
    /// same in each call.
    ///
    /// A key is retained for at least [7 days](NewRequest::KEPT), and for as long as the ledger has its run. Later requests
    /// delete older keys. Needs [`Capabilities::keyed_requests`](super::Capabilities::keyed_requests).
    ///
    /// # Errors
    /// [`StoreError::KeyConflict`] if the earlier request has another breadcrumb, [`StoreError::InvalidKey`],
    /// [`StoreError::Unsupported`], [`StoreError::Full`] if the ledger has as many keys as it may have runs, and the errors of a
    /// commit.
    ///
    /// # Cancel safety
    /// If the future is dropped, the breadcrumb may have been created. Call the method again with the same request.
    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError>;

    /// Lists the ledger rows of the runs that a filter selects, in the order in which they are due. Rows that are due at the same
    /// time are in the order in which they were added.
    ///
    /// # Errors
    /// Returns an error only if the store fails, for example [`StoreError::Unavailable`].
    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError>;

    /// Returns one page of the runs that a query selects, the most recently enqueued first. A redo counts as enqueuing. A
    /// transferred run that [left](KeyPosition::Left) its position comes before all others until it is accepted.
    ///
    /// The pages of one walk contain each run that did not change meanwhile exactly once. Runs that were enqueued or redone since
    /// the first page can be on a later page only while the pages contain transferred runs.
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
    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError>;
}

/// Limits of the executor [positions](RunLedger::save_positions) that a ledger saves.
#[derive(Debug)]
#[non_exhaustive]
pub struct SavedPosition;

impl SavedPosition {
    /// Maximum size of an executor's position in bytes.
    pub const MAX_BYTES: usize = 1024;
    /// Maximum number of executor positions that a ledger retains for one tenant, one for each executor.
    pub const MOST: usize = 10_000;

    /// Returns an error if one of these executor positions is too large.
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
    Held,
    /// Later runs with the same ordering key do not wait for the transferred run. When the run is accepted, it goes behind the
    /// runs that were added before.
    Left,
}
