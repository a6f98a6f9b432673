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

/// The rows that say which run of which executor is waiting, running or over: the reason why nothing is answered twice.
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
/// - **One run.** There is one row for each tenant, executor, trigger and trigger version, however often it is enqueued.
/// - **Fenced.** The token of a lease decides, not the clock: an expired lease may still commit until another worker
///   claims the run, and never after.
/// - **Counted at claim.** The attempt counts when it starts, so a trigger that kills its worker runs out of attempts.
/// - **Ordered.** Of the rows of one executor with the same [ordering key](RunRef::order) only the first that is not
///   over can be claimed. One that waits for a retry, is suspended, runs, or whose lease ran out keeps those behind it
///   waiting until it ends. A row that is redone or made ready again goes to the end. A row that
///   [left](KeyPosition::Left) its position with a transfer keeps no other row waiting; it goes to the end when it is accepted.
/// - **The store's clock.** Leases and times are the store's; the clocks of workers do not matter.
/// - **Paused.** A [pause](Self::pause_executor) that was answered holds for every later claim, on every handle and in every process,
///   until the executor is resumed. It survives restarts of a durable store.
/// - **Before and after a suspension.** What was committed before a run was suspended, or with it, has `updated_at` at
///   or before its [`suspended_at`](Run::suspended_at), and what is committed later has it after.
#[async_trait]
pub trait RunLedger: Send + Sync {
    /// Adds rows; a row that exists stays as it is, with the ordering key it has. One that ended before the version it
    /// is about existed, because an event announced it too early, is made ready again in a new epoch, behind all others.
    ///
    /// # Errors
    /// [`StoreError::Full`] if the ledger's bound is reached; then none is added.
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError>;

    /// Claims one run by hand, whatever time it waits for, and adds it if it is not there. One that is behind another
    /// of its ordering key stays ready, and the answer is [`Claim::Running`]. A run that [left](KeyPosition::Left) its position
    /// goes to the end of the order of its key first.
    ///
    /// `instead_of` is the lease of an older version of the same trigger: its run ends as superseded in the same step,
    /// whatever the answer is.
    ///
    /// A run of a [paused](Self::pause_executor) executor that could start stays as it is, and the answer is [`Claim::Paused`].
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if `instead_of` is not held any more.
    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError>;

    /// Claims up to `n` due runs: takes turns between the executors, oldest first within one. Returns them in this order. Omits
    /// [paused](Self::pause_executor) executors.
    ///
    /// `id` names this claim, so that its leases are not lost with its answer: if the answer does not arrive, or the caller is
    /// dropped, list them with [`RunFilter::of_claim`] and [release](Self::release) them.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError>;

    /// Adds rows like [`enqueue`](Self::enqueue), then claims like [`claim_next`](Self::claim_next).
    ///
    /// The default calls both. A store that does both in one step saves a round trip for each batch of events: it is the path of
    /// a run that starts when its trigger arrives.
    ///
    /// # Errors
    /// The errors of [`enqueue`](Self::enqueue). A failed claim of rows that were added is an error in [`Enqueued::claimed`].
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

    /// Prepares a run that [`claim_next`](Self::claim_next) claimed, at the start of its attempt.
    ///
    /// The default is to grant it as it is. A ledger that saved the response of an earlier attempt writes it here and ends
    /// the run.
    ///
    /// # Errors
    /// The errors of [`claim`](Self::claim).
    async fn begin(&self, claimed: Claimed) -> Result<Claim, StoreError> {
        Ok(Claim::Granted(claimed))
    }

    /// Extends leases by their length from now; returns those that are lost. Call it every third of a lease.
    ///
    /// A lost lease in this call shows that its owner lives: then only later leases count as [abandoned](Lease::abandoned).
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError>;

    /// Releases a run after a failed attempt, to be retried at a time. `counts` is `false` for a failure that uses no attempt,
    /// such as a rate limit; then the number of abandoned leases stays too. `cause` is recorded as [`Run::cause`], cut to
    /// [1,000 bytes](super::DeadLetter::LONGEST_CAUSE); `None` leaves the recorded cause as it is.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`].
    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError>;

    /// Gives a run back at once, as if it had not been claimed. For shutting down.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`].
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;

    /// Releases a run for another version of its executor, which matches the trigger. The attempt does not count.
    ///
    /// The run becomes due when a worker of that version [accepts](Self::accept_transfers) it, at the latest at `until`. Whether
    /// later runs with its ordering key wait for it depends on `position`. A run that leaves its position is not claimed before
    /// it is accepted: at `until` or later, a worker of any version of its executor accepts it.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`].
    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError>;

    /// Makes the runs due that were [transferred](Self::transfer) to these versions of executors, given as (ID, version), and
    /// the runs of these executors that left their position and reached their time, whatever their version. A run that left
    /// its position goes to the end of the order of its ordering key; several such runs retain their order among themselves.
    ///
    /// Returns their number, at most 1,000 for each version: after an answer of less than 1,000, none of these runs is left.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError>;

    /// Stores the record of a worker with the current time, in the place of the record with the same ID.
    ///
    /// Deletes records older than [24 h](Worker::KEPT), and the oldest beyond [1,000](Worker::MOST). While the clock of the store may have
    /// jumped ahead a moment ago, records must not be deleted by their age: the live workers need time to store theirs again.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError>;

    /// Lists the workers of this tenant, the most recently stored record first.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn workers(&self) -> Result<Vec<Worker>, StoreError>;

    /// Saves the position of a worker for each of these executors, as bytes that only the runtime reads. Replaces the saved
    /// position of each of them.
    ///
    /// The ledger retains the [most recently saved](SavedPosition::MOST) positions of a tenant and deletes the others.
    ///
    /// # Errors
    /// [`StoreError::PositionTooLarge`] for a position of more than [1 KiB](SavedPosition::MAX_BYTES); then none is saved.
    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError>;

