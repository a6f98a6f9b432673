//! Detects that the database lost commits that this process has seen, as after a restore from an older backup.

use super::NAME;
use super::error::PostgresError;
use crate::error::Chain;
use crate::model::BreadcrumbId;
use crate::store::StoreError;
use std::sync::{Arc, OnceLock};

/// The newest events of one tenant that a handle has seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Mark {
    /// The highest position of an event that was committed.
    pub(super) head: u64,
    /// The newest event that was read.
    pub(super) event: Option<Seen>,
}

/// An event that was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Seen {
    pub(super) position: u64,
    /// The breadcrumb and its version.
    pub(super) of: (BreadcrumbId, u64),
}

/// The events that the database has, read after the [`Mark`] was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// The positions of the oldest and of the newest event.
    pub(super) first: u64,
    pub(super) last: u64,
    /// The breadcrumb and version of the event at the position of the mark.
    pub(super) at_mark: Option<(BreadcrumbId, u64)>,
}

impl Mark {
    /// Adds events that were seen later, or by another.
    pub(super) fn add(&mut self, other: Self) {
        self.head = self.head.max(other.head);
        let position = |event: Option<Seen>| event.map(|event| event.position);
        if position(other.event) > position(self.event) {
            self.event = other.event;
        }
    }

    /// Returns `true` if the database has all events up to this mark that it did not forget because they were old.
    pub(super) fn is_in(&self, now: &Now) -> bool {
        let is_same = self
            .event
            .is_none_or(|event| event.position < now.first || now.at_mark == Some(event.of));
        self.head <= now.last && is_same
    }
}

/// The loss of commits, once one is detected. All writes are refused from then on.
#[derive(Debug, Default)]
pub(super) struct Loss(OnceLock<Arc<PostgresError>>);

impl Loss {
    /// Fails if commits were lost.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            Some(error) => Err(refused(error)),
            None => Ok(()),
        }
    }

    /// Notes that commits were lost, and returns the first error.
    pub(super) fn note(&self, error: PostgresError) -> Arc<PostgresError> {
        let first = self.0.get_or_init(|| {
            let error = Arc::new(error);
            tracing::error!(error = %Chain(&*error), "the store refuses all writes from now on");
            error
        });
        Arc::clone(first)
    }
}

/// Returns the error of an operation that is refused because commits were lost.
pub(super) fn refused(error: &Arc<PostgresError>) -> StoreError {
    StoreError::Refused {
        store: NAME,
        source: Arc::clone(error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_head_and_another_event_at_a_seen_position_are_losses() {
        let (seen, other) = ((BreadcrumbId::NIL, 1), (BreadcrumbId::NIL, 2));
        let mark = Mark {
            head: 5,
            event: Some(Seen {
                position: 4,
                of: seen,
            }),
        };
        let cases = [
            ((1, 5), Some(seen), true),
            ((1, 9), Some(seen), true),
            ((1, 4), Some(seen), false),
            ((1, 9), Some(other), false),
            ((1, 9), None, false),
            // Retention removed the event.
            ((5, 9), None, true),
            ((1, 0), None, false),
        ];
        for ((first, last), at_mark, is_in) in cases {
            let now = Now {
                first,
                last,
                at_mark,
            };

            assert_eq!(mark.is_in(&now), is_in, "{now:?}");
        }
        let nothing = Now {
            first: 1,
            last: 0,
            at_mark: None,
        };
        assert!(Mark::default().is_in(&nothing));
    }
}
