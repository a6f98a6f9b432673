//! Row of a tenant in the SQLite table `ux_tenants`, and the open transaction in which the writer thread runs a job (store
//! operation) on the tenant.

use super::NAME;
use super::builder::SqliteLimits;
use super::error::Fault;
use crate::bugs::planted;
use crate::model::Timestamp;
use crate::store::Worker;
use crate::store::durable::tenant::{StoreClock, Tenant, store_time as store_time_micros};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};

/// Returns the row of a tenant (counters and event positions), or `None` if the tenant has no row yet.
pub(super) fn find(connection: &Connection, name: &str) -> rusqlite::Result<Option<Tenant>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, latest, sequence, position, first_event, breadcrumbs, tombstones, open_runs, finished_runs,
             requests
         FROM ux_tenants WHERE name = ?1",
    )?;
    let read = |row: &Row<'_>| Tenant::read(|column| row.get(column));
    statement.query_row([name], read).optional()
}

fn find_or_add(connection: &Connection, name: &str) -> rusqlite::Result<Tenant> {
    if let Some(tenant) = find(connection, name)? {
        return Ok(tenant);
    }
    let mut add = connection
        .prepare_cached("INSERT INTO ux_tenants VALUES (NULL, ?1, 0, 0, 0, 1, 0, 0, 0, 0, 0)")?;
    Ok(Tenant::new(add.insert([name])?))
}

/// Returns the tenant's [`Tenant::latest`], the time of its last commit.
pub(super) fn latest(connection: &Connection, tenant: i64) -> rusqlite::Result<Timestamp> {
    let mut latest = connection.prepare_cached("SELECT latest FROM ux_tenants WHERE id = ?1")?;
    latest
        .query_row([tenant], |row| row.get(0))
        .map(Timestamp::from_micros)
}

/// Returns the time of the store's clock for a job (store operation) of the writer.
fn now(time: &StoreClock, tenant: &Tenant) -> Timestamp {
    let wall = time.now();
    time.jumps.record(NAME, wall.as_micros());
    store_time(wall, Timestamp::from_micros(tenant.latest))
}

/// Returns the time of the store's clock, computed from the wall clock and the time of the tenant's last commit
/// ([`Tenant::latest`]).
pub(super) fn store_time(wall: Timestamp, latest: Timestamp) -> Timestamp {
    if planted("own-clock") {
        return wall;
    }
    Timestamp::from_micros(store_time_micros(wall.as_micros(), latest.as_micros()))
}

fn write(connection: &Connection, tenant: &Tenant) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached(
        "UPDATE ux_tenants SET latest = ?1, sequence = ?2, position = ?3, first_event = ?4, breadcrumbs = ?5,
         tombstones = ?6, open_runs = ?7, finished_runs = ?8, requests = ?9 WHERE id = ?10",
    )?;
    let columns = tenant.columns().map(|(_, value)| value);
    update.execute(rusqlite::params_from_iter(
        columns.into_iter().chain([tenant.id]),
    ))?;
    Ok(())
}

/// Context of a job (store operation) of the SQLite writer: the open transaction and the tenant of the job.
pub(super) struct TenantTransaction<'t> {
    pub(super) connection: &'t Connection,
    pub(super) limits: &'t SqliteLimits,
    /// Name of the tenant whose data the job (store operation) changes.
    pub(super) name: &'t str,
    /// Row of the job's tenant (counters and event positions). A changed row is written when the job has succeeded.
    pub(super) tenant: Tenant,
    pub(super) now: Timestamp,
    /// If `true`, the wall clock has not jumped in the last 30 s ([`Worker::LIVE`]). The age of a worker record is then reliable, so
    /// old worker records can be deleted.
    pub(super) is_clock_steady: bool,
}

impl<'t> TenantTransaction<'t> {
    /// Runs a job (store operation) on a tenant in the open SQLite transaction. Adds the tenant's row if it is missing.
    pub(super) fn with<T>(
        connection: &'t Connection,
        limits: &'t SqliteLimits,
        name: &'t str,
        time: &StoreClock,
        job: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let before = find_or_add(connection, name)?;
        let mut transaction = Self {
            connection,
            limits,
            name,
            now: now(time, &before),
            is_clock_steady: time.jumps.is_steady_for(Worker::LIVE),
            tenant: before.clone(),
        };
        let result = job(&mut transaction)?;
        if transaction.tenant != before {
            write(connection, &transaction.tenant)?;
        }
        Ok(result)
    }

    pub(super) fn sql(&self, sql: &str) -> rusqlite::Result<CachedStatement<'t>> {
        self.connection.prepare_cached(sql)
    }

    /// Returns the update time for a new breadcrumb version: the store's time, or just after the tenant's newest update if that is
    /// later. So the order of times is the order of commits.
    pub(super) fn next_time(&mut self) -> Timestamp {
        self.tenant.latest = self.now.as_micros().max(self.tenant.latest + 1);
        Timestamp::from_micros(self.tenant.latest)
    }
}
