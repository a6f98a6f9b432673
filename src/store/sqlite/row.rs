//! Rows of the run ledger in the SQLite table `ux_runs`.

use super::column::{blob, id, json, lineage, number, time};
use super::error::unreadable;
use super::tenant::TenantTransaction;
use super::wake;
use crate::model::{BreadcrumbId, Event, Json, Timestamp};
use crate::store::row::{RunRow, Wait};
use crate::store::{ClaimId, RunRef, RunState, Saved};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension};
use std::sync::Arc;
use std::time::Duration;

/// A run's row in the ledger, with its serial number in the SQLite table `ux_runs`.
pub(super) struct StoredRun {
    pub(super) serial: i64,
    pub(super) row: RunRow,
}

/// SQL that selects the columns of a run's row, in the order in which [`read`] expects them.
macro_rules! select {
    ($clause:literal) => {
        concat!(
            "SELECT serial, executor, trigger_id, trigger_version, state, epoch, attempts, abandoned, token, granted_at,
                 enqueued_at, sequence, due, head, lease, line, event, correlation, hops, saved, woken_by, wake,
                 suspended_at, written, reason, over, cause, claim, code,
                 COALESCE(added_at, enqueued_at), has_expired FROM ux_runs ",
            $clause
        )
    };
}
pub(super) use select;

pub(super) const BY_NAME: &str =
    select!("WHERE tenant = ?1 AND executor = ?2 AND trigger_id = ?3 AND trigger_version = ?4");

/// Returns the ledger row of a run.
pub(super) fn find(
    connection: &Connection,
    tenant: i64,
    run: &RunRef,
) -> rusqlite::Result<Option<StoredRun>> {
    let mut statement = connection.prepare_cached(BY_NAME)?;
    let name = (
        tenant,
        &*run.executor,
        blob(run.trigger_id),
        run.trigger_version.cast_signed(),
    );
    statement.query_row(name, read).optional()
}

pub(super) fn at(connection: &Connection, serial: i64) -> rusqlite::Result<Option<StoredRun>> {
    let mut statement = connection.prepare_cached(select!("WHERE serial = ?1"))?;
    statement.query_row([serial], read).optional()
}

/// Adds the ledger row of a new run.
pub(super) fn insert(transaction: &TenantTransaction<'_>, row: &RunRow) -> rusqlite::Result<()> {
    let event = row.run.event.as_deref();
    let mut insert = transaction.sql(
        "INSERT INTO ux_runs (tenant, executor, trigger_id, trigger_version, line, event, state, epoch, attempts, abandoned,
             token, granted_at, enqueued_at, sequence, due, head, lease, correlation, hops, written,
             added_at, reason, over, code)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, x'', ?20,
             ?21, ?22, ?23)",
    )?;
    insert.execute(rusqlite::params![
        transaction.tenant.id,
        &*row.run.executor,
        blob(row.run.trigger_id),
        row.run.trigger_version.cast_signed(),
        row.run.order.as_deref(),
        event.and_then(|event| serde_json::to_string(event).ok()),
        row.state.number(),
        row.epoch,
        row.attempts,
        row.abandoned,
        row.token.cast_signed(),
        row.granted_at.as_micros(),
        row.since.as_micros(),
        row.sequence.cast_signed(),
        row.due.map(Timestamp::as_micros),
        row.head,
        micros(row.run.lease),
        row.lineage.as_ref().map(|lineage| &*lineage.correlation_id),
        row.lineage.as_ref().map(|lineage| lineage.hops),
        row.added_at.as_micros(),
        row.reason,
        row.over.map(u64::cast_signed),
        row.code,
    ])?;
    Ok(())
}

