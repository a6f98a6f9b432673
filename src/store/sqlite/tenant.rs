//! The row of a tenant: its clock and its counters, and what a job of the writer works with.

use super::builder::SqliteLimits;
use super::error::Fault;
use crate::bugs::planted;
use crate::clock::wall_micros;
use crate::model::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// The wall time of this machine.
#[derive(Debug, Default)]
pub(super) struct Time {
    /// How far tests have moved it ahead, in microseconds.
    shift: AtomicI64,
    /// Where tests have stopped it, if they have.
    held: OnceLock<i64>,
}

impl Time {
    pub(super) fn now(&self) -> Timestamp {
        let mut wall = self.held.get().copied().unwrap_or_else(wall_micros);
        if planted("own-clock") {
            // The clocks of two workers are never the same.
            wall += i64::from(std::process::id() % 2) * 5_000_000;
        }
        Timestamp::from_micros(wall.saturating_add(self.shift.load(Ordering::Relaxed)))
    }

    #[cfg(feature = "conformance")]
    pub(super) fn pass(&self, duration: std::time::Duration) {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        self.shift.fetch_add(micros, Ordering::Relaxed);
    }

    #[cfg(feature = "conformance")]
    pub(super) fn hold(&self) {
        self.held.get_or_init(wall_micros);
    }
}

/// The row of a tenant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Tenant {
    pub(super) id: i64,
    /// The time of the last commit.
    pub(super) latest: i64,
    /// The last run that was added or came to its end.
    pub(super) sequence: i64,
    /// The position of the last event.
    pub(super) position: i64,
    /// The position of the oldest event that is still there.
    pub(super) first_event: i64,
    pub(super) breadcrumbs: i64,
    pub(super) tombstones: i64,
    pub(super) open_runs: i64,
    pub(super) finished_runs: i64,
}

impl Tenant {
    /// The row of a tenant, if it was ever written to.
    pub(super) fn find(connection: &Connection, name: &str) -> rusqlite::Result<Option<Self>> {
        let mut found = connection.prepare_cached(
            "SELECT id, latest, sequence, position, first_event, breadcrumbs, tombstones, open_runs, finished_runs
             FROM ux_tenants WHERE name = ?1",
        )?;
        found.query_row([name], Self::of).optional()
    }

    fn find_or_add(connection: &Connection, name: &str) -> rusqlite::Result<Self> {
        if let Some(found) = Self::find(connection, name)? {
            return Ok(found);
        }
        let id = connection
            .prepare_cached("INSERT INTO ux_tenants VALUES (NULL, ?1, 0, 0, 0, 1, 0, 0, 0, 0)")?
            .insert([name])?;
        Ok(Self {
            id,
            latest: 0,
            sequence: 0,
            position: 0,
            first_event: 1,
            breadcrumbs: 0,
            tombstones: 0,
            open_runs: 0,
            finished_runs: 0,
        })
    }

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            latest: row.get(1)?,
            sequence: row.get(2)?,
            position: row.get(3)?,
            first_event: row.get(4)?,
            breadcrumbs: row.get(5)?,
            tombstones: row.get(6)?,
            open_runs: row.get(7)?,
            finished_runs: row.get(8)?,
        })
    }

    fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut update = connection.prepare_cached(
            "UPDATE ux_tenants SET latest = ?2, sequence = ?3, position = ?4, first_event = ?5, breadcrumbs = ?6,
             tombstones = ?7, open_runs = ?8, finished_runs = ?9 WHERE id = ?1",
        )?;
        update.execute((
            self.id,
            self.latest,
            self.sequence,
            self.position,
            self.first_event,
            self.breadcrumbs,
            self.tombstones,
            self.open_runs,
            self.finished_runs,
        ))?;
        Ok(())
    }
}

/// What a job of the writer works with: the transaction, and the tenant it is about.
pub(super) struct Writing<'t> {
    pub(super) connection: &'t Connection,
    pub(super) limits: &'t SqliteLimits,
    /// Its name.
    pub(super) name: &'t str,
    /// Its row, written back when the job is done.
    pub(super) tenant: Tenant,
    pub(super) now: Timestamp,
}

impl<'t> Writing<'t> {
    /// Does something with a tenant, in the transaction that is open.
    pub(super) fn with<T>(
        connection: &'t Connection,
        limits: &'t SqliteLimits,
        name: &'t str,
        time: &Time,
        job: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let before = Tenant::find_or_add(connection, name)?;
        let mut writing = Self {
            connection,
            limits,
            name,
            now: time.now(),
            tenant: before.clone(),
        };
        let done = job(&mut writing)?;
        if writing.tenant != before {
            writing.tenant.write(connection)?;
        }
        Ok(done)
    }

    pub(super) fn sql(&self, sql: &str) -> rusqlite::Result<CachedStatement<'t>> {
        self.connection.prepare_cached(sql)
    }

    /// Later than every commit before, so that update order is commit order.
    pub(super) fn next_time(&mut self) -> Timestamp {
        self.tenant.latest = self.now.as_micros().max(self.tenant.latest + 1);
        Timestamp::from_micros(self.tenant.latest)
    }

    pub(super) fn next_sequence(&mut self) -> i64 {
        self.tenant.sequence += 1;
        self.tenant.sequence
    }
}
