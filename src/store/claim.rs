//! Claims of runs: their limits and IDs, the leases that they grant, and their results.

use super::StoreError;
use super::lineage::{Lineage, Saved};
use super::run::{RunRef, RunState};
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use std::sync::Arc;
use uuid::Uuid;

/// A worker's right to execute a run and to commit the end of the run. Only the holder of the newest token of a run can commit for
/// the run.
///
/// [`RunLedger::claim`](super::RunLedger::claim) and [`claim_next`](super::RunLedger::claim_next)
/// return it in a [`Claimed`]. Pass it to [`heartbeat`](super::RunLedger::heartbeat),
/// [`save`](super::RunLedger::save) and the [commit](super::Commit::end) that ends the run. A
/// runtime does all of this for its executors.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::BreadcrumbId;
/// use universal_executor::model::Timestamp;
/// use universal_executor::store::{Lease, RunRef};
///
/// let run = RunRef::new("pricing", BreadcrumbId::NIL, 1).lasting(Duration::from_secs(60));
/// let lease = Lease::new(run, 7, Timestamp::UNIX_EPOCH);
/// assert_eq!(lease.until.since(lease.granted_at), Duration::from_secs(60));
/// assert_eq!((lease.token, lease.epoch), (7, 0));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lease {
    /// The leased run.
    pub run: RunRef,
    /// The fencing token of the lease. It grows with every claim of the run.
    pub token: u64,
    /// The run's epoch: the number of times that the run was started again after its end, for example by a
    /// [redo](super::RunLedger::redo).
    pub epoch: u32,
    /// The number of consecutive leases that expired before this claim. A lost lease does not count after its owner has
    /// [reported](super::RunLedger::heartbeat) it.
    ///
    /// A runtime fails the run after several of them, see
    /// [`RetryPolicy::crashes`](crate::executor::RetryPolicy::crashes).
    pub abandoned: u32,
    /// If `true`, a lease of the run expired since the run was added to the ledger or was last redone. The owner of that lease
    /// may have executed the run without recording the result. Unlike [`abandoned`](Self::abandoned), this field stays `true`
    /// when that owner reports the lost lease.
    ///
    /// A run that may be executed at most once then fails with
    /// [`OutcomeUnknown`](super::FailureClass::OutcomeUnknown).
    pub may_have_executed: bool,
    /// The time of the first claim of the run's current attempt, by the store's clock. It stays the same after a
    /// [retry](super::RunLedger::retry) that does not count, and after a claim of an expired lease.
    pub attempt_since: Timestamp,
    /// The time when the claim granted this lease, by the store's clock.
    pub granted_at: Timestamp,
    /// The time when the lease expires without a heartbeat, by the store's clock.
    ///
    /// After this time, another worker can claim the run. Until then, no other claim succeeds.
    pub until: Timestamp,
}

impl Lease {
    /// Creates a lease of a run, valid from `granted_at` for the lease length of the run.
    ///
    /// The epoch and the number of abandoned leases are 0. Only the implementation of a ledger
    /// needs it.
    #[must_use]
    pub fn new(run: RunRef, token: u64, granted_at: Timestamp) -> Self {
        Self {
            token,
            epoch: 0,
            abandoned: 0,
            may_have_executed: false,
            attempt_since: granted_at,
            granted_at,
            until: granted_at + run.lease,
            run,
        }
    }

    /// Sets the epoch of the run, the number of [abandoned](Self::abandoned) leases before this lease, and the time when the attempt
    /// was first claimed.
    #[must_use]
    pub fn history(mut self, epoch: u32, abandoned: u32, attempt_since: Timestamp) -> Self {
        (self.epoch, self.abandoned, self.attempt_since) = (epoch, abandoned, attempt_since);
        self
    }

    /// Sets whether a lease of the run expired since the run was added to the ledger or was last redone. The owner of the expired
    /// lease may have executed the run.
    #[must_use]
    pub fn may_have_executed(mut self, yes: bool) -> Self {
        self.may_have_executed = yes;
        self
    }

    /// Returns the run key, a string that identifies the run in all its attempts and is the
    /// [idempotency key](crate::ExecutionContext::idempotency_key) for its calls of external services.
    ///
    /// The key is the same in all attempts of a run, and changes with a redo.
    #[must_use]
    pub fn key(&self, tenant: &str) -> String {
        self.run.key(tenant, self.epoch)
    }
}

