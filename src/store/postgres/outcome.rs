//! Outcome of a PostgreSQL transaction, which the callers of its jobs (store operations) receive.

use super::error::{
    Class, PostgresError, claim_in_doubt, crowded, ended, has_code, of_driver, unknown_outcome,
};
use super::history;
use super::lease::Leased;
use super::place::Place;
use crate::model::Event;
use crate::store::{ClaimId, StoreError};
use std::sync::Arc;

/// PostgreSQL error code (SQLSTATE) of a transaction that would have exceeded a limit of the tenant, see [`take`](super::begin::take).
const DIVISION_BY_ZERO: &str = "22012";

/// Reason why a PostgreSQL transaction was not committed, or may not have been committed.
#[derive(Debug)]
pub(super) enum Failed {
    Driver(Arc<sqlx::Error>),
    /// One of several jobs (store operations) failed and cannot be undone alone, so each job must run in its own transaction.
    Together,
    /// The outcome of the commit is unknown, because its answer was lost.
    Unknown,
    /// A limit of the tenant's breadcrumbs, open runs or request keys may be reached. Counters are exact only with the tenant's row locked.
    Crowded,
    /// The database lost commits that this process has seen.
    Lost(Arc<PostgresError>),
}

impl Failed {
    /// Classifies a PostgreSQL error within a transaction.
    ///
    /// A permanent rejection of a value does not identify the job with this value, so several jobs must be retried one by one.
    pub(super) fn of(error: sqlx::Error, is_alone: bool) -> Self {
        if is_crowded(&error) {
            Self::Crowded
        } else if !is_alone && Class::of(&error) == Class::Permanent {
            Self::Together
        } else {
            error.into()
        }
    }

    pub(super) fn told(&self) -> StoreError {
        match self {
            Self::Driver(error) => of_driver(Arc::clone(error)),
            Self::Together => ended(),
            Self::Crowded => crowded(),
            Self::Unknown => unknown_outcome(),
            Self::Lost(error) => history::refused(error),
        }
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(Arc::new(error))
    }
}

/// Returns `true` if a transaction was aborted because it would have exceeded a limit of the tenant.
fn is_crowded(error: &sqlx::Error) -> bool {
    has_code(error, DIVISION_BY_ZERO)
}

/// Results of a PostgreSQL transaction that is committed and durable.
#[derive(Default)]
pub(super) struct Done {
    /// Places of the transaction's changes in the tenant's commit order. The list is in the order in which the transaction wrote the
    /// changes.
    pub(super) places: Vec<Place>,
    /// Events of the transaction, with one entry for each place in the tenant's commit order. An entry has the position of its last event,
    /// and its events.
    pub(super) events: Vec<(u64, Vec<Event>)>,
    /// Runs that were claimed after the commit. `None` if the answer of the claim was lost.
    pub(super) leased: Option<Vec<Leased>>,
    /// If `true`, the tenant has request keys that are old enough to be checked for deletion.
    pub(super) has_old_keys: bool,
}

impl Done {
    pub(super) fn add(&mut self, place: Place, mut events: Vec<Event>) {
        if !events.is_empty() {
            let last = place.settle_events(&mut events);
            self.events.push((last, events));
        }
        self.places.push(place);
    }

    /// Removes and returns the runs that one claim leased, in the order in which the claim selected the runs.
    pub(super) fn leased(&mut self, claim: ClaimId) -> Result<Vec<Leased>, StoreError> {
        let all = self.leased.as_mut().ok_or_else(claim_in_doubt)?;
        let is_its = |leased: &mut Leased| leased.row.claim == Some(claim);
        let mut leased: Vec<Leased> = all.extract_if(.., is_its).collect();
        Leased::sort(&mut leased);
        Ok(leased)
    }
}
