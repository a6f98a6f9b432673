//! Detection of commits that the PostgreSQL database has lost. Commits are lost if the database lacks events that this process
//! has read or committed, for example after a restore from an older backup.

use super::NAME;
use super::error::PostgresError;
use crate::error::Chain;
use crate::model::BreadcrumbId;
use crate::store::StoreError;
use std::sync::{Arc, OnceLock};

/// Newest events of one tenant that a store handle and its clones have read or committed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Mark {
    /// Highest position of the tenant's committed events that a store handle and its clones have read or committed.
    pub(super) head: u64,
    /// Newest event of the tenant that a store handle and its clones have read or committed.
    pub(super) event: Option<SeenEvent>,
}

/// An event that a store handle has read or committed: its position, and the breadcrumb version that it announces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct SeenEvent {
    pub(super) position: u64,
    /// ID and version of the breadcrumb that the event announces.
    pub(super) announces: (BreadcrumbId, u64),
}

/// Range of a tenant's event positions in the database, by which the store detects that events were lost. It is read after this
/// process recorded the newest events that it had read or committed (the [`Mark`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredEvents {
    /// Position of the tenant's oldest event in the database.
    pub(super) first: u64,
    /// Position of the tenant's newest event in the database.
    pub(super) last: u64,
    /// Breadcrumb ID and version of the event that the database now has at the position of the newest event in the [`Mark`].
    /// `None` if the database has no event there.
    pub(super) at_mark: Option<(BreadcrumbId, u64)>,
}

impl Mark {
    /// Combines this record of the newest events that a process has read or committed with another record. The result has the
    /// higher position and the newer event of both.
    pub(super) fn add(&mut self, other: Self) {
        self.head = self.head.max(other.head);
        let position = |event: Option<SeenEvent>| event.map(|event| event.position);
        if position(other.event) > position(self.event) {
            self.event = other.event;
        }
    }

    /// Returns `true` if the database still has the tenant's events up to the newest event in this [`Mark`]. Events that
    /// retention deleted do not count as missing.
    pub(super) fn is_in(&self, stored_events: &StoredEvents) -> bool {
        let is_same = self.event.is_none_or(|event| {
            event.position < stored_events.first || stored_events.at_mark == Some(event.announces)
        });
        self.head <= stored_events.last && is_same
    }
}

/// Record that the PostgreSQL database lost commits. The store rejects all writes after it.
#[derive(Debug, Default)]
pub(super) struct Loss(OnceLock<Arc<PostgresError>>);

impl Loss {
    /// Returns an error if the PostgreSQL database was found to have lost commits.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            Some(error) => Err(lost_commits_error(error)),
            None => Ok(()),
        }
    }

    /// Records that the PostgreSQL database lost commits, and returns the first recorded error.
    pub(super) fn record(&self, error: PostgresError) -> Arc<PostgresError> {
        let first = self.0.get_or_init(|| {
            let error = Arc::new(error);
            tracing::error!(error = %Chain(&*error), "the PostgreSQL database lost commits, and the store rejects all writes from now on; restart each process that uses the schema");
            error
        });
        Arc::clone(first)
    }
}

/// Returns the error of a store operation that is rejected because the database lost commits.
pub(super) fn lost_commits_error(error: &Arc<PostgresError>) -> StoreError {
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
            event: Some(SeenEvent {
                position: 4,
                announces: seen,
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
            let stored_events = StoredEvents {
                first,
                last,
                at_mark,
            };

            assert_eq!(mark.is_in(&stored_events), is_in, "{stored_events:?}");
        }
        let nothing = StoredEvents {
            first: 1,
            last: 0,
            at_mark: None,
        };
        assert!(Mark::default().is_in(&nothing));
    }
}
