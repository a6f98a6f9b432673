use crate::error::BoxError;
use crate::model::{BreadcrumbId, Json, NewBreadcrumb, Patch, Timestamp};
use crate::store::{FailureClass, RunState, Wake, Write};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Result of processing one event with an executor.
///
/// A failed attempt that is retried is an [`ExecutorError`](super::ExecutorError) instead. A run that is in progress, suspended
/// or paused continues later.
///
/// [`process_event`](super::UniversalExecutor::process_event) returns it. A
/// [`Runtime`](crate::Runtime) handles each outcome itself. Without a runtime, acknowledge the
/// event unless the outcome is `InProgress` or `Paused`.
///
/// # Examples
/// ```
/// use universal_executor::{
///     BreadcrumbStore, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, Response,
///     Subscription, UniversalExecutor, executor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) })
///     .bind(&store)?;
///
/// let order = Event::created(&*store.create(NewBreadcrumb::new("order.v1")).await?);
/// let Outcome::Responded { written } = clerk.process_event(&order).await? else {
///     return Err("no response".into());
/// };
/// assert_eq!(store.get(written[0]).await?.schema_name.as_deref(), Some("receipt.v1"));
/// assert_eq!(clerk.process_event(&order).await?.name(), "already_done");
///
/// let note = Event::created(&*store.create(NewBreadcrumb::new("note.v1")).await?);
/// assert_eq!(clerk.process_event(&note).await?, Outcome::Unmatched);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The event matches no subscription, or the fetched breadcrumb matches no trigger subscription. Also the outcome for a trigger
    /// that is a dead letter at the hop limit.
    ///
    /// Acknowledge the event.
    Unmatched,
    /// The event matches only context subscriptions, so it starts no run.
    ContextNoted,
    /// The executor itself wrote this version of the breadcrumb, so it starts no run.
    ///
    /// An executor does not trigger itself by its own response.
    OwnBreadcrumb,
    /// The breadcrumb that the event announces no longer exists.
    ///
    /// The breadcrumb was deleted or has expired.
    Gone,
    /// A later version of the breadcrumb has its own run, which replaces the run of this event.
    ///
    /// The executor answers the later version only.
    Superseded,
    /// The run for the event ended before this call.
    ///
    /// A redelivered event has this outcome. The breadcrumbs of the first response are not written
    /// again.
    AlreadyDone {
        /// The final state of the ended run.
        state: RunState,
        /// The breadcrumbs that the ended run wrote.
        written: Vec<BreadcrumbId>,
    },
    /// The run cannot start now: another worker has it, its retry is not due, or an earlier run with an equal ordering key is not
    /// over. Process the event again later instead of acknowledging the event.
    InProgress {
        /// The time at which a new claim of the run can succeed, such as the end of another worker's lease. The worker can extend the
        /// lease. For a run behind an earlier run: the time when the first run of the ordering key is due, or one lease from now if that
        /// time is unknown or past.
        until: Timestamp,
    },
    /// The run is suspended: it waits for a breadcrumb or a time.
    ///
    /// In a [`Runtime`](crate::Runtime), the awaited breadcrumb or the end of the wait continues
    /// the run.
    Suspended {
        /// Latest time until which the suspended run waits, by the store's clock. `None` for a wait without a timeout.
        until: Option<Timestamp>,
        /// The breadcrumbs that the run wrote when it was suspended. Empty if the run was suspended before this event.
        written: Vec<BreadcrumbId>,
    },
    /// The executor is [paused](crate::RunLedger::pause_executor), so its run does not start. The run is in the ledger, and a
    /// [`Runtime`](crate::Runtime) starts it after the pause. Without a runtime, process the event again after the pause.
    Paused {
        /// The time at which the executor was paused, by the store's clock.
        since: Timestamp,
    },
    /// The run failed for good, and its dead letter is committed.
    ///
    /// A [`Client`](crate::Client) can redo the run after its cause is fixed.
    Failed {
        /// The class of the run's failure.
        class: FailureClass,
        /// The breadcrumbs that the failed run wrote: those of [`respond_failure`](super::UniversalExecutor::respond_failure), then
        /// the dead letter.
        written: Vec<BreadcrumbId>,
    },
    /// The run is done, and its response is committed.
    ///
    /// For an empty response, the list is empty.
    Responded {
        /// The breadcrumbs that the run's response wrote, in the order of its writes.
        written: Vec<BreadcrumbId>,
    },
}

impl Outcome {
    /// Returns a stable name for the result of processing an event, for logs and metrics, for example `responded` or
    /// `already_done`.
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

/// Breadcrumbs to create, update and delete in answer to a trigger. The crate stamps and commits them together with the end of the
/// run.
///
/// Each written context must be a JSON object. The crate replaces its field `creator` with the origin of the write: `type`, `id`,
/// `trigger_id`, `trigger_version`, `correlation_id`, `hops`, and `definition` if the profile has one. The crate also adds the
/// `session:` tags of the trigger, but none of its other tags.
///
/// The closure of an [`executor`](fn@crate::executor) and
/// [`respond`](crate::UniversalExecutor::respond) return it. All writes are committed together, or
/// none.
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
    /// Returns an empty response. The run ends as done without writes.
    ///
    /// Use it for work whose effect is outside of the store.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns a response that creates a breadcrumb.
    ///
    /// The run's executor becomes the author. The schema must be in
    /// [`Profile::responds_with`](crate::Profile::responds_with), if that is set.
    #[must_use]
    pub fn create(new: NewBreadcrumb) -> Self {
        Self::none().and_create(new)
    }

