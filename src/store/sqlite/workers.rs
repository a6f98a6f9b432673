//! Records of workers in SQLite.

use super::error::{Fault, unreadable};
use super::tenant::TenantTransaction;
use crate::model::{Timestamp, parse_as};
use crate::store::{Worker, WorkerRecord};
use rusqlite::Connection;
use rusqlite::types::Type;

/// Stores the record of a worker, and deletes records that are too old or exceed the maximum number ([`Worker::MOST`]).
pub(super) fn record(
    transaction: &TenantTransaction<'_>,
    worker: &WorkerRecord,
) -> Result<(), Fault> {
    let text = serde_json::to_string(worker).map_err(|error| unreadable(4, Type::Text, error))?;
    let (tenant, now) = (transaction.tenant.id, transaction.now);
    transaction
        .sql(
            "INSERT INTO ux_workers (tenant, id, started_at, seen_at, record) VALUES (?1, ?2, ?3, ?3, ?4)
             ON CONFLICT (tenant, id) DO UPDATE SET seen_at = excluded.seen_at, record = excluded.record",
        )?
        .execute((tenant, &*worker.id, now.as_micros(), text))?;
    let retention = i64::try_from(Worker::KEPT.as_micros()).unwrap_or(i64::MAX);
    let most = i64::try_from(Worker::MOST).unwrap_or(i64::MAX);
    transaction
        .sql(
            "DELETE FROM ux_workers WHERE tenant = ?1 AND (?4 AND seen_at < ?2 OR id IN
                 (SELECT id FROM ux_workers WHERE tenant = ?1 ORDER BY seen_at DESC, id DESC LIMIT -1 OFFSET ?3))",
        )?
        .execute((
            tenant,
            now.as_micros().saturating_sub(retention),
            most,
            transaction.is_clock_steady,
        ))?;
    Ok(())
}

/// Returns all workers of a tenant, the most recently stored record first.
pub(super) fn all(
    connection: &Connection,
    tenant: i64,
    now: Timestamp,
) -> Result<Vec<Worker>, Fault> {
    let mut all = connection.prepare_cached(
        "SELECT record, started_at, seen_at FROM ux_workers WHERE tenant = ?1 ORDER BY seen_at DESC, id DESC",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let text: String = row.get(0)?;
        let record = parse_as(text.as_bytes()).map_err(|error| unreadable(0, Type::Text, error))?;
        let time = |column| row.get(column).map(Timestamp::from_micros);
        Ok(Worker::new(record, time(1)?, time(2)?, now))
    };
    let workers = all.query_map([tenant], read)?;
    Ok(workers.collect::<rusqlite::Result<_>>()?)
}
