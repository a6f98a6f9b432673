use super::error::StoreError;
use crate::model::{BreadcrumbId, Json, Selector, Timestamp};
use serde::Serialize;
use std::sync::Arc;

/// Origin of a breadcrumb version: the first breadcrumb of the chain of runs, and the number of runs up to this version.
///
/// A runtime uses it for the hop limit, and gives all runs of a chain the same correlation ID for
/// logs and traces.
///
/// ```
/// use universal_executor::BreadcrumbId;
/// use universal_executor::store::Lineage;
///
/// let origin = Lineage::origin(BreadcrumbId::NIL);
/// let response = origin.next();
/// assert_eq!((origin.hops, response.hops), (0, 1));
/// assert_eq!(origin.correlation_id, response.correlation_id);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Lineage {
    /// The ID of the breadcrumb that started the chain of runs. No run wrote this breadcrumb. All breadcrumbs of the chain have
    /// the same correlation ID.
    pub correlation_id: Arc<str>,
    /// The number of runs in the chain from its first breadcrumb to this version, including the run that wrote the version.
    pub hops: u32,
}

impl Lineage {
    /// Returns the lineage of a breadcrumb that no run wrote.
    ///
    /// The correlation ID is the ID of the breadcrumb as a UUID string, and the number of hops is
    /// 0.
    #[must_use]
    pub fn origin(id: BreadcrumbId) -> Self {
        let mut text = uuid::Uuid::encode_buffer();
        Self::new(&*id.to_uuid().hyphenated().encode_lower(&mut text), 0)
    }

    /// Creates the origin of a breadcrumb version from the ID of the chain's first breadcrumb and the number of runs up to the
    /// version.
    #[must_use]
    pub fn new(correlation_id: impl Into<Arc<str>>, hops: u32) -> Self {
        Self {
            correlation_id: correlation_id.into(),
            hops,
        }
    }

    /// Returns the lineage of the breadcrumbs that a run writes for a trigger with this lineage.
    ///
    /// The correlation ID stays the same, and the number of hops is one higher.
    #[must_use]
    pub fn next(&self) -> Self {
        Self::new(
            Arc::clone(&self.correlation_id),
            self.hops.saturating_add(1),
        )
    }
}

/// Writer of a breadcrumb version, as recorded by the store.
///
/// [`RunLedger::written_by`](super::RunLedger::written_by) returns it. Fields of a breadcrumb such
/// as `created_by` can have any value, so check permissions with this record.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WrittenBy {
    /// The version was written outside of runs, for example by a service, a person or another program.
    Outside,
    /// A run of the executor with this ID wrote the version.
    ///
    /// The record is made by the commit of the run, so no payload can forge it.
    Executor(Arc<str>),
    /// The writer is unknown, because another version is current or the store does not record writers (see
    /// [`Capabilities::lineage`](super::Capabilities::lineage)).
    Unknown,
}

impl WrittenBy {
    /// Returns the writer of breadcrumb version `requested`, or [`Unknown`](Self::Unknown) if another version is current.
    /// `current` has the current version and the executor that wrote it.
    pub(in crate::store) fn of(requested: u64, current: Option<(u64, Option<Arc<str>>)>) -> Self {
        match current {
            Some((version, _)) if version != requested => Self::Unknown,
            Some((_, Some(executor))) => Self::Executor(executor),
            Some((_, None)) => Self::Outside,
            None => Self::Unknown,
        }
    }
}

/// Saved progress of a run, from which its next attempt continues.
///
/// An executor reads it with [`ExecutionContext::resumed`](crate::ExecutionContext::resumed). A
/// worker finds it in [`Claimed::state`](super::Claimed::state).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Saved {
    /// The last state that the run saved with [`RunLedger::save`](super::RunLedger::save) or with a suspension.
    pub state: Json,
    /// The breadcrumb that woke the run. `None` if a time limit woke the run, or if it was not suspended.
    pub with: Option<BreadcrumbId>,
}

impl Saved {
    /// Creates the saved progress of a run from the state that it saved last and the breadcrumb that woke it.
    #[must_use]
    pub fn new(state: Json, with: Option<BreadcrumbId>) -> Self {
        Self { state, with }
    }
}

