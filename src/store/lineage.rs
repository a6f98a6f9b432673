use super::error::StoreError;
use crate::model::{BreadcrumbId, Json, Selector, Timestamp};
use serde::Serialize;
use std::sync::Arc;

/// Where a breadcrumb version came from.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Lineage {
    /// The same for everything that follows from one breadcrumb from outside: that breadcrumb's id.
    pub correlation_id: Arc<str>,
    /// How many runs lie between that breadcrumb and this version: 0 if it came from outside itself.
    pub hops: u32,
}

impl Lineage {
    /// The lineage of a breadcrumb from outside.
    #[must_use]
    pub fn origin(id: BreadcrumbId) -> Self {
        let mut text = uuid::Uuid::encode_buffer();
        Self::new(&*id.to_uuid().hyphenated().encode_lower(&mut text), 0)
    }

    /// A lineage.
    #[must_use]
    pub fn new(correlation_id: impl Into<Arc<str>>, hops: u32) -> Self {
        Self {
            correlation_id: correlation_id.into(),
            hops,
        }
    }

    /// The lineage of what a run writes because of a trigger of this lineage.
    #[must_use]
    pub fn next(&self) -> Self {
        Self::new(
            Arc::clone(&self.correlation_id),
            self.hops.saturating_add(1),
        )
    }
}

/// Writer of a version of a breadcrumb, by the record of the store.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WrittenBy {
    /// A write that belongs to no run: a service, a person or another program.
    Outside,
    /// A run of the executor with this ID.
    Executor(Arc<str>),
    /// Unknown: this is not the current version, or the store does not record writers (see
    /// [`Capabilities::lineage`](super::Capabilities::lineage)).
    Unknown,
}

impl WrittenBy {
    /// Returns the answer for a version, given the current version and the executor that wrote it.
    pub(in crate::store) fn of(asked: u64, current: Option<(u64, Option<Arc<str>>)>) -> Self {
        match current {
            Some((version, _)) if version != asked => Self::Unknown,
            Some((_, Some(executor))) => Self::Executor(executor),
            Some((_, None)) => Self::Outside,
            None => Self::Unknown,
        }
    }
}

/// What a run goes on with.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Saved {
    /// What was saved last, by [`RunLedger::save`](super::RunLedger::save) or when it was suspended.
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

/// What wakes a suspended run: a breadcrumb committed after it was suspended, or [since](Self::since) a time before, or a
/// time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Wake {
    /// Any of these.
    pub selectors: Vec<Selector>,
    /// At the latest then; never if absent.
    pub until: Option<Timestamp>,
    /// A breadcrumb committed after this wakes it too, if that is earlier than when it was suspended.
    pub since: Option<Timestamp>,
}

impl Wake {
    /// Wakes on a breadcrumb that matches, by whoever looks for it and calls [`resume`](super::RunLedger::resume).
    #[must_use]
    pub fn on(selector: Selector) -> Self {
        Self {
            selectors: vec![selector],
            ..Self::default()
        }
    }

    /// Wakes at a time.
    #[must_use]
    pub fn at(time: Timestamp) -> Self {
        Self {
            until: Some(time),
            ..Self::default()
        }
    }

    /// Whether it can ever fire: it has a selector or a time, and every selector can be evaluated. A store checks
    /// this before it suspends a run.
    ///
    /// # Errors
    /// [`StoreError::InvalidQuery`] for the first selector that cannot be evaluated, [`StoreError::EmptyWake`] if
    /// there is neither selector nor time.
    pub fn check(&self) -> Result<(), StoreError> {
        for selector in &self.selectors {
            selector.check().map_err(StoreError::InvalidQuery)?;
        }
        if self.selectors.is_empty() && self.until.is_none() {
            return Err(StoreError::EmptyWake);
        }
        Ok(())
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

    /// Also wakes on what was committed after this time and before the run is suspended.
    ///
    /// For a run that waits for several answers, one after the other: while it works on the first the second may come.
    /// The selectors have to tell those apart that it had already, for example by a request id.
    #[must_use]
    pub fn since(mut self, time: Timestamp) -> Self {
        self.since = Some(time);
        self
    }
}