/// Updates the columns of a run's ledger row that can change.
pub(super) fn update(
    transaction: &TenantTransaction<'_>,
    serial: i64,
    row: &RunRow,
) -> rusqlite::Result<()> {
    let (saved, wait) = (row.saved.as_ref(), row.wait.as_ref());
    let written: Vec<u8> = row.written.iter().flat_map(|id| blob(*id)).collect();
    let mut update = transaction.sql(
        "UPDATE ux_runs SET state = ?2, epoch = ?3, attempts = ?4, abandoned = ?5, token = ?6, granted_at = ?7,
             enqueued_at = ?8, sequence = ?9, due = ?10, head = ?11, lease = ?12, correlation = ?13, hops = ?14,
             saved = ?15, woken_by = ?16, wake = ?17, suspended_at = ?18, written = ?19, reason = ?20, over = ?21,
             cause = ?22, claim = ?23, code = ?24, has_expired = ?25
         WHERE serial = ?1",
    )?;
    update.execute(rusqlite::params![
        serial,
        row.state.number(),
        row.epoch,
        row.attempts,
        row.abandoned,
        row.token.cast_signed(),
        row.granted_at.as_micros(),
        row.since.as_micros(),
        row.sequence.cast_signed(),
        row.due.map(Timestamp::as_micros),
        row.head,
        micros(row.run.lease),
        row.lineage.as_ref().map(|lineage| &*lineage.correlation_id),
        row.lineage.as_ref().map(|lineage| lineage.hops),
        saved.map(|saved| saved.state.to_string()),
        saved.and_then(|saved| saved.with).map(blob),
        wait.map(|wait| wake::to_text(&wait.wake)),
        wait.map(|wait| wait.since.as_micros()),
        written,
        row.reason,
        row.over.map(u64::cast_signed),
        row.cause,
        row.claim.map(|id| *id.as_bytes()),
        row.code,
        row.has_expired,
    ])?;
    Ok(())
}

pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredRun> {
    let due = time(row, 12)?;
    let ledger_row = RunRow {
        run: run(row)?,
        state: RunState::of_number(row.get(4)?)
            .ok_or(rusqlite::Error::IntegralValueOutOfRange(4, 0))?,
        epoch: row.get(5)?,
        attempts: row.get(6)?,
        abandoned: row.get(7)?,
        has_expired: row.get(30)?,
        token: number(row, 8)?,
        claim: claim(row)?,
        granted_at: Timestamp::from_micros(row.get(9)?),
        since: Timestamp::from_micros(row.get(10)?),
        sequence: number(row, 11)?,
        head: row.get(13)?,
        due,
        lineage: lineage(row, 17)?,
        saved: saved(row)?,
        wait: wait(row, due)?,
        written: written(row)?,
        reason: row.get(24)?,
        over: row.get::<_, Option<i64>>(25)?.map(i64::cast_unsigned),
        cause: row.get(26)?,
        code: row.get(28)?,
        added_at: Timestamp::from_micros(row.get(29)?),
    };
    Ok(StoredRun {
        serial: row.get(0)?,
        row: ledger_row,
    })
}

fn run(row: &rusqlite::Row<'_>) -> rusqlite::Result<RunRef> {
    let event: Option<String> = row.get(16)?;
    let event = event
        .map(|text| serde_json::from_str::<Event>(&text))
        .transpose();
    let event = event.map_err(|error| unreadable(16, Type::Text, error))?;
    Ok(RunRef {
        executor: row.get(1)?,
        trigger_id: id(row, 2)?,
        trigger_version: number(row, 3)?,
        lease: Duration::from_micros(number(row, 14)?),
        event: event.map(Arc::new),
        order: row.get(15)?,
    })
}

fn claim(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<ClaimId>> {
    let id: Option<[u8; 16]> = row.get(27)?;
    Ok(id.map(ClaimId::from_bytes))
}

fn saved(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Saved>> {
    let Some(state) = row.get::<_, Option<String>>(19)? else {
        return Ok(None);
    };
    let with: Option<[u8; 16]> = row.get(20)?;
    let state: Json = json(19, state)?;
    Ok(Some(Saved::new(state, with.map(BreadcrumbId::from_bytes))))
}

/// Reads the condition for which a suspended run waits, and the time of its suspension, from the run's row. The row is due when
/// the wait ends at the latest.
fn wait(row: &rusqlite::Row<'_>, due: Option<Timestamp>) -> rusqlite::Result<Option<Wait>> {
    let (Some(text), Some(since)) = (row.get::<_, Option<String>>(21)?, time(row, 22)?) else {
        return Ok(None);
    };
    let wake = wake::from_text(&text, due).map_err(|error| unreadable(21, Type::Text, error))?;
    Ok(Some(Wait { wake, since }))
}

fn written(row: &rusqlite::Row<'_>) -> rusqlite::Result<Vec<BreadcrumbId>> {
    let bytes = row.get_ref(23)?.as_blob()?;
    let (ids, remainder) = bytes.as_chunks::<16>();
    if !remainder.is_empty() {
        return Err(unreadable(
            23,
            Type::Blob,
            "the value is not a list of breadcrumb IDs",
        ));
    }
    Ok(ids.iter().copied().map(BreadcrumbId::from_bytes).collect())
}

/// Returns a duration in microseconds, limited to the maximum of `i64`.
fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}
