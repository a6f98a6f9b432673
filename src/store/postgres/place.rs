//! The place of a transaction in the order of a tenant's commits, which its last message takes.

use super::statement::Statement;
use super::tenant;
use crate::model::{Breadcrumb, BreadcrumbId, Event, Timestamp};
use crate::store::durable::tenant::Tenant;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::sync::Arc;

/// Identity of a transaction. After a crash the server uses an ID again that it had not written down.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) number: String,
    /// Changes with each crash.
    pub(super) since: String,
}

/// The place of written changes in the order of a tenant's commits.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The tenant's row with the changes.
    pub(super) tenant: Tenant,
    /// The time that the open times of the changes are added to.
    pub(super) base: i64,
}

impl Place {
    /// Reads the row that a statement of [`tenant::update`] returns.
    pub(super) fn read(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            base: row.try_get("ux_base")?,
            tenant: tenant::read(row)?,
        })
    }

    /// Replaces the open times of events, and returns the position of the last one.
    pub(super) fn settle_events(&self, events: &mut [Event]) -> u64 {
        for event in events {
            event.updated_at = self.time(event.updated_at);
        }
        self.tenant.position.cast_unsigned()
    }

    /// The time of a version, from its open time.
    fn time(&self, time: Timestamp) -> Timestamp {
        match time.as_micros() >= tenant::OPEN_TIME {
            true => Timestamp::from_micros(self.base + tenant::open_time(time)),
            false => time,
        }
    }

    /// Replaces the open times of a version.
    pub(super) fn settle(&self, version: &mut Arc<Breadcrumb>) {
        let (created_at, updated_at) =
            (self.time(version.created_at), self.time(version.updated_at));
        if updated_at != version.updated_at {
            // No one else has a version that was written just now, so this clones nothing.
            let version = Arc::make_mut(version);
            (version.created_at, version.updated_at) = (created_at, updated_at);
        }
    }
}

/// The last message of a transaction, in parts.
pub(super) struct Last {
    /// Locks the tenant's row. `None` if nothing changes it.
    pub(super) take: Option<String>,
    pub(super) write: Statement,
    /// Makes the first runs of ordering keys their heads.
    pub(super) promote: Option<String>,
    /// One of the events.
    pub(super) witness: Option<Witness>,
    pub(super) events: Vec<Event>,
}

/// A new version, by which the place of a commit is found if its answer is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    pub(super) breadcrumb: BreadcrumbId,
    pub(super) version: u64,
    /// Number of its time in the transaction.
    pub(super) time: i64,
}

/// The end of a transaction.
pub(super) struct Ended {
    /// ID of the tenant.
    pub(super) tenant: i64,
    pub(super) transaction: Transaction,
    /// The places of changes that are written already, in the order in which they were written, with their events.
    pub(super) places: Vec<(Place, Vec<Event>)>,
    /// Changes that are not written yet.
    pub(super) last: Option<Last>,
    /// If `true`, keys of requests are old.
    pub(super) has_old_keys: bool,
}
