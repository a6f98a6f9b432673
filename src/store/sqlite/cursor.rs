//! SQLite records of the position up to which each event consumer has acknowledged a tenant's events. After a restart, a consumer
//! resumes after its position.

use super::NAME;
use super::error::Fault;
use super::opened::OpenedStore;
use super::tenant::TenantTransaction;
use crate::store::StoreError;
use crate::store::durable::cursor::{Cursor, MOST, too_many_consumers};
use rusqlite::OptionalExtension;
use std::sync::Arc;

/// Returns the cursor with which an event consumer resumes after its stored event position. Stores `begin` for a new consumer.
pub(super) async fn resume(
    opened: &Arc<OpenedStore>,
    tenant: &Arc<str>,
    consumer: &Arc<str>,
    begin: u64,
) -> Result<Cursor, StoreError> {
    let name = (Arc::clone(tenant), Arc::clone(consumer));
    let resume = {
        let consumer = Arc::clone(consumer);
        move |transaction: &mut TenantTransaction<'_>| position(transaction, &consumer, begin)
    };
    let position = opened.write(tenant, resume).await?;
    let opened = Arc::clone(opened);
    Ok(Cursor::resume_after(position, move |settled| {
        let database = &opened.database;
        if database.acknowledged.record(name.clone(), settled) {
            database.store_acknowledged();
        }
    }))
}

fn position(
    transaction: &mut TenantTransaction<'_>,
    consumer: &str,
    begin: u64,
) -> Result<u64, Fault> {
    let mut stored_position =
        transaction.sql("SELECT position FROM ux_consumers WHERE tenant = ?1 AND name = ?2")?;
    let stored_position: Option<i64> = stored_position
        .query_row((transaction.tenant.id, consumer), |row| row.get(0))
        .optional()?;
    if let Some(stored_position) = stored_position {
        return Ok(stored_position.cast_unsigned());
    }
    let mut count = transaction.sql("SELECT count(*) FROM ux_consumers WHERE tenant = ?1")?;
    let count: i64 = count.query_row([transaction.tenant.id], |row| row.get(0))?;
    if usize::try_from(count).unwrap_or(MOST) >= MOST {
        return Err(too_many_consumers(NAME).into());
    }
    transaction
        .sql("INSERT INTO ux_consumers VALUES (?1, ?2, ?3)")?
        .execute((transaction.tenant.id, consumer, begin.cast_signed()))?;
    Ok(begin)
}
