use super::StoreError;
use crate::model::{BreadcrumbId, Event, Json, Selector, Timestamp};
use async_trait::async_trait;
use sha2::{Digest, Sha256};
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

/// The rows that say which run of which executor is waiting, running or over: the reason why nothing is answered twice.
///
/// ```text
/// ready --claim: attempt + 1, new token, lease--> running --commit--> done | failed | skipped | superseded | suspended
/// running --retry--> ready (at a later time)     running --release--> ready (attempt - 1)
/// running, lease over --claim--> running         suspended --resume, or its time is up--> ready
/// ```
///
/// # Contract
/// - **One run.** There is one row for each tenant, executor, trigger and trigger version, however often it is enqueued.
/// - **Fenced.** The token of a lease decides, not the clock: an expired lease may still commit until another worker
///   claims the run, and never after.
/// - **Counted at claim.** The attempt counts when it starts, so a trigger that kills its worker runs out of attempts.
/// - **The store's clock.** Leases and times are the store's; the clocks of workers do not matter.
#[async_trait]
pub trait RunLedger: Send + Sync {
    /// Adds rows; a row that exists stays as it is.
    ///
    /// # Errors
    /// [`StoreError::Full`] if the ledger's bound is reached; then none is added.
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError>;

    /// Claims one run by hand, whatever time it waits for, and adds it if it is not there.
    ///
    /// `instead_of` is the lease of an older version of the same trigger: its run ends as superseded in the same step,
    /// whatever the answer is.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if `instead_of` is not held any more.
    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError>;

    /// Claims up to `n` runs that are due and parks their leases in this handle: the first [`claim`](Self::claim) of
    /// each through this handle takes it, through any other sees it running. [`RunFilter::parked`] lists them. Who
    /// parked them keeps them alive with [`heartbeat`](Self::heartbeat).
    ///
    /// Takes turns between the executors, oldest first within one. Returns how many were claimed.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn claim_next(&self, n: usize, of: &[ExecutorLimits]) -> Result<usize, StoreError>;

    /// Extends leases by their length from now; returns those that are lost. Call it every third of a lease.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError>;

    /// Gives a run back to be tried again at a time; `counts` is false for a rate limit, which uses no attempt.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`].
    async fn retry(&self, lease: Lease, at: Timestamp, counts: bool) -> Result<(), StoreError>;

    /// Gives a run back at once, as if it had not been claimed. For shutting down.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`].
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;

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

    /// Runs a failed run again, in a new epoch with fresh attempts and a new idempotency key.
    ///
    /// # Errors
    /// [`StoreError::WrongState`] if it did not fail, [`StoreError::UnknownRun`].
    async fn redo(&self, run: &RunRef) -> Result<(), StoreError>;

    /// The rows a filter selects, in the order in which they are due, then were added.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError>;
}

/// Names a run within a tenant, and says how it is to be leased.
///
/// Equality and hash are those of the name: executor, trigger and version.
#[derive(Clone)]
#[non_exhaustive]
pub struct RunRef {
    /// The executor's id.
    pub executor: Arc<str>,
    /// The breadcrumb that triggered it.
    pub trigger_id: BreadcrumbId,
    /// The version that triggered it.
    pub trigger_version: u64,
    /// How long a claim holds without a heartbeat; 30 s by default.
    pub lease: Duration,
    /// The event that led to it, kept without its context so that the run can be processed later from the row alone.
    pub event: Option<Arc<Event>>,
}

impl RunRef {
    /// How long a claim holds unless said otherwise.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

    /// The run of an executor on a version of a trigger.
    #[must_use]
    pub fn new(
        executor: impl Into<Arc<str>>,
        trigger_id: BreadcrumbId,
        trigger_version: u64,
    ) -> Self {
        Self {
            executor: executor.into(),
            trigger_id,
            trigger_version,
            lease: Self::DEFAULT_LEASE,
            event: None,
        }
    }

    /// The run of an executor on what an event announces.
    #[must_use]
    pub fn of(executor: impl Into<Arc<str>>, event: &Event) -> Self {
        Self {
            event: Some(Arc::new(event.envelope())),
            ..Self::new(executor, event.breadcrumb_id, event.version)
        }
    }

