//! Claims of runs: their limits and names, the leases that they grant, and their answers.

use super::StoreError;
use super::lineage::{Lineage, Saved};
use super::run::{RunRef, RunState};
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use std::sync::Arc;
use uuid::Uuid;

/// The right to end a run: the holder of the newest token of a run may commit for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lease {
    /// The run.
    pub run: RunRef,
    /// The fencing token; it grows with every claim.
    pub token: u64,
    /// The run's epoch: how often it was redone.
    pub epoch: u32,
    /// Number of consecutive leases that expired before this claim. A lease does not count once its owner
    /// [reported](super::RunLedger::heartbeat) it after it was lost.
    pub abandoned: u32,
    /// If `true`, a lease of this epoch expired before this claim, so its owner may have executed the run without a report. Unlike
    /// [`abandoned`](Self::abandoned), it stays `true` when that owner reports the lost lease.
    pub may_have_executed: bool,
    /// The time of the first claim of the current attempt, by the store's clock. A [retry](super::RunLedger::retry) that does not
    /// count, and a claim after a lease that expired, continue the age.
    pub attempt_since: Timestamp,
    /// The time when this lease was granted, by the store's clock.
    pub granted_at: Timestamp,
    /// The time when the lease expires without a heartbeat, by the store's clock.
    pub until: Timestamp,
}

impl Lease {
    /// A lease granted at a time, for the run's lease length.
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

    /// Sets the epoch, the number of abandoned leases before this lease, and when the attempt was first claimed.
    #[must_use]
    pub fn history(mut self, epoch: u32, abandoned: u32, attempt_since: Timestamp) -> Self {
        (self.epoch, self.abandoned, self.attempt_since) = (epoch, abandoned, attempt_since);
        self
    }

    /// Sets whether a lease of this epoch expired before this one.
    #[must_use]
    pub fn may_have_executed(mut self, yes: bool) -> Self {
        self.may_have_executed = yes;
        self
    }

    /// The key of its run; the idempotency key that calls to the outside world carry.
    #[must_use]
    pub fn key(&self, tenant: &str) -> String {
        self.run.key(tenant, self.epoch)
    }
}

/// A run that a claim granted to its caller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claimed {
    /// The right to end the run.
    pub lease: Lease,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Origin of the trigger.
    pub lineage: Lineage,
    /// The state that an earlier attempt saved, and the breadcrumb that resumed a suspended run.
    pub state: Option<Saved>,
    /// If `true`, the executor itself wrote this version of the trigger, and the run has to end as skipped.
    pub is_own: bool,
    /// The current version of the trigger, if the store has it at hand. A run uses it in the place of a read, so a wrapper that
    /// changes what `get` returns must clear it or change it too.
    pub trigger: Option<Arc<Breadcrumb>>,
}

impl Claimed {
    /// An attempt of a run, with the origin of its trigger.
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

    /// Sets the saved state.
    #[must_use]
    pub fn state(mut self, state: Option<Saved>) -> Self {
        self.state = state;
        self
    }
}

/// Answer of [`enqueue_and_claim`](super::RunLedger::enqueue_and_claim): the rows are in the ledger.
#[derive(Debug)]
pub struct Enqueued {
    /// The runs that were claimed after that, or the error of the claim.
    pub claimed: Result<Vec<Claimed>, StoreError>,
}

/// Answer of a [claim](super::RunLedger::claim).
#[derive(Clone, Debug)]
pub enum Claim {
    /// The run is the caller's.
    Granted(Claimed),
    /// The executor itself wrote this version of the trigger.
    Own,
    /// The run has ended.
    Done {
        /// The state of the run: done, failed or skipped.
        state: RunState,
        /// The breadcrumbs that the run wrote.
        written: Vec<BreadcrumbId>,
    },
    /// Another worker has it, or it is behind another run of its ordering key.
    Running {
        /// Until then, unless that worker says more. For a run that is behind another: when the first of its ordering
        /// key can be claimed or its lease is over, or one lease from now if that is unknown or past.
        until: Timestamp,
    },
    /// It waits for something.
    Suspended {
        /// Until then at the longest.
        until: Option<Timestamp>,
    },
    /// A later version of the trigger ran instead.
    Superseded,
    /// The run is in the ledger and could start, but its executor is [paused](super::RunLedger::pause_executor).
    Paused {
        /// The time of the pause, by the store's clock.
        since: Timestamp,
    },
}

/// Maximum number of runs of one executor in a claim.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExecutorLimits {
    /// The executor's id.
    pub executor: Arc<str>,
    /// Maximum number of runs to claim.
    pub free: usize,
}

impl ExecutorLimits {
    /// Up to `free` runs of an executor.
    #[must_use]
    pub fn new(executor: impl Into<Arc<str>>, free: usize) -> Self {
        Self {
            executor: executor.into(),
            free,
        }
    }
}

/// Name of one call of [`claim_next`](super::RunLedger::claim_next).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ClaimId(Uuid);

impl ClaimId {
    /// Returns an ID that no other claim has, in any process.
    #[must_use]
    pub fn unique() -> Self {
        Self(Uuid::new_v4())
    }

    /// Returns the ID of these bytes, for a ledger that reads it from its storage.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the bytes of the ID, for a ledger that stores it.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

#[cfg(feature = "uuid")]
impl ClaimId {
    /// Returns the ID as a UUID.
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

/// A lease that another worker has by now.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Lost {
    /// Its run.
    pub run: RunRef,
    /// Its token.
    pub token: u64,
}

impl Lost {
    /// A lease is lost.
    #[must_use]
    pub fn new(lease: &Lease) -> Self {
        Self {
            run: lease.run.clone(),
            token: lease.token,
        }
    }
}
