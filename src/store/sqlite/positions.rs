//! Event positions that runtimes save in SQLite for each executor, to find missed events after a downtime.

use super::error::Fault;
use super::tenant::TenantTransaction;
use crate::store::SavedPosition;
use rusqlite::{Connection, OptionalExtension as _};
use std::sync::Arc;

/// Saves a runtime's event position for each executor. Deletes the tenant's oldest saved positions beyond [`SavedPosition::MOST`].
pub(super) fn save(
    transaction: &TenantTransaction<'_>,
    positions: &[(Arc<str>, Vec<u8>)],
) -> Result<(), Fault> {
    let (tenant, now) = (transaction.tenant.id, transaction.now.as_micros());
    for (executor, position) in positions {
        transaction
            .sql(
                "INSERT INTO ux_positions (tenant, executor, saved_at, position) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (tenant, executor) DO UPDATE SET saved_at = excluded.saved_at, position = excluded.position",
            )?
            .execute((tenant, &**executor, now, position))?;
    }
    let most = i64::try_from(SavedPosition::MOST).unwrap_or(i64::MAX);
    transaction
        .sql(
            "DELETE FROM ux_positions WHERE tenant = ?1 AND executor IN (SELECT executor FROM ux_positions
                 WHERE tenant = ?1 ORDER BY saved_at DESC, executor LIMIT -1 OFFSET ?2)",
        )?
        .execute((tenant, most))?;
    Ok(())
}

/// Returns the saved event position of each executor, or `None` for an executor without one, in the order of `executors`.
pub(super) fn of(
    connection: &Connection,
    tenant: i64,
    executors: &[Arc<str>],
) -> Result<Vec<Option<Vec<u8>>>, Fault> {
    let mut select = connection
        .prepare_cached("SELECT position FROM ux_positions WHERE tenant = ?1 AND executor = ?2")?;
    let mut saved = Vec::with_capacity(executors.len());
    for executor in executors {
        let position = select.query_row((tenant, &**executor), |row| row.get(0));
        saved.push(position.optional()?);
    }
    Ok(saved)
}