    /// Returns the saved position of each of these executors, in their order; `None` for an executor without one.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;

    /// Keeps the progress of a run, for the next attempt to go on with.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; [`StoreError::Rejected`] for a state too deep or too large.
    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError>;

    /// Wakes a suspended run with the breadcrumb it waited for.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if it is not suspended (any more), [`StoreError::UnknownRun`].
    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError>;

    /// Repeats a run that failed, or that was skipped because its executor did not match the trigger: behind all other runs, in
    /// a new epoch with fresh attempts and a new idempotency key.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if the run is in another state, [`StoreError::UnknownRun`].
    async fn redo(&self, run: &RunRef) -> Result<(), StoreError>;

    /// Ends a run that is not over as failed, with the code [`CANCELLED`](super::RunEnd::CANCELLED) and without a dead letter.
    ///
    /// The lease of a running run is lost: its worker learns of it with the next [heartbeat](Self::heartbeat), and nothing that the
    /// worker commits later becomes visible. The next run with the same ordering key can be claimed at once.
    /// [`redo`](Self::redo) repeats a cancelled run, at once: its last worker may still execute it until its next heartbeat.
    /// A run stays cancelled for as long as the store retains its row.
    ///
    /// [`WithLedger`](super::WithLedger) writes a response before it ends the run, so a response of that moment can become visible.
    ///
    /// # Errors
    /// [`StoreError::UnknownRun`].
    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError>;

    /// Cancels a run like [`cancel`](Self::cancel), and first adds a run that the ledger does not have, like
    /// [`enqueue`](Self::enqueue), in one step. The answer for a run that this call adds is [`Cancelled::Waiting`].
    ///
    /// So a run that no worker has enqueued is never executed: for a worker that enqueues it later, the run exists. This holds
    /// for as long as the store retains its row. The bound of open runs does not apply, because no run becomes open.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError>;

    /// Ends a [transferred](Self::transfer) run as skipped, with the reason of a run that no version matches. Other runs of its
    /// ordering key can be running.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if the run does not wait for another version of its executor, [`StoreError::UnknownRun`].
    async fn skip(&self, run: &RunRef) -> Result<(), StoreError>;

    /// Pauses an executor: no claim that is called after the answer starts a run of it, on any handle and in any process, until
    /// [`resume_executor`](Self::resume_executor). Returns `false` if the executor is paused already; its time of pause stays.
    ///
    /// Only claims are affected. Runs are enqueued as usual. A running run continues: its worker extends the lease, saves its
    /// progress and ends the run. If it fails, or its lease expires, the run waits. A suspended run can be resumed, and then waits
    /// too. The ID of an executor that no worker has is accepted.
    ///
    /// # Errors
    /// [`StoreError::Full`] if [`PausedExecutor::MOST`] executors are paused.
    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError>;

    /// Ends the [pause](Self::pause_executor) of an executor: its runs can be claimed again, in the order that they had. Returns
    /// `false` if the executor is not paused.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError>;

    /// Lists the [paused](Self::pause_executor) executors of this tenant in the order of their IDs.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError>;

    /// Creates a breadcrumb for an executor, once for each key. In one step, with the event of the breadcrumb: if no request of this
    /// tenant has the executor and the key, creates the breadcrumb and records the key. Otherwise returns the trigger of the earlier
    /// request. However many callers send a request at a time, one creates the breadcrumb.
    ///
    /// The run is enqueued by the event, as for any other breadcrumb, so all executors that match are triggered. An equal breadcrumb
    /// is equal in all fields, also in its [`ttl`](crate::Breadcrumb::ttl): set a time that is the same in each call.
    ///
    /// A key is retained for at least [7 days](NewRequest::KEPT), and for as long as the ledger has its run. Later requests delete
    /// older keys. Needs [`Capabilities::keyed_requests`](super::Capabilities::keyed_requests).
    ///
    /// # Errors
    /// [`StoreError::KeyConflict`] if the breadcrumb of the earlier request is another one, [`StoreError::InvalidKey`],
    /// [`StoreError::Unsupported`], [`StoreError::Full`] if the ledger has as many keys as it may have runs, and the errors of a commit.
    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError>;

    /// The rows a filter selects, in the order in which they are due, then were added.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError>;

    /// Returns one page of the runs that a query selects: the most recently enqueued first, where a run that is redone counts as
    /// enqueued then. A transferred run that [left](KeyPosition::Left) its position comes before all others until it is accepted.
    ///
    /// The pages of one walk contain each run exactly once that did not change meanwhile. Runs that were enqueued or redone since
    /// the first page can be on a later page only while the pages contain transferred runs.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError>;

    /// Returns who wrote each of these versions of breadcrumbs, in their order, as the store recorded it with the write.
    ///
    /// Fields such as `creator` and `created_by` are the word of the writer, so an approval must not depend on them alone.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError>;
}

/// Limits of the [positions](RunLedger::save_positions) that a ledger saves.
#[derive(Debug)]
#[non_exhaustive]
pub struct SavedPosition;

impl SavedPosition {
    /// Maximum size of a position in bytes.
    pub const MAX_BYTES: usize = 1024;
    /// Maximum number of positions that a ledger retains for one tenant, one for each executor.
    pub const MOST: usize = 10_000;

    /// Checks the sizes of positions.
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
    /// Later runs with its ordering key wait for the run.
    Held,
    /// Later runs with its ordering key do not wait for the run. It comes behind the runs that joined before it is accepted.
    Left,
}
