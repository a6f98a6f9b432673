use crate::error::BoxError;
use crate::model::{BreadcrumbId, Json, NewBreadcrumb, Patch, Timestamp};
use crate::store::{FailureClass, RunState, Wake, Write};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How an event ended, for now: what may be tried again is an error, and what is in progress or suspended goes on
/// without it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The event, or the breadcrumb it announces, matches no subscription.
    Unmatched,
    /// It changed something the executor would fetch, and does not set it off.
    ContextNoted,
    /// The executor wrote this version itself.
    OwnBreadcrumb,
    /// The breadcrumb does not exist any more.
    Gone,
    /// A later version of the breadcrumb has its own run.
    Superseded,
    /// The run was over before.
    AlreadyDone {
        /// How it ended.
        state: RunState,
        /// What it wrote then.
        written: Vec<BreadcrumbId>,
    },
    /// Another worker has the run, the run waits for its next attempt, or an earlier run with its ordering key is not over. Do not
    /// acknowledge the event for good: process it again later.
    InProgress {
        /// The end of the lease or of the wait, unless another worker extends it.
        until: Timestamp,
    },
    /// The run waits for a breadcrumb or a time.
    Suspended {
        /// At the latest until then.
        until: Option<Timestamp>,
        /// What it wrote before it began to wait; empty if it was waiting already.
        written: Vec<BreadcrumbId>,
    },
    /// The executor is [paused](crate::RunLedger::pause_executor), and its run could start otherwise. The run is in the ledger: a
    /// [`Runtime`](crate::Runtime) starts it after the pause. Without one, process the event again then.
    Paused {
        /// The time of the pause, by the store's clock.
        since: Timestamp,
    },
    /// The run gave up.
    Failed {
        /// Why.
        class: FailureClass,
        /// What [`respond_failure`](super::UniversalExecutor::respond_failure) wrote, then the dead letter.
        written: Vec<BreadcrumbId>,
    },
    /// The run is done.
    Responded {
        /// What it wrote.
        written: Vec<BreadcrumbId>,
    },
}

impl Outcome {
    /// A short name for logs and metrics: `responded`, `already_done`, ..
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unmatched => "unmatched",
            Self::ContextNoted => "context_noted",
            Self::OwnBreadcrumb => "own_breadcrumb",
            Self::Gone => "gone",
            Self::Superseded => "superseded",
            Self::AlreadyDone { .. } => "already_done",
            Self::InProgress { .. } => "in_progress",
            Self::Suspended { .. } => "suspended",
            Self::Paused { .. } => "paused",
            Self::Failed { .. } => "failed",
            Self::Responded { .. } => "responded",
        }
    }
}

/// What to write because of a trigger. `respond` describes it; the executor stamps and commits it.
///
/// A context that is written must be a JSON object: its field `creator` is the library's, which puts there who wrote it
/// and why (`type`, `id`, `trigger_id`, `trigger_version`, `correlation_id`, `hops`, `definition`), whatever was there
/// before. What is written also gets the `session:` tags of the trigger, and no others of its tags.
///
/// ```
/// use serde_json::json;
/// use universal_executor::{NewBreadcrumb, Response};
///
/// let answer = NewBreadcrumb::new("agent.response.v1").context(json!({"message": "hello"}));
/// let log = NewBreadcrumb::new("audit.v1").context(json!({"what": "answered"}));
///
/// assert_eq!(Response::create(answer).and_create(log).writes().len(), 2);
/// ```
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Response {
    writes: Vec<Write>,
}

impl Response {
    /// Writes nothing; the run is done all the same.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates a breadcrumb.
    #[must_use]
    pub fn create(new: NewBreadcrumb) -> Self {
        Self::none().and_create(new)
    }

    /// Changes a breadcrumb that is at a version.
    #[must_use]
    pub fn update(id: BreadcrumbId, expected_version: u64, patch: Patch) -> Self {
        Self::none().and_update(id, expected_version, patch)
    }

    /// Also creates a breadcrumb.
    #[must_use]
    pub fn and_create(mut self, new: NewBreadcrumb) -> Self {
        self.writes.push(Write::Create(new));
        self
    }

    /// Also changes a breadcrumb. If it is at another version by then, the run is tried again from the fetch.
    #[must_use]
    pub fn and_update(mut self, id: BreadcrumbId, expected_version: u64, patch: Patch) -> Self {
        self.writes.push(Write::Update {
            id,
            version: expected_version,
            patch,
        });
        self
    }

    /// Also deletes a breadcrumb.
    #[must_use]
    pub fn and_delete(mut self, id: BreadcrumbId) -> Self {
        self.writes.push(Write::Delete { id, by: None });
        self
    }

    /// What it writes, in order.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    pub(crate) fn into_writes(self) -> Vec<Write> {
        self.writes
    }
}

/// Why a run gave up, as [`respond_failure`](super::UniversalExecutor::respond_failure) is told.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Why.
    pub class: FailureClass,
    /// A sentence that the requester, a person or a model, can act on. Of a panic it says only that there was one.
    pub message: String,
    /// How many attempts were made.
    pub attempts: u32,
    /// The last error, if there was one; of a panic with what it said.
    pub error: Option<BoxError>,
}

/// Ends a turn durably: what is written, the state and what to wait for commit in one step, no worker is held, and
/// the run goes on when a breadcrumb committed after that matches, or the time is up, once and on whichever worker sees
/// it first.
///
/// A [`Runtime`](crate::Runtime) looks out for that breadcrumb. Without one, whoever sees the answer wakes the run with
/// [`RunLedger::resume`](crate::RunLedger::resume), naming it by `RunRef::of(executor_id, &event)`. Give an `until`, or a
/// run whose answer never comes waits for ever, and holds its ordering key.
///
/// Return it from `execute` as an error. The next `execute` sees the state and the breadcrumb in
/// [`ExecutionContext::resumed`](super::ExecutionContext::resumed). A wake that can never fire (see [`Wake::check`])
/// suspends nothing: the run fails.
///
/// ```
/// use serde_json::json;
/// use universal_executor::{BoxError, NewBreadcrumb, Response, Selector, Wake, suspend};
///
/// fn ask() -> Result<serde_json::Value, BoxError> {
///     let question = NewBreadcrumb::new("human.request.v1").tag("request:7").context(json!({"question": "Refund?"}));
///     let answer = Selector::schema("human.response.v1").all_tags(["request:7"]);
///     Err(suspend(Wake::on(answer), json!({"asked": 7})).writing(Response::create(question)))
/// }
/// # assert!(ask().is_err());
/// ```
#[must_use]
pub fn suspend(wake: Wake, state: impl Into<Json>) -> Suspension {
    Suspension {
        wake,
        state: state.into(),
        response: Response::none(),
    }
}

/// A turn that ends to be gone on with; see [`suspend`].
#[derive(Debug)]
pub struct Suspension {
    pub(super) wake: Wake,
    pub(super) state: Json,
    pub(super) response: Response,
}

impl Suspension {
    /// What to write in the same step: requests, questions.
    #[must_use]
    pub fn writing(mut self, response: Response) -> BoxError {
        self.response = response;
        Box::new(self)
    }
}

#[cfg(feature = "workflows")]
impl Suspension {
    /// What to wait for, what to go on with, and what to write: for who runs something within its own run.
    pub(crate) fn into_parts(self) -> (Wake, Json, Response) {
        (self.wake, self.state, self.response)
    }
}

impl fmt::Display for Suspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the run is suspended")
    }
}

impl std::error::Error for Suspension {}
