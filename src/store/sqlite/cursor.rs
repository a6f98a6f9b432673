//! Positions of event consumers in SQLite, from which the consumers resume after a restart.

use super::NAME;
use super::error::Fault;
use super::opened::Opened;
use super::tenant::Writing;
use crate::store::StoreError;
use crate::store::durable::cursor::{Cursor, MOST, too_many};
use rusqlite::OptionalExtension;
use std::sync::Arc;

/// Returns the cursor of an event consumer at its stored position. Stores `begin` for a new consumer.
pub(super) async fn resume(
    opened: &Arc<Opened>,
    tenant: &Arc<str>,
    consumer: &Arc<str>,
    begin: u64,
) -> Result<Cursor, StoreError> {
    let name = (Arc::clone(tenant), Arc::clone(consumer));
    let resume = {
        let consumer = Arc::clone(consumer);
        move |writing: &mut Writing<'_>| position(writing, &consumer, begin)
    };
    let position = opened.write(tenant, resume).await?;
    let opened = Arc::clone(opened);
    Ok(Cursor::behind(position, move |settled| {
        let database = &opened.database;
        if database.acknowledged.note(name.clone(), settled) {
            database.store_acknowledged();
        }
    }))
}

fn position(writing: &mut Writing<'_>, consumer: &str, begin: u64) -> Result<u64, Fault> {
    let mut known =
        writing.sql("SELECT position FROM ux_consumers WHERE tenant = ?1 AND name = ?2")?;
    let known: Option<i64> = known
        .query_row((writing.tenant.id, consumer), |row| row.get(0))
        .optional()?;
    if let Some(known) = known {
        return Ok(known.cast_unsigned());
    }
    let mut count = writing.sql("SELECT count(*) FROM ux_consumers WHERE tenant = ?1")?;
    let count: i64 = count.query_row([writing.tenant.id], |row| row.get(0))?;
    if usize::try_from(count).unwrap_or(MOST) >= MOST {
        return Err(too_many(NAME).into());
    }
    writing
        .sql("INSERT INTO ux_consumers VALUES (?1, ?2, ?3)")?
        .execute((writing.tenant.id, consumer, begin.cast_signed()))?;
    Ok(begin)
}
