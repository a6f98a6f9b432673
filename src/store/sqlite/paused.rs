//! Paused executors in SQLite: begin and end of a pause, and the list of all pauses.

use super::NAME;
use super::column::time;
use super::error::Fault;
use super::tenant::TenantTransaction;
use crate::model::Timestamp;
use crate::store::PausedExecutor;
use rusqlite::{Connection, OptionalExtension as _};

/// Pauses an executor. Returns `false` if the executor is paused already.
pub(super) fn pause(transaction: &TenantTransaction<'_>, executor: &str) -> Result<bool, Fault> {
    let (tenant, now) = (transaction.tenant.id, transaction.now.as_micros());
    if paused_since(transaction, executor)?.is_some() {
        return Ok(false);
    }
    let mut count = transaction.sql("SELECT count(*) FROM ux_paused WHERE tenant = ?1")?;
    let count: i64 = count.query_row([tenant], |row| row.get(0))?;
    if usize::try_from(count).unwrap_or_default() >= PausedExecutor::MOST {
        return Err(PausedExecutor::full(NAME).into());
    }
    let mut pause =
        transaction.sql("INSERT INTO ux_paused (tenant, executor, since) VALUES (?1, ?2, ?3)")?;
    pause.execute((tenant, executor, now))?;
    Ok(true)
}

/// Ends the pause of an executor. Returns `false` if the executor is not paused.
pub(super) fn resume(transaction: &TenantTransaction<'_>, executor: &str) -> Result<bool, Fault> {
    let mut resume =
        transaction.sql("DELETE FROM ux_paused WHERE tenant = ?1 AND executor = ?2")?;
    Ok(resume.execute((transaction.tenant.id, executor))? > 0)
}

/// Returns the time since which an executor is paused, or `None` if it is not paused.
pub(super) fn paused_since(
    transaction: &TenantTransaction<'_>,
    executor: &str,
) -> rusqlite::Result<Option<Timestamp>> {
    let mut since =
        transaction.sql("SELECT since FROM ux_paused WHERE tenant = ?1 AND executor = ?2")?;
    let since = since.query_row((transaction.tenant.id, executor), |row| time(row, 0));
    Ok(since.optional()?.flatten())
}

/// Lists the tenant's paused executors in the order of their IDs.
pub(super) fn all(connection: &Connection, tenant: i64) -> Result<Vec<PausedExecutor>, Fault> {
    let mut all = connection.prepare_cached(
        "SELECT executor, since FROM ux_paused WHERE tenant = ?1 ORDER BY executor",
    )?;
    let paused = |row: &rusqlite::Row<'_>| {
        let (executor, since): (String, i64) = (row.get(0)?, row.get(1)?);
        Ok(PausedExecutor::new(executor, Timestamp::from_micros(since)))
    };
    Ok(all
        .query_map([tenant], paused)?
        .collect::<rusqlite::Result<_>>()?)
}
