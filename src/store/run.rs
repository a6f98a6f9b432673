use super::claim::{ClaimId, Lease};
use super::lineage::Wake;
use crate::hex::hex;
use crate::model::{BreadcrumbId, Event, Timestamp};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
    /// Runs of one executor with the same key run one at a time, in the order in which they were added. The key of a
    /// row never changes.
    pub order: Option<Arc<str>>,
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
            order: None,
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

    /// Sets the ordering key, if there is one.
    ///
    /// ```
    /// use universal_executor::BreadcrumbId;
    /// use universal_executor::store::RunRef;
    ///
    /// let trigger = BreadcrumbId::default();
    /// let run = RunRef::new("echo", trigger, 1).ordered_by(Some("session:1"));
    ///
    /// assert_eq!(run.order.as_deref(), Some("session:1"));
    /// assert_eq!(run, RunRef::new("echo", trigger, 1), "the key is no part of the name");
    /// ```
    #[must_use]
    pub fn ordered_by(mut self, key: Option<impl Into<Arc<str>>>) -> Self {
        self.order = key.map(Into::into);
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
        field(self.trigger_id.as_bytes());
        hash.update(self.trigger_version.to_be_bytes());
        hash.update(epoch.to_be_bytes());
        hex(&hash.finalize())
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

impl Serialize for RunRef {
    /// The name: `executor`, `trigger_id` and `trigger_version`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut name = serializer.serialize_struct("RunRef", 3)?;
        name.serialize_field("executor", &*self.executor)?;
        name.serialize_field("trigger_id", &self.trigger_id)?;
        name.serialize_field("trigger_version", &self.trigger_version)?;
        name.end()
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

/// The state of a run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It can be claimed when it is due. A run whose lease ran out is ready too.
    Ready,
    /// A worker has it.
    Running,
    /// It waits for a breadcrumb or a time.
    Suspended,
    /// It responded.
    Done,
    /// It gave up with a dead letter, or it was [cancelled](super::RunLedger::cancel).
    Failed,
    /// There was nothing to do.
    Skipped,
    /// A later version of the trigger ran instead.
    Superseded,
}

impl RunState {
    /// All states, in the order of their stored numbers.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) const ALL: [Self; 7] = [
        Self::Ready,
        Self::Running,
        Self::Suspended,
        Self::Done,
        Self::Failed,
        Self::Skipped,
        Self::Superseded,
    ];

    /// The number that a database stores for this state.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) const fn number(self) -> i16 {
        match self {
            Self::Ready => 0,
            Self::Running => 1,
            Self::Suspended => 2,
            Self::Done => 3,
            Self::Failed => 4,
            Self::Skipped => 5,
            Self::Superseded => 6,
        }
    }

    /// Returns the state of a stored number, or `None` for a number without a meaning.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) fn of_number(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

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

/// Answer of [`cancel`](super::RunLedger::cancel): the state in which the run was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cancelled {
    /// The run was ready, delayed or suspended. It has ended, and no worker had it.
    Waiting,
    /// A worker had the run, or its lease expired without a later claim. It has ended; the worker learns of it with its next
    /// heartbeat.
    Running,
    /// The run was over before, in this state. It did not change.
    Over(RunState),
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
    /// Only runs whose newest lease comes from this claim and has not ended; such a lease may have expired.
    pub claim: Option<ClaimId>,
    /// How many at the most; all if absent.
    pub limit: Option<usize>,
}

impl RunFilter {
    /// Every row.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Runs whose newest lease comes from one [claim](super::RunLedger::claim_next), with their [leases](Run::lease).
    #[must_use]
    pub fn of_claim(id: ClaimId) -> Self {
        Self {
            claim: Some(id),
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
///
/// Its JSON has all fields but [`due_for`](Self::due_for) and [`lease`](Self::lease).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// Which run, with the event that led to it.
    pub run: RunRef,
    /// Its state; a run whose lease ran out is ready.
    pub state: RunState,
    /// How many attempts were made since it was added, woken or redone.
    pub attempts: u32,
    /// When it can be claimed next, if ever: its time, the end of its lease or of its wait. One that is behind another
    /// of its ordering key waits for that one too.
    pub due: Option<Timestamp>,
    /// Time for which the run could have been claimed, by the store's clock. `None` unless it can be claimed now. A run behind another one of
    /// its ordering key counts as claimable.
    #[serde(skip)]
    pub due_for: Option<Duration>,
    /// The time when the run was added or woken; once claimed, the time of the first claim of its current attempt.
    pub since: Timestamp,
    /// The time when the run was added to the ledger, which stays the same when it is redone. For a run that was added before the
    /// store recorded this time, it is [`since`](Self::since).
    pub added_at: Timestamp,
    /// What it waits for.
    pub wake: Option<Wake>,
    /// When it was suspended, by the store's clock; none unless it is suspended. What was committed before, and with
    /// the suspension, has `updated_at` at or before this time, what is committed later has it after: so a
    /// breadcrumb that wakes the run is one whose `updated_at` is later, or later than the wake's
    /// [`since`](Wake::since) if that is earlier.
    pub suspended_at: Option<Timestamp>,
    /// What it wrote.
    pub written: Vec<BreadcrumbId>,
    /// The class of its failure, or why it was skipped.
    pub reason: Option<String>,
    /// The code of its failure: that of its dead letter, or [`cancelled`](super::RunEnd::CANCELLED). `None` for a run that did not
    /// fail, and for one that failed before the store recorded codes.
    pub code: Option<String>,
    /// Cause of the last failed attempt since it was added or redone: the error and its sources, without credentials, at most
    /// [1,000 bytes](super::DeadLetter::LONGEST_CAUSE). [`Profile::hide_errors`](crate::Profile::hide_errors) omits the
    /// words of the executor.
    pub cause: Option<String>,
    /// The version of its executor to which the run was [transferred](super::RunLedger::transfer), until a worker accepts it:
    /// one of that version or, once the time of a run that left its position has passed, one of any version.
    pub transferred_to: Option<String>,
    /// Its lease, if the filter asked for [one claim](RunFilter::of_claim).
    #[serde(skip)]
    pub lease: Option<Lease>,
}

impl Run {
    /// A row of a run that was just added.
    #[must_use]
    pub fn new(run: RunRef, state: RunState, since: Timestamp) -> Self {
        Self {
            run,
            state,
            attempts: 0,
            due: None,
            due_for: None,
            since,
            added_at: since,
            wake: None,
            suspended_at: None,
            written: Vec::new(),
            reason: None,
            code: None,
            cause: None,
            transferred_to: None,
            lease: None,
        }
    }
}