    /// Returns a response that updates a breadcrumb if the current version of the breadcrumb is `expected_version`. See
    /// [`and_update`](Self::and_update) for conflicts.
    ///
    /// Take the ID and the version from a breadcrumb of the run's context.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbId, Patch, Response};
    ///
    /// let order = BreadcrumbId::unique();
    /// let response = Response::update(order, 3, Patch::new().title("Paid"));
    /// assert_eq!(response.writes().len(), 1);
    /// ```
    #[must_use]
    pub fn update(id: BreadcrumbId, expected_version: u64, patch: Patch) -> Self {
        Self::none().and_update(id, expected_version, patch)
    }

    /// Adds the creation of a breadcrumb to the response.
    ///
    /// Writes are committed in the order of the calls. One commit has at most 1,000 writes.
    #[must_use]
    pub fn and_create(mut self, new: NewBreadcrumb) -> Self {
        self.writes.push(Write::Create(new));
        self
    }

    /// Adds the update of a breadcrumb to the response. If the breadcrumb has another version than `expected_version` at the
    /// commit, the attempt fails and the run is retried with a newly fetched context.
    #[must_use]
    pub fn and_update(mut self, id: BreadcrumbId, expected_version: u64, patch: Patch) -> Self {
        self.writes.push(Write::Update {
            id,
            version: expected_version,
            patch,
        });
        self
    }

    /// Adds the deletion of a breadcrumb to the response. The version of the breadcrumb is not checked.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbId, NewBreadcrumb, Response};
    ///
    /// let draft = BreadcrumbId::unique();
    /// let response = Response::create(NewBreadcrumb::new("letter.v1")).and_delete(draft);
    /// assert_eq!(response.writes().len(), 2);
    /// ```
    #[must_use]
    pub fn and_delete(mut self, id: BreadcrumbId) -> Self {
        self.writes.push(Write::Delete { id, by: None });
        self
    }

    /// Returns the writes of the response, in order.
    ///
    /// Use it to check the response of an executor in a unit test.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    pub(crate) fn into_writes(self) -> Vec<Write> {
        self.writes
    }
}

/// Failure of a run, as passed to [`respond_failure`](super::UniversalExecutor::respond_failure).
///
/// Use `message` for an answer to the requester, and `class` and `error` for decisions in code.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The class of the run's failure.
    pub class: FailureClass,
    /// A sentence with the reason of the failure for the requester, which is a person or a model. The message of a panic is
    /// omitted.
    pub message: String,
    /// The number of attempts of the failed run.
    pub attempts: u32,
    /// The error of the run's last attempt. If the attempt panicked, the error contains the panic message. `None` if the run failed without
    /// an error, for example because its workers died.
    pub error: Option<BoxError>,
}

/// Creates a request to suspend the run until a breadcrumb that `wake` selects is committed, or until the time limit that `wake`
/// sets.
///
/// Return the suspension from `execute` as an error, converted by [`writing`](Suspension::writing) or `into`. The crate commits
/// the state, the wake and the writes in one step. A suspended run occupies no worker. Any worker can resume the run, and it is
/// resumed once. The next `execute` gets the state and the breadcrumb from
/// [`ExecutionContext::resumed`](super::ExecutionContext::resumed).
///
/// A [`Runtime`](crate::Runtime) watches for the breadcrumb. Without a runtime, call
/// [`RunLedger::resume`](crate::RunLedger::resume) with `RunRef::of(executor_id, &event)` to resume the run.
///
/// Set a time limit on `wake`. A run whose answer never arrives otherwise waits forever, and holds its ordering key.
///
/// The run fails if the wake can never fire (see [`Wake::check`]), or if the store has no durable run ledger.
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

/// A request to suspend a run, created by [`suspend`].
///
/// It converts to a [`BoxError`] with `into`, if nothing has to be written.
///
/// # Examples
/// ```
/// use universal_executor::model::Timestamp;
/// use universal_executor::{BoxError, Wake, suspend};
///
/// let noon: Timestamp = "2026-11-21T12:00:00Z".parse()?;
/// let error = BoxError::from(suspend(Wake::at(noon), serde_json::json!({"step": 2})));
/// assert_eq!(error.to_string(), "the run is suspended");
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Debug)]
pub struct Suspension {
    pub(super) wake: Wake,
    pub(super) state: Json,
    pub(super) response: Response,
}

impl Suspension {
    /// Sets the breadcrumbs to write when the run is suspended, such as requests or questions, and returns the suspension as an error.
    ///
    /// The breadcrumbs are committed once, together with the suspension. They are stamped like a
    /// response.
    #[must_use]
    pub fn writing(mut self, response: Response) -> BoxError {
        self.response = response;
        Box::new(self)
    }
}

#[cfg(feature = "workflows")]
impl Suspension {
    /// Splits the request to suspend a run into its parts: the wake condition, the state to save, and the breadcrumbs to write. A
    /// flow or a workload uses these parts to suspend its own run.
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
