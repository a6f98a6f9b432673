//! Rows of events in the SQLite table `ux_events`.

use super::column::{blob, id, json_array, number, tags};
use super::error::Fault;
use super::tenant::TenantTransaction;
use crate::model::{Event, Json, Timestamp};
use crate::store::durable::events::{kind, kind_of};
use rusqlite::Row;

/// Adds an event at the tenant's next position. Positions count from 1.
pub(super) fn push(transaction: &mut TenantTransaction<'_>, event: &Event) -> Result<(), Fault> {
    transaction.tenant.position += 1;
    let mut insert =
        transaction.sql("INSERT INTO ux_events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    insert.execute((
        transaction.tenant.id,
        transaction.tenant.position,
        kind(event.kind),
        blob(event.breadcrumb_id),
        event.version.cast_signed(),
        event.updated_at.as_micros(),
        event.schema_name.as_deref(),
        json_array(&event.tags),
    ))?;
    Ok(())
}

/// SQL query for a tenant's events from a position on.
pub(super) const NEXT: &str = "
    SELECT e.position, e.kind, e.breadcrumb_id, e.version, e.updated_at, e.schema_name, e.tags, b.context
    FROM ux_events AS e LEFT JOIN ux_breadcrumbs AS b ON b.tenant = e.tenant AND b.id = e.breadcrumb_id
        AND b.version = e.version AND octet_length(b.context) <= ?4
    WHERE e.tenant = ?1 AND e.position >= ?2 ORDER BY e.position LIMIT ?3";

/// Reads an event and its position from a row of the table `ux_events`.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<(u64, Event)> {
    let context: Option<String> = row.get(7)?;
    let event = Event {
        kind: {
            let kind = row.get(1)?;
            kind_of(kind).ok_or(rusqlite::Error::IntegralValueOutOfRange(1, kind))?
        },
        breadcrumb_id: id(row, 2)?,
        version: number(row, 3)?,
        schema_name: row.get(5)?,
        tags: tags(row, 6)?,
        // An unreadable context is omitted, because the store's breadcrumb decides about a match.
        context: context.and_then(|text| Json::from_validated_text(text).ok()),
        updated_at: Timestamp::from_micros(row.get(4)?),
    };
    Ok((number(row, 0)?, event))
}
