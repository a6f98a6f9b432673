//! Position of a PostgreSQL transaction in the tenant's commit order, assigned by the transaction's last protocol message to the
//! server.

use super::statement::Statement;
use super::tenant;
use crate::model::{Breadcrumb, BreadcrumbId, Event, Timestamp};
use crate::store::durable::tenant::Tenant;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::sync::Arc;

/// Identity of a PostgreSQL transaction, by which its outcome is found if the answer to the commit is lost. After a crash, the server
/// reuses IDs of transactions that it had not logged.
#[derive(Clone, Debug)]
pub(super) struct TransactionId {
    pub(super) xid: String,
    /// Identifier in the table `ux_alive`, which changes with each crash of the PostgreSQL server.
    pub(super) uptime_id: String,
}

/// Position of a transaction's changes in the tenant's commit order: the tenant's row after the changes, and the base of their
/// times.
#[derive(Clone, Debug)]
pub(super) struct CommitPosition {
    /// Tenant's row (counters and event positions) after the changes.
    pub(super) tenant: Tenant,
    /// Base time in microseconds: the final time of a breadcrumb version is this time plus the version's number within the
    /// transaction.
    pub(super) base: i64,
}

impl CommitPosition {
    /// Reads the position of changes in the commit order from the row that a statement of [`tenant::update`] returns.
    pub(super) fn read(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            base: row.try_get("ux_base")?,
            tenant: tenant::read(row)?,
        })
    }

    /// Sets the final time of each event, now that the transaction's position in the commit order is known. Returns the position
    /// of the last event.
    pub(super) fn finalize_event_times(&self, events: &mut [Event]) -> u64 {
        for event in events {
            event.updated_at = self.time(event.updated_at);
        }
        self.tenant.position.cast_unsigned()
    }

    /// Returns the final time for a time that is provisional until the transaction's position in the commit order is known. Other
    /// times are returned as they are.
    fn time(&self, time: Timestamp) -> Timestamp {
        match time.as_micros() >= tenant::PROVISIONAL_TIME {
            true => Timestamp::from_micros(self.base + tenant::provisional_number(time)),
            false => time,
        }
    }

    /// Sets the final creation and update time of a breadcrumb version, now that the transaction's position in the commit order
    /// is known.
    pub(super) fn finalize_times(&self, version: &mut Arc<Breadcrumb>) {
        let (created_at, updated_at) =
            (self.time(version.created_at), self.time(version.updated_at));
        if updated_at != version.updated_at {
            // No other reference to a version that was written just now exists, so this clones nothing.
            let version = Arc::make_mut(version);
            (version.created_at, version.updated_at) = (created_at, updated_at);
        }
    }
}

/// Parts of the last protocol message of a PostgreSQL transaction, which writes the changes and commits.
pub(super) struct FinalMessage {
    /// SQL statement that locks the tenant's row. `None` if nothing changes the row.
    pub(super) lock_tenant: Option<String>,
    pub(super) write: Statement,
    /// SQL statement that marks the first run of each changed ordering key as claimable, in the column `head`.
    pub(super) promote: Option<String>,
    /// One breadcrumb version that the transaction writes, by which the store finds the commit if the server's answer is lost.
    pub(super) commit_marker: Option<CommitMarker>,
    pub(super) events: Vec<Event>,
}

/// Breadcrumb version of a transaction; if the server's answer is lost, the stored version shows that the transaction was
/// committed, and at which position.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitMarker {
    pub(super) breadcrumb: BreadcrumbId,
    pub(super) version: u64,
    /// Number of the breadcrumb version within its transaction, taken from the version's provisional time.
    pub(super) time: i64,
}

/// State of a PostgreSQL transaction whose jobs (store operations) have run, before its last protocol message writes and commits.
pub(super) struct ReadyToCommit {
    /// ID of the tenant of the transaction.
    pub(super) tenant: i64,
    pub(super) transaction_id: TransactionId,
    /// Batches of changes that the transaction has already written, in their order, each with its commit position and its events.
    pub(super) commit_positions: Vec<(CommitPosition, Vec<Event>)>,
    /// Changes of the transaction that are not written yet.
    pub(super) last: Option<FinalMessage>,
    /// If `true`, the tenant has idempotency keys that are old enough to be checked for deletion.
    pub(super) has_old_keys: bool,
}
