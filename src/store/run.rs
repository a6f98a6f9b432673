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
