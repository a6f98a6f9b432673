use crate::hex::hex;
use crate::model::{BreadcrumbId, Event, Timestamp};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Name of a run within a tenant (executor, trigger and version), with the run's lease length, ordering key and triggering event.
///
/// Equality and hash depend only on the name: executor, trigger and trigger version.
///
/// Use it to claim, cancel, redo and resume one run. [`Client`](crate::Client) returns it for each
/// request, and [`DeadLetter::run_of`](super::DeadLetter::run_of) for each dead letter.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::store::RunRef;
/// use universal_executor::{Breadcrumb, Event, NewBreadcrumb};
///
/// let order: Breadcrumb = NewBreadcrumb::new("order.v1").into();
/// let run = RunRef::new("pricing", order.id, order.version).lasting(Duration::from_secs(60));
/// assert_eq!(run, RunRef::of("pricing", &Event::created(&order)));
/// assert_eq!(run.to_string(), format!("run of \"pricing\" on {} v1", order.id));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RunRef {
    /// The ID of the executor that processes the trigger.
    pub executor: Arc<str>,
    /// The ID of the breadcrumb that triggers the run.
    pub trigger_id: BreadcrumbId,
    /// The version of the breadcrumb that triggers the run.
    pub trigger_version: u64,
    /// The duration of the run's lease, unless a heartbeat extends it. Defaults to 30 s.
    pub lease: Duration,
    /// The event that announced the trigger, if known. The ledger stores it without its context, so that the run can be processed
    /// later from its row alone.
    pub event: Option<Arc<Event>>,
    /// The ordering key of the run, or `None` if the run may execute in any order and concurrently with other runs of its
    /// executor. Runs of one executor with the same key run one at a time, in the order in which they were added. The key of
    /// an existing row never changes.
    pub order: Option<Arc<str>>,
}

impl RunRef {
    /// The default length of a run's lease, 30 s.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

    /// Creates the name of the run of an executor for a trigger version.
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

    /// Creates the name of the run of an executor for the breadcrumb version that an event announces.
    ///
    /// Prefer it to [`new`](Self::new) when an event is available: the ledger then stores the
    /// event, and a worker that claims the run later has it too.
    #[must_use]
    pub fn of(executor: impl Into<Arc<str>>, event: &Event) -> Self {
        Self {
            event: Some(Arc::new(event.envelope())),
            ..Self::new(executor, event.breadcrumb_id, event.version)
        }
    }

    /// Sets the length of the run's lease.
    ///
    /// A lost worker delays the run by up to this time. A worker must send a
    /// [heartbeat](super::RunLedger::heartbeat) within it.
    #[must_use]
    pub fn lasting(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets or removes the ordering key of the run.
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

    /// Returns the run key, a SHA-256 hash of the tenant, the executor, the trigger, the trigger version and the epoch, as
    /// hexadecimal digits.
    ///
    /// The hash covers the length of each string, so two different names cannot have the same input.
    ///
    /// ```
    /// use universal_executor::BreadcrumbId;
    /// use universal_executor::store::RunRef;
    ///
    /// let run = RunRef::new("pricing", BreadcrumbId::NIL, 1);
    /// assert_eq!(run.key("default", 0), run.key("default", 0), "the same in each attempt");
    /// assert_ne!(run.key("default", 0), run.key("default", 1), "another one after a redo");
    /// assert_eq!(run.key("default", 0).len(), 64);
    /// ```
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
    /// Serializes the name of the run as `executor`, `trigger_id` and `trigger_version`.
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

/// A run to add to the ledger, with the earliest time of its first attempt.
///
/// Convert a [`RunRef`] with `into()` for a run that may start at once.
///
/// ```
/// use universal_executor::BreadcrumbId;
/// use universal_executor::model::Timestamp;
/// use universal_executor::store::{NewRun, RunRef};
///
/// let mut run = NewRun::from(RunRef::new("pricing", BreadcrumbId::NIL, 1));
/// assert_eq!(run.at, None);
/// run.at = Some(Timestamp::from_micros(1_795_000_000_000_000));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewRun {
    /// The executor and the trigger version that identify the run to add.
    pub run: RunRef,
    /// The earliest time of the run's first attempt. `None` for at once.
    pub at: Option<Timestamp>,
}

impl From<RunRef> for NewRun {
    fn from(run: RunRef) -> Self {
        Self { run, at: None }
    }
}

/// The state of a run in the ledger.
///
/// A run starts as ready and ends in one of the last four states. A
/// [redo](super::RunLedger::redo) can make a failed or skipped run ready again. In one rare case,
/// an [enqueue](super::RunLedger::enqueue) can too. See the diagram of
/// [`RunLedger`](super::RunLedger).
///
/// ```
/// use universal_executor::store::RunState;
///
/// assert!(RunState::Failed.is_over() && !RunState::Suspended.is_over());
/// assert_eq!(RunState::Superseded.to_string(), "superseded");
/// assert_eq!(serde_json::from_str::<RunState>("\"done\"")?, RunState::Done);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The run can be claimed when it is due. A run whose lease expired is ready too.
    ///
    /// It is due at once, at the time of a retry, or after an earlier run with its ordering key.
    Ready,
    /// A worker has claimed the run, and the run's lease has not expired.
    Running,
    /// The run waits for a breadcrumb or a time.
    ///
    /// It occupies no worker. [`Run::wake`](super::Run::wake) has the condition.
    Suspended,
    /// The run succeeded. Its response can be empty.
    Done,
    /// The run ended with a dead letter, or was [cancelled](super::RunLedger::cancel).
    ///
    /// [`redo`](super::RunLedger::redo) repeats it.
    Failed,
    /// The executor had nothing to do, so the run ended without a response.
    ///
    /// [`Run::reason`](super::Run::reason) is `gone`, `unmatched`, `own` or `hop_limit`, see
    /// [`RunEnd::Skipped`](super::RunEnd::Skipped).
    Skipped,
    /// The run ended without a response, because a later version of its trigger ran instead.
    Superseded,
}

impl RunState {
    /// All run states, in the order of their [numbers](Self::number).
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

    /// Returns the number that represents this run state in a database.
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

    /// Returns the run state that a number represents in a database, or `None` for an unknown number.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) fn of_number(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    /// Returns `true` if the run has ended: done, failed, skipped or superseded.
    #[must_use]
    pub const fn is_over(self) -> bool {
        match self {
            Self::Done | Self::Failed | Self::Skipped | Self::Superseded => true,
            Self::Ready | Self::Running | Self::Suspended => false,
        }
    }

    /// Returns the name of the run state in JSON and in log lines, such as `ready` or `running`.
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

/// Answer of [`cancel`](super::RunLedger::cancel): the state of the run before the call.
///
/// Only for [`Running`](Self::Running) can code of the executor still be running when the call
/// returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cancelled {
    /// The run was ready, delayed or suspended. No worker had it, and it has ended.
    Waiting,
    /// A worker had claimed the run. The worker's lease may have expired, but no other worker had claimed the run since. The run has
    /// ended now, and the worker learns this from its next heartbeat.
    Running,
    /// The run had already ended, in this state. The call changed nothing.
    Over(RunState),
}