    /// Sets how long a claim holds.
    #[must_use]
    pub fn lasting(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The key of this run: SHA-256 in hex over the tenant, the executor, the trigger, its version and the epoch,
    /// strings with their length in front so that no two names run together.
    #[must_use]
    pub fn key(&self, tenant: &str, epoch: u32) -> String {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        field(b"ux1");
        field(tenant.as_bytes());
        field(self.executor.as_bytes());
        field(self.trigger_id.as_uuid().as_bytes());
        hash.update(self.trigger_version.to_be_bytes());
        hash.update(epoch.to_be_bytes());
        hash.finalize()
            .iter()
            .fold(String::with_capacity(64), |mut text, byte| {
                // Writing to a string cannot fail.
                if write!(text, "{byte:02x}").is_err() {
                    text.clear();
                }
                text
            })
    }

    fn name(&self) -> (&str, BreadcrumbId, u64) {
        (&self.executor, self.trigger_id, self.trigger_version)
    }
}

impl PartialEq for RunRef {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for RunRef {}

impl std::hash::Hash for RunRef {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for RunRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RunRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "run of {:?} on {} v{}",
            self.executor, self.trigger_id, self.trigger_version
        )
    }
}

/// A run to be added.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewRun {
    /// Which run.
    pub run: RunRef,
    /// Not before this; at once if absent.
    pub at: Option<Timestamp>,
}

impl From<RunRef> for NewRun {
    fn from(run: RunRef) -> Self {
        Self { run, at: None }
    }
}

/// The right to end a run: whoever holds the newest token of a run may commit for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lease {
    /// The run.
    pub run: RunRef,
    /// The fencing token; it grows with every claim.
    pub token: u64,
    /// The run's epoch: how often it was redone.
    pub epoch: u32,
    /// How many workers in a row let a lease on it run out before this claim.
    pub abandoned: u32,
    /// When the run was added, by the store's clock.
    pub enqueued_at: Timestamp,
    /// When this lease was granted, by the store's clock.
    pub granted_at: Timestamp,
    /// When it runs out without a heartbeat, by the store's clock.
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
            enqueued_at: granted_at,
            granted_at,
            until: granted_at + run.lease,
            run,
        }
    }

    /// Sets the epoch, the number of abandoned leases before this and when the run was added.
    #[must_use]
    pub fn history(mut self, epoch: u32, abandoned: u32, enqueued_at: Timestamp) -> Self {
        (self.epoch, self.abandoned, self.enqueued_at) = (epoch, abandoned, enqueued_at);
        self
    }

    /// The key of its run; the idempotency key that calls to the outside world carry.
    #[must_use]
    pub fn key(&self, tenant: &str) -> String {
        self.run.key(tenant, self.epoch)
    }
}

/// What a claim found.
#[derive(Clone, Debug)]
pub enum Claim {
    /// The run is the caller's.
    Granted {
        /// The right to end it.
        lease: Lease,
        /// Which attempt this is, from 1.
        attempt: u32,
        /// Where the trigger came from.
        lineage: Lineage,
        /// What an earlier attempt saved, and what a suspended run was woken with.
        state: Option<Saved>,
    },
    /// The executor itself wrote this version of the trigger.
    Own,
    /// It is over.
    Done {
        /// How it ended: done, failed or skipped.
        state: RunState,
        /// What it wrote.
        written: Vec<BreadcrumbId>,
    },
    /// Another worker has it.
    Running {
        /// Until then, unless that worker says more.
        until: Timestamp,
    },
    /// It waits for something.
    Suspended {
        /// Until then at the longest.
        until: Option<Timestamp>,
    },
    /// A later version of the trigger ran instead.
    Superseded,
}

/// Where a breadcrumb version came from.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Lineage {
    /// The same for everything that follows from one breadcrumb from outside: that breadcrumb's id.
    pub correlation_id: String,
    /// How many runs lie between that breadcrumb and this version: 0 if it came from outside itself.
    pub hops: u32,
}

impl Lineage {
    /// The lineage of a breadcrumb from outside.
    #[must_use]
    pub fn origin(id: BreadcrumbId) -> Self {
        Self::new(id.to_string(), 0)
    }

    /// A lineage.
    #[must_use]
    pub fn new(correlation_id: impl Into<String>, hops: u32) -> Self {
        Self {
            correlation_id: correlation_id.into(),
            hops,
        }
    }

    /// The lineage of what a run writes because of a trigger of this lineage.
    #[must_use]
    pub fn next(&self) -> Self {
        Self::new(&*self.correlation_id, self.hops.saturating_add(1))
    }
}

/// What a run goes on with.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Saved {
    /// What was saved last, by [`RunLedger::save`] or when it was suspended.
    pub state: Json,
    /// The breadcrumb that woke it; none if its time was up, or it was not suspended.
    pub with: Option<BreadcrumbId>,
}

