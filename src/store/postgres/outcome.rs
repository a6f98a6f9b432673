//! Outcome of a PostgreSQL transaction, which the callers of its jobs (store operations) receive.

use super::commit_position::CommitPosition;
use super::error::{
    Class, PostgresError, claim_in_doubt, has_code, limit_reached, of_driver, task_ended,
    unknown_outcome,
};
use super::history;
use super::lease::Leased;
use crate::model::Event;
use crate::store::{ClaimId, StoreError};
use std::sync::Arc;

/// PostgreSQL error code (SQLSTATE) with which a transaction aborts itself if it would exceed a limit of the tenant, see
/// [`lock_tenant_row`](super::begin::lock_tenant_row).
const DIVISION_BY_ZERO: &str = "22012";

/// Reason why a PostgreSQL transaction was not committed, or may not have been committed.
#[derive(Debug)]
pub(super) enum TransactionFailure {
    Driver(Arc<sqlx::Error>),
    /// One of several jobs (store operations) failed and cannot be undone alone, so each job must run in its own transaction.
    BatchFailed,
    /// The outcome of the commit is unknown, because its answer was lost.
    Unknown,
    /// The transaction may exceed the tenant's limit of breadcrumbs, open runs or idempotency keys. Counters are exact only with
    /// the tenant's row locked.
    LimitReached,
    /// The database lost commits that this process has read or made.
    Lost(Arc<PostgresError>),
}

impl TransactionFailure {
    /// Classifies a PostgreSQL error within a transaction.
    ///
    /// A permanent rejection of a value does not identify the job with this value, so several jobs must be retried one by one.
    pub(super) fn of(error: sqlx::Error, is_alone: bool) -> Self {
        if is_limit_reached(&error) {
            Self::LimitReached
        } else if !is_alone && Class::of(&error) == Class::Permanent {
            Self::BatchFailed
        } else {
            error.into()
        }
    }

    pub(super) fn to_store_error(&self) -> StoreError {
        match self {
            Self::Driver(error) => of_driver(Arc::clone(error)),
            Self::BatchFailed => task_ended(),
            Self::LimitReached => limit_reached(),
            Self::Unknown => unknown_outcome(),
            Self::Lost(error) => history::lost_commits_error(error),
        }
    }
}

impl From<sqlx::Error> for TransactionFailure {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(Arc::new(error))
    }
}

/// Returns `true` if a transaction was aborted because it would have exceeded a limit of the tenant.
fn is_limit_reached(error: &sqlx::Error) -> bool {
    has_code(error, DIVISION_BY_ZERO)
}

/// Results of a PostgreSQL transaction that is committed and durable.
#[derive(Default)]
pub(super) struct CommittedTransaction {
    /// Positions in the tenant's commit order, one for each batch of changes that the transaction wrote to the tables in one
    /// statement.
    pub(super) commit_positions: Vec<CommitPosition>,
    /// Events of each batch of changes that the transaction wrote, with the position of the batch's last event.
    pub(super) events: Vec<(u64, Vec<Event>)>,
    /// Runs that were claimed after the commit. `None` if the answer of the claim was lost.
    pub(super) leased: Option<Vec<Leased>>,
    /// If `true`, the tenant has idempotency keys that are old enough to be checked for deletion.
    pub(super) has_old_keys: bool,
}

impl CommittedTransaction {
    pub(super) fn add(&mut self, commit_position: CommitPosition, mut events: Vec<Event>) {
        if !events.is_empty() {
            let last = commit_position.finalize_event_times(&mut events);
            self.events.push((last, events));
        }
        self.commit_positions.push(commit_position);
    }

    /// Removes and returns the runs that one claim leased, in the order in which the claim selected the runs.
    pub(super) fn take_leased(&mut self, claim: ClaimId) -> Result<Vec<Leased>, StoreError> {
        let all = self.leased.as_mut().ok_or_else(claim_in_doubt)?;
        let is_of_claim = |leased: &mut Leased| leased.row.claim == Some(claim);
        let mut leased: Vec<Leased> = all.extract_if(.., is_of_claim).collect();
        Leased::sort(&mut leased);
        Ok(leased)
    }
}
