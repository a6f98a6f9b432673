//! Who waits in memory for which breadcrumb.

use crate::clock::later;
use crate::error::Retry;
use crate::model::{Breadcrumb, ConditionError, Event, Selector, SelectorIndex};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Why the breadcrumb that was waited for did not come.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time is up.
    #[error("no breadcrumb with {selector} within {after:?}")]
    TimedOut {
        /// What was waited for.
        selector: String,
        /// How long.
        after: Duration,
    },
    /// As many wait already as may.
    #[error("{limit} waits are open already; wait for fewer at a time")]
    TooMany {
        /// How many may wait.
        limit: usize,
    },
    /// The selector cannot be evaluated.
    #[error("the selector of the wait cannot be evaluated")]
    Invalid(#[source] ConditionError),
    /// There is no store to read from.
    #[error("the runtime has no executor, so there is no store to read from")]
    NoStore,
}

impl WaitError {
    /// A stable short name for logs, metrics and dead letters.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TimedOut { .. } => "wait_timed_out",
            Self::TooMany { .. } => "too_many_waits",
            Self::Invalid(_) => "bad_condition",
            Self::NoStore => "no_store",
        }
    }

    /// Whether waiting again could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::TimedOut { .. } => Retry::After(Duration::ZERO),
            Self::TooMany { .. } => Retry::After(Duration::from_secs(1)),
            Self::Invalid(_) | Self::NoStore => Retry::Never,
        }
    }
}

/// The waits on one store, found by what they wait for.
#[derive(Debug)]
pub(crate) struct Waits {
    open: Mutex<Open>,
    most: usize,
}

#[derive(Debug, Default)]
struct Open {
    index: SelectorIndex<u64>,
    waiting: HashMap<u64, Waiting>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    selector: Selector,
    answer: oneshot::Sender<Arc<Breadcrumb>>,
}

impl Waits {
    /// No waits, and at most so many at a time.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            open: Mutex::default(),
            most,
        }
    }

    /// Begins to wait, at once: what is announced from now on counts, and so does the time, whenever the wait is
    /// awaited.
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
        if open.waiting.len() >= self.most {
            return Err(WaitError::TooMany { limit: self.most });
        }
        let number = open.next;
        open.next += 1;
        open.index.insert(number, &selector);
        let waiting = Waiting { selector, answer };
        let told = waiting.selector.to_string();
        open.waiting.insert(number, waiting);
        drop(open);
        Ok(Wait {
            number,
            selector: told,
            limit,
            end: later(Instant::now(), limit),
            answered,
            waits: Arc::clone(self),
        })
    }

    /// Returns `true` if so many more waits leave half of the limit to others.
    #[cfg(feature = "workflows")]
    pub(crate) fn has_room_for(&self, more: usize) -> bool {
        self.len().saturating_add(more) <= self.most / 2
    }

    /// The waits that an event may end.
    pub(crate) fn concerned(&self, event: &Event) -> Vec<u64> {
        let open = self.open();
        if open.waiting.is_empty() {
            return Vec::new();
        }
        open.index.matching(event)
    }

    /// Ends those of some waits that a breadcrumb, read from the store, matches.
    pub(crate) fn answer(&self, waits: &[u64], breadcrumb: &Arc<Breadcrumb>) {
        let mut open = self.open();
        for number in waits {
            let matches = |waiting: &Waiting| waiting.selector.matches(breadcrumb);
            if open.waiting.get(number).is_some_and(matches)
                && let Some(waiting) = open.end(*number)
            {
                // Whoever waited may be gone by now.
                drop(waiting.answer.send(Arc::clone(breadcrumb)));
            }
        }
    }

    /// Returns `true` if a wait is still open.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open().waiting.contains_key(&number)
    }

    /// The selectors of the open waits.
    pub(crate) fn selectors(&self) -> Vec<Selector> {
        let open = self.open();
        open.waiting
            .values()
            .map(|one| one.selector.clone())
            .collect()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.open().waiting.len()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn end(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        self.index.remove(number, &waiting.selector);
        Some(waiting)
    }
}

/// One wait; dropping it leaves nothing behind.
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
    /// The breadcrumb, if it comes in time.
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