/// A run that a claim granted to a worker, with its lease.
///
/// A worker executes the run of the [`lease`](Self::lease), continues from [`state`](Self::state),
/// and ends the run in a commit.
///
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
/// assert_eq!((claimed.attempt, claimed.is_own), (1, false));
/// assert!(claimed.state.is_none(), "no attempt has saved progress");
/// assert_eq!(claimed.lineage.hops, 0, "no run wrote the trigger");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claimed {
    /// The lease, which gives the worker the right to execute and end the run.
    pub lease: Lease,
    /// The number of this attempt of the run, from 1.
    ///
    /// It starts again at 1 after a suspension and after a redo. A retry that does not count and a
    /// release keep the number for the next attempt.
    pub attempt: u32,
    /// The origin of the run's trigger: the first breadcrumb of the chain of runs, and the number of runs up to the trigger.
    pub lineage: Lineage,
    /// The progress that an earlier attempt of the run saved, and the breadcrumb that resumed a suspended run.
    ///
    /// `None` if the run has saved nothing.
    pub state: Option<Saved>,
    /// If `true`, the executor itself wrote this version of the trigger. The run must end as skipped.
    pub is_own: bool,
    /// The current version of the trigger breadcrumb, or `None` if the claim did not read the breadcrumb. The run uses this
    /// version instead of reading the trigger. A wrapper that changes the result of `get` must clear or change this field too.
    pub trigger: Option<Arc<Breadcrumb>>,
}

impl Claimed {
    /// Creates a granted run from its lease, the number of its attempt and the origin of its trigger.
    #[must_use]
    pub fn new(lease: Lease, attempt: u32, lineage: Lineage) -> Self {
        Self {
            lease,
            attempt,
            lineage,
            state: None,
            is_own: false,
            trigger: None,
        }
    }

    /// Sets the progress that an earlier attempt of the run saved.
    #[must_use]
    pub fn state(mut self, state: Option<Saved>) -> Self {
        self.state = state;
        self
    }
}

/// Result of [`enqueue_and_claim`](super::RunLedger::enqueue_and_claim) after it has added the runs to the ledger: the claimed
/// runs, or the error of the claim.
///
/// If the claim failed, the runs are still in the ledger: claim them later, and do not
/// enqueue them again.
#[derive(Debug)]
pub struct Enqueued {
    /// The runs that the call claimed, or the error of the claim.
    pub claimed: Result<Vec<Claimed>, StoreError>,
}

/// Result of a [claim](super::RunLedger::claim) of one run: the lease, or the reason why the run cannot be executed now.
///
/// Only [`Granted`](Self::Granted) permits the caller to execute the run. For
/// [`Running`](Self::Running) and [`Suspended`](Self::Suspended), repeat the claim at `until` or
/// leave the run to a runtime.
///
/// ```
/// use universal_executor::store::{Claim, RunRef};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
/// let run = RunRef::new("pricing", order.id, order.version);
///
/// let Claim::Granted(claimed) = store.claim(&run, None).await? else {
///     return Err("another worker has the run".into());
/// };
/// assert_eq!(claimed.attempt, 1);
/// match store.claim(&run, None).await? {
///     Claim::Running { until } => assert_eq!(until, claimed.lease.until),
///     other => return Err(format!("unexpected: {other:?}").into()),
/// }
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// A run that waits for an earlier run with its ordering key is not granted either:
///
/// ```
/// use universal_executor::store::{Claim, RunRef};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let mut runs = Vec::new();
/// for _ in 0..2 {
///     let order = store.create(NewBreadcrumb::new("order.v1")).await?;
///     let run = RunRef::new("pricing", order.id, order.version);
///     runs.push(run.ordered_by(Some("customer:7")));
/// }
/// store.enqueue(runs.iter().cloned().map(Into::into).collect()).await?;
///
/// assert!(matches!(store.claim(&runs[1], None).await?, Claim::Running { .. }));
/// assert!(matches!(store.claim(&runs[0], None).await?, Claim::Granted(_)));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub enum Claim {
    /// The claim succeeded: the caller has the lease of the run.
    Granted(Claimed),
    /// The run is not executed, because its executor itself wrote this version of the trigger.
    ///
    /// Nothing is executed. A run that is in the ledger already ends as skipped.
    Own,
    /// The run has ended already, with a response, with a failure or without anything to do.
    Done {
        /// The final state of the run: done, failed or skipped.
        state: RunState,
        /// The IDs of all breadcrumbs that the ledger recorded as writes of the run.
        written: Vec<BreadcrumbId>,
    },
    /// Another worker has the lease of the run, or an earlier run with the same ordering key must end first.
    Running {
        /// The time at which another claim of the run may succeed: the expiry of the other worker's lease, unless the worker
        /// extends it. For a run that is behind another run: the time when the first run of its ordering key is due, or one lease
        /// from now if that time is unknown or past.
        until: Timestamp,
    },
    /// The run is suspended until a breadcrumb that matches its wake condition is committed, or a time is reached.
    Suspended {
        /// The time at which the suspended run wakes if no breadcrumb has woken it before. `None` if the run waits without a time
        /// limit.
        until: Option<Timestamp>,
    },
    /// The run ended without a response, because a later version of its trigger has its own run.
    Superseded,
    /// The run is in the ledger and could start, but its executor is [paused](super::RunLedger::pause_executor).
    ///
    /// Resume the executor with [`resume_executor`](super::RunLedger::resume_executor).
    Paused {
        /// The time when the executor was paused, by the store's clock.
        since: Timestamp,
    },
}