/// Conditions that wake a suspended run: a breadcrumb or a time. The breadcrumb must be committed after the suspension, or after
/// [`since`](Self::since) if that is earlier.
///
/// An executor passes it to [`suspend`](crate::suspend). The run then occupies no worker until the
/// breadcrumb is written or the time has passed. Give each wait a time limit, so that a lost answer
/// does not suspend the run for ever.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::model::Timestamp;
/// use universal_executor::store::StoreError;
/// use universal_executor::{Selector, Wake};
///
/// let now = Timestamp::from_micros(1_795_000_000_000_000); // In an executor: `cx.now()`.
/// let wake = Wake::on(Selector::schema("release.v1").all_tags(["order:17"]))
///     .or_on(Selector::schema("cancellation.v1").all_tags(["order:17"]))
///     .until(now + Duration::from_secs(24 * 60 * 60));
/// assert_eq!(wake.selectors.len(), 2);
/// assert!(wake.check().is_ok());
/// assert!(matches!(Wake::default().check(), Err(StoreError::EmptyWake)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Wake {
    /// Selectors of the breadcrumbs that wake the suspended run. One match is enough.
    pub selectors: Vec<Selector>,
    /// The time at which the suspended run wakes without a breadcrumb. `None` for no time limit.
    pub until: Option<Timestamp>,
    /// Earliest commit time of a breadcrumb that can wake the run, exclusive. Defaults to the time of the suspension. A time
    /// after the suspension has no effect.
    pub since: Option<Timestamp>,
}

impl Wake {
    /// Creates the wake condition of a run that waits for a breadcrumb that matches a selector. The worker that finds the
    /// breadcrumb calls [`resume`](super::RunLedger::resume).
    ///
    /// The selector should have a tag that only the wanted answer has. Otherwise the answer to
    /// another run wakes this run too.
    #[must_use]
    pub fn on(selector: Selector) -> Self {
        Self {
            selectors: vec![selector],
            ..Self::default()
        }
    }

    /// Creates the wake condition of a run that waits until a time.
    ///
    /// Use it for reminders and for pauses that are longer than a retry delay. No breadcrumb wakes
    /// the run.
    ///
    /// ```
    /// use universal_executor::Wake;
    /// use universal_executor::model::Timestamp;
    ///
    /// let wake = Wake::at(Timestamp::from_micros(1_795_000_000_000_000));
    /// assert!(wake.selectors.is_empty() && wake.check().is_ok());
    /// ```
    #[must_use]
    pub fn at(time: Timestamp) -> Self {
        Self {
            until: Some(time),
            ..Self::default()
        }
    }

    /// Checks that a suspended run can wake: there is a selector or a time, and every selector can be evaluated. A store calls
    /// this before it suspends a run.
    ///
    /// # Errors
    /// [`StoreError::InvalidQuery`] for the first selector that cannot be evaluated, [`StoreError::EmptyWake`] without a selector
    /// and a time.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::StoreError;
    /// use universal_executor::{Selector, Wake};
    ///
    /// let invalid = Wake::on(Selector::schema("release.v1").matching("$.a", "equals", 1));
    /// assert!(matches!(invalid.check(), Err(StoreError::InvalidQuery(_))));
    /// ```
    pub fn check(&self) -> Result<(), StoreError> {
        for selector in &self.selectors {
            selector.check().map_err(StoreError::InvalidQuery)?;
        }
        if self.selectors.is_empty() && self.until.is_none() {
            return Err(StoreError::EmptyWake);
        }
        Ok(())
    }

    /// Adds a selector for breadcrumbs that wake the suspended run. One match of any selector is enough.
    #[must_use]
    pub fn or_on(mut self, selector: Selector) -> Self {
        self.selectors.push(selector);
        self
    }

    /// Sets the time at which the suspended run wakes without a breadcrumb.
    ///
    /// The time is by the store's clock. The next attempt then has no answer, so [`Saved::with`] is
    /// `None`.
    #[must_use]
    pub fn until(mut self, time: Timestamp) -> Self {
        self.until = Some(time);
        self
    }

    /// Permits breadcrumbs that were committed before the suspension, but after `time`, to wake the run too.
    ///
    /// Use it for a run that waits for several answers, one after the other: the second answer may arrive while the run works on
    /// the first. The selectors must exclude the answers that the run already has, for example by request ID.
    #[must_use]
    pub fn since(mut self, time: Timestamp) -> Self {
        self.since = Some(time);
        self
    }
}