impl Saved {
    /// A saved state, and what the run was woken with.
    #[must_use]
    pub fn new(state: Json, with: Option<BreadcrumbId>) -> Self {
        Self { state, with }
    }
}

/// What wakes a suspended run: a breadcrumb committed after it was suspended, or a time.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Wake {
    /// Any of these.
    pub selectors: Vec<Selector>,
    /// At the latest then; never if absent.
    pub until: Option<Timestamp>,
}

impl Wake {
    /// Wakes on a breadcrumb that matches.
    #[must_use]
    pub fn on(selector: Selector) -> Self {
        Self {
            selectors: vec![selector],
            until: None,
        }
    }

    /// Wakes at a time.
    #[must_use]
    pub fn at(time: Timestamp) -> Self {
        Self {
            selectors: Vec::new(),
            until: Some(time),
        }
    }

    /// Also wakes on a breadcrumb that matches this.
    #[must_use]
    pub fn or_on(mut self, selector: Selector) -> Self {
        self.selectors.push(selector);
        self
    }

    /// Wakes at this time if nothing did before.
    #[must_use]
    pub fn until(mut self, time: Timestamp) -> Self {
        self.until = Some(time);
        self
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum RunState {
    /// It can be claimed when it is due. A run whose lease ran out is ready too.
    Ready,
    /// A worker has it.
    Running,
    /// It waits for a breadcrumb or a time.
    Suspended,
    /// It responded.
    Done,
    /// It gave up, with a dead letter.
    Failed,
    /// There was nothing to do.
    Skipped,
    /// A later version of the trigger ran instead.
    Superseded,
}

impl RunState {
    /// Whether it is over.
    #[must_use]
    pub const fn is_over(self) -> bool {
        match self {
            Self::Done | Self::Failed | Self::Skipped | Self::Superseded => true,
            Self::Ready | Self::Running | Self::Suspended => false,
        }
    }

    /// The name in records: `ready`, `running`, ..
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Superseded => "superseded",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much of an executor's work may be claimed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExecutorLimits {
    /// The executor's id.
    pub executor: Arc<str>,
    /// How many runs may be claimed now.
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

/// Which rows to list.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunFilter {
    /// Of one executor.
    pub executor: Option<String>,
    /// On one trigger.
    pub trigger_id: Option<BreadcrumbId>,
    /// In one of these states; any if empty.
    pub states: Vec<RunState>,
    /// Only those parked in this handle.
    pub parked: bool,
    /// How many at the most; all if absent.
    pub limit: Option<usize>,
}

impl RunFilter {
    /// Every row.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Those parked in this handle.
    #[must_use]
    pub fn parked() -> Self {
        Self {
            parked: true,
            ..Self::default()
        }
    }

    /// Only of an executor.
    #[must_use]
    pub fn executor(mut self, id: impl Into<String>) -> Self {
        self.executor = Some(id.into());
        self
    }

    /// Only on a trigger.
    #[must_use]
    pub fn trigger(mut self, id: BreadcrumbId) -> Self {
        self.trigger_id = Some(id);
        self
    }

    /// Also those in a state.
    #[must_use]
    pub fn state(mut self, state: RunState) -> Self {
        self.states.push(state);
        self
    }

    /// At most so many.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// One row of the ledger.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// Which run, with the event that led to it.
    pub run: RunRef,
    /// Its state; a run whose lease ran out is ready.
    pub state: RunState,
    /// How many attempts were made.
    pub attempts: u32,
    /// When it can be claimed next, if ever: its time, the end of its lease or of its wait.
    pub due: Option<Timestamp>,
    /// When it was added.
    pub enqueued_at: Timestamp,
    /// What it waits for.
    pub wake: Option<Wake>,
    /// What it wrote.
    pub written: Vec<BreadcrumbId>,
    /// Why it failed or was skipped.
    pub reason: Option<String>,
    /// Its lease, while that is parked in the handle that asks: what a heartbeat for it needs.
    pub lease: Option<Lease>,
}

impl Run {
    /// A row of a run that was just added.
    #[must_use]
    pub fn new(run: RunRef, state: RunState, enqueued_at: Timestamp) -> Self {
        Self {
            run,
            state,
            attempts: 0,
            due: None,
            enqueued_at,
            wake: None,
            written: Vec::new(),
            reason: None,
            lease: None,
        }
    }
}