/// Maximum number of runs of one executor that a call of [`claim_next`](super::RunLedger::claim_next) claims.
///
/// Pass one for each executor that the worker has capacity for. A runtime sets `free` from the
/// limits of the executor.
///
/// ```
/// use universal_executor::store::ExecutorLimits;
///
/// let limits = ExecutorLimits::new("pricing", 4);
/// assert_eq!((&*limits.executor, limits.free), ("pricing", 4));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExecutorLimits {
    /// The ID of the executor whose runs are claimed.
    pub executor: Arc<str>,
    /// Maximum number of runs of this executor to claim.
    pub free: usize,
}

impl ExecutorLimits {
    /// Limits a claim of due runs to `free` runs of this executor, the number for which the worker has capacity.
    #[must_use]
    pub fn new(executor: impl Into<Arc<str>>, free: usize) -> Self {
        Self {
            executor: executor.into(),
            free,
        }
    }
}

/// Unique ID of one call of [`claim_next`](super::RunLedger::claim_next). The leases that the call granted can be listed by this
/// ID.
///
/// Create one for each call, and use it to find the leases after an error:
///
/// ```
/// use universal_executor::store::{ClaimId, ExecutorLimits, RunFilter, RunRef};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
/// store.enqueue(vec![RunRef::new("pricing", order.id, 1).into()]).await?;
///
/// let (id, of) = (ClaimId::unique(), [ExecutorLimits::new("pricing", 1)]);
/// let _lost = store.claim_next(1, &of, id).await;
///
/// // Suppose that the answer was lost: release the leases of the claim.
/// for run in store.runs(&RunFilter::of_claim(id)).await? {
///     if let Some(lease) = run.lease {
///         store.release(lease).await?;
///     }
/// }
/// assert_eq!(store.claim_next(1, &of, ClaimId::unique()).await?.len(), 1);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ClaimId(Uuid);

impl ClaimId {
    /// Returns a claim ID that no other claim has, in any process.
    #[must_use]
    pub fn unique() -> Self {
        Self(Uuid::new_v4())
    }

    /// Returns the claim ID with these bytes, for a ledger that reads the ID from its storage.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the bytes of the claim ID, for a ledger that stores the ID.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

#[cfg(feature = "uuid")]
impl ClaimId {
    /// Returns the claim ID as a UUID.
    #[must_use]
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

#[cfg(feature = "uuid")]
impl From<Uuid> for ClaimId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

#[cfg(feature = "uuid")]
impl From<ClaimId> for Uuid {
    fn from(id: ClaimId) -> Self {
        id.0
    }
}

/// Report of a lost lease: another worker has claimed the run, or the run was released or has ended.
///
/// [`heartbeat`](super::RunLedger::heartbeat) returns it. Stop the execution of the run, and write
/// nothing for it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Lost {
    /// The run whose lease is lost.
    pub run: RunRef,
    /// The fencing token of the lost lease.
    pub token: u64,
}

impl Lost {
    /// Creates the report to a worker that it has lost this lease of a run.
    #[must_use]
    pub fn new(lease: &Lease) -> Self {
        Self {
            run: lease.run.clone(),
            token: lease.token,
        }
    }
}
