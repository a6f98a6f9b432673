//! Registry of the open in-memory waits for breadcrumbs.

use crate::clock::later;
use crate::error::Retry;
use crate::model::{Breadcrumb, ConditionError, Event, Selector, SelectorIndex};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Reason why a wait for a breadcrumb failed.
///
/// [`ExecutionContext::wait_for`](super::ExecutionContext::wait_for) returns it inside of
/// [`ContextError::Wait`](super::ContextError::Wait).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The runtime received no event of a matching breadcrumb before the timeout of the wait.
    ///
    /// Wait longer, or [suspend](super::suspend) the run for a long wait.
    #[error("the wait for a breadcrumb with {selector} timed out after {after:?}")]
    TimedOut {
        /// The selector of the awaited breadcrumb.
        selector: String,
        /// The timeout of the wait for the breadcrumb.
        after: Duration,
    },
    /// The maximum number of open `wait_for` calls on the store is reached.
    ///
    /// A retry after one second can succeed.
    #[error(
        "{limit} waits for breadcrumbs are open on the store already; wait for fewer breadcrumbs at a time"
    )]
    TooMany {
        /// The maximum number of open `wait_for` calls on one store.
        limit: usize,
    },
    /// The selector of the wait for a breadcrumb cannot be evaluated.
    ///
    /// Check the selector with [`Selector::check`] before the wait.
    #[error("the selector of a wait for a breadcrumb cannot be evaluated; see the cause")]
    Invalid(#[source] ConditionError),
    /// The runtime has no executor, and so no store in which it could find the breadcrumb.
    #[error("the runtime has no executor and so no store to read from; add an executor first")]
    NoStore,
}

impl WaitError {
    /// Returns a stable code for logs, metrics and dead letters, for example `wait_timed_out`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TimedOut { .. } => "wait_timed_out",
            Self::TooMany { .. } => "too_many_waits",
            Self::Invalid(_) => "bad_condition",
            Self::NoStore => "no_store",
        }
    }

    /// Returns whether a new wait for the breadcrumb may succeed, and after what delay.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::TimedOut { .. } => Retry::After(Duration::ZERO),
            Self::TooMany { .. } => Retry::After(Duration::from_secs(1)),
            Self::Invalid(_) | Self::NoStore => Retry::Never,
        }
    }
}

/// The open waits for breadcrumbs on one store, indexed by their selectors.
#[derive(Debug)]
pub(crate) struct Waits {
    open: Mutex<OpenWaits>,
    max_open: usize,
}

#[derive(Debug, Default)]
struct OpenWaits {
    index: SelectorIndex<u64>,
    waiting: HashMap<u64, Waiter>,
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    selector: Selector,
    answer: oneshot::Sender<Arc<Breadcrumb>>,
}

impl Waits {
    /// Creates an empty set of at most `max_open` open waits for breadcrumbs.
    pub(crate) fn new(max_open: usize) -> Self {
        Self {
            open: Mutex::default(),
            max_open,
        }
    }

    /// Starts a wait for a breadcrumb. Breadcrumbs that are announced after this call count, and the timeout starts now, not at the
    /// first poll.
    ///
    /// # Errors
    /// [`WaitError::Invalid`] and [`WaitError::TooMany`].
    pub(crate) fn begin(
        self: &Arc<Self>,
        selector: Selector,
        limit: Duration,
    ) -> Result<Wait, WaitError> {
        selector.check().map_err(WaitError::Invalid)?;
        let (answer, answered) = oneshot::channel();
        let mut open = self.open();
        if open.waiting.len() >= self.max_open {
            return Err(WaitError::TooMany {
                limit: self.max_open,
            });
        }
        let number = open.next;
        open.next += 1;
        open.index.insert(number, &selector);
        let waiting = Waiter { selector, answer };
        let selector_text = waiting.selector.to_string();
        open.waiting.insert(number, waiting);
        drop(open);
        Ok(Wait {
            number,
            selector: selector_text,
            limit,
            end: later(Instant::now(), limit),
            answered,
            waits: Arc::clone(self),
        })
    }

    /// Returns `true` if `more` additional `wait_for` calls would leave at least half of the store's maximum number of such calls
    /// free.
    #[cfg(feature = "workflows")]
    pub(crate) fn has_capacity_for(&self, more: usize) -> bool {
        self.len().saturating_add(more) <= self.max_open / 2
    }

    /// Returns the IDs of the open waits for breadcrumbs whose selectors may match an event.
    pub(crate) fn matching(&self, event: &Event) -> Vec<u64> {
        let open = self.open();
        if open.waiting.is_empty() {
            return Vec::new();
        }
        open.index.matching(event)
    }

    /// Ends each of the given waits whose selector matches the breadcrumb, and returns the breadcrumb to the waiting code.
    pub(crate) fn answer(&self, waits: &[u64], breadcrumb: &Arc<Breadcrumb>) {
        let mut open = self.open();
        for number in waits {
            let matches = |waiting: &Waiter| waiting.selector.matches(breadcrumb);
            if open.waiting.get(number).is_some_and(matches)
                && let Some(waiting) = open.end(*number)
            {
                // The waiting future may have been dropped.
                drop(waiting.answer.send(Arc::clone(breadcrumb)));
            }
        }
    }

    /// Returns `true` if the wait for a breadcrumb with the wait ID `number` is still open.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open().waiting.contains_key(&number)
    }

    /// Returns the selectors of the open waits for breadcrumbs.
    pub(crate) fn selectors(&self) -> Vec<Selector> {
        let open = self.open();
        open.waiting
            .values()
            .map(|waiter| waiter.selector.clone())
            .collect()
    }

    /// Returns the number of open waits for breadcrumbs.
    pub(crate) fn len(&self) -> usize {
        self.open().waiting.len()
    }

    fn open(&self) -> MutexGuard<'_, OpenWaits> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenWaits {
    fn end(&mut self, number: u64) -> Option<Waiter> {
        let waiting = self.waiting.remove(&number)?;
        self.index.remove(number, &waiting.selector);
        Some(waiting)
    }
}

/// One open wait for a breadcrumb. Dropping it removes the wait from its set.
#[derive(Debug)]
pub(crate) struct Wait {
    number: u64,
    selector: String,
    limit: Duration,
    end: Instant,
    answered: oneshot::Receiver<Arc<Breadcrumb>>,
    waits: Arc<Waits>,
}

impl Wait {
    /// Waits for the breadcrumb that matches the selector, until the timeout.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`].
    pub(crate) async fn answered(mut self) -> Result<Arc<Breadcrumb>, WaitError> {
        match timeout_at(self.end, &mut self.answered).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(_)) | Err(_) => Err(WaitError::TimedOut {
                selector: std::mem::take(&mut self.selector),
                after: self.limit,
            }),
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waits.open().end(self.number);
    }
}
