//! The rows of the ledger in their table.

use super::column::{self, Id, count, id, json, lineage, number, some_time, time, unreadable};
use super::tenant::Writing;
use super::wake;
use crate::model::{BreadcrumbId, Event, Json, Timestamp};
use crate::store::row::{Row, Wait};
use crate::store::{RunRef, RunState, Saved};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::sync::Arc;
use std::time::Duration;

/// A row of the ledger, and where it is.
pub(super) struct Kept {
    pub(super) serial: i64,
    /// Whether no other run stands before it in its line.
    pub(super) head: bool,
    pub(super) row: Row,
}

/// The columns of a row, in the order in which [`read`] wants them.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT r.serial, r.executor, r.trigger_id, r.trigger_version, r.state, r.epoch, r.attempts, r.abandoned,
                 r.token, r.granted_at, r.enqueued_at, r.sequence, r.due, r.head, r.lease, r.line, r.event,
                 r.correlation, r.hops, r.saved, r.woken_by, r.wake, r.suspended_at, r.written, r.reason, r.over ",
            $rest
        )
    };
}
pub(super) use select;

const BY_NAME: &str = select!(
    "FROM ux_runs AS r
     WHERE r.tenant = $1 AND r.trigger_id = $2 AND r.trigger_version = $3 AND r.executor = $4"
);

const BY_NAME_LOCKED: &str = select!(
    "FROM ux_runs AS r
     WHERE r.tenant = $1 AND r.trigger_id = $2 AND r.trigger_version = $3 AND r.executor = $4 FOR UPDATE"
);

/// The row of a run, to be read only.
pub(super) async fn find(
    connection: &mut PgConnection,
    tenant: i64,
    run: &RunRef,
) -> sqlx::Result<Option<Kept>> {
    find_with(BY_NAME, connection, tenant, run).await
}

/// The row of a run, which nobody else changes until the transaction ends.
pub(super) async fn lock(writing: &mut Writing<'_>, run: &RunRef) -> sqlx::Result<Option<Kept>> {
    find_with(BY_NAME_LOCKED, writing.connection, writing.tenant.id, run).await
}

async fn find_with(
    sql: &'static str,
    connection: &mut PgConnection,
    tenant: i64,
    run: &RunRef,
) -> sqlx::Result<Option<Kept>> {
    let found = sqlx::query(sql)
        .bind(tenant)
        .bind(Id::from(run.trigger_id))
        .bind(run.trigger_version.cast_signed())
        .bind(column::name(&run.executor));
    found
        .fetch_optional(connection)
        .await?
        .map(|row| read(&row))
        .transpose()
}

/// Adds a row, and says where it is.
pub(super) async fn insert(writing: &mut Writing<'_>, row: &Row, head: bool) -> sqlx::Result<i64> {
    let event = row.run.event.as_deref();
    let insert = sqlx::query_scalar(
        "INSERT INTO ux_runs (tenant, executor, trigger_id, trigger_version, state, epoch, attempts, abandoned, token,
             granted_at, enqueued_at, sequence, due, head, lease, line, event, correlation, hops, written)
         VALUES ($1, $2, $3, $4, $5, 0, 0, 0, 0, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, '{}') RETURNING serial",
    );
    let insert = insert
        .bind(writing.tenant.id)
        .bind(column::name(&row.run.executor))
        .bind(Id::from(row.run.trigger_id))
        .bind(row.run.trigger_version.cast_signed())
        .bind(number_of(row.state))
        .bind(row.granted_at.as_micros())
        .bind(row.enqueued_at.as_micros())
        .bind(row.sequence.cast_signed())
        .bind(row.due.map(Timestamp::as_micros))
        .bind(head)
        .bind(micros(row.run.lease))
        .bind(row.run.order.as_deref().map(column::name))
        .bind(event.and_then(|event| serde_json::to_string(event).ok()))
        .bind(
            row.lineage
                .as_ref()
                .map(|lineage| column::name(&lineage.correlation_id)),
        )
        .bind(row.lineage.as_ref().map(|lineage| i64::from(lineage.hops)));
    insert.fetch_one(&mut *writing.connection).await
}

/// Writes back what can change of a row.
pub(super) async fn update(writing: &mut Writing<'_>, kept: &Kept) -> sqlx::Result<()> {
    let row = &kept.row;
    let saved = row.saved.as_ref();
    let wait = row.wait.as_ref();
    let written: Vec<Id> = row.written.iter().copied().map(Id::from).collect();
    let update = sqlx::query(
        "UPDATE ux_runs SET state = $2, epoch = $3, attempts = $4, abandoned = $5, token = $6, granted_at = $7,
             enqueued_at = $8, sequence = $9, due = $10, head = $11, lease = $12, correlation = $13, hops = $14,
             saved = $15, woken_by = $16, wake = $17, suspended_at = $18, written = $19, reason = $20, over = $21
         WHERE serial = $1",
    );
    let update = update
        .bind(kept.serial)
        .bind(number_of(row.state))
        .bind(i64::from(row.epoch))
        .bind(i64::from(row.attempts))
        .bind(i64::from(row.abandoned))
        .bind(row.token.cast_signed())
        .bind(row.granted_at.as_micros())
        .bind(row.enqueued_at.as_micros())
        .bind(row.sequence.cast_signed())
        .bind(row.due.map(Timestamp::as_micros))
        .bind(kept.head)
        .bind(micros(row.run.lease))
        .bind(
            row.lineage
                .as_ref()
                .map(|lineage| column::name(&lineage.correlation_id)),
        )
        .bind(row.lineage.as_ref().map(|lineage| i64::from(lineage.hops)))
        .bind(saved.map(|saved| saved.state.to_string()))
        .bind(saved.and_then(|saved| saved.with).map(Id::from))
        .bind(wait.map(|wait| wake::to_text(&wait.wake)))
        .bind(wait.map(|wait| wait.since.as_micros()))
        .bind(written)
        .bind(row.reason.as_deref().map(column::name))
        .bind(row.over.map(u64::cast_signed));
    update.execute(&mut *writing.connection).await.map(drop)
}

/// Writes back what a claim changes, of several rows in one statement.
pub(super) async fn update_granted(writing: &mut Writing<'_>, rows: &[Kept]) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    fn all<T>(rows: &[Kept], of: impl Fn(&Row) -> T) -> Vec<T> {
        rows.iter().map(|kept| of(&kept.row)).collect()
    }
    let update = sqlx::query(
        "UPDATE ux_runs AS r SET state = $2, attempts = u.attempts, abandoned = u.abandoned, token = u.token,
             granted_at = u.granted_at, enqueued_at = u.enqueued_at, due = u.due, lease = u.lease, wake = NULL,
             suspended_at = NULL
         FROM unnest($1::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
             $9::bigint[]) AS u (serial, attempts, abandoned, token, granted_at, enqueued_at, due, lease)
         WHERE r.serial = u.serial",
    );
    let update = update
        .bind(rows.iter().map(|kept| kept.serial).collect::<Vec<i64>>())
        .bind(number_of(RunState::Running))
        .bind(all(rows, |row| i64::from(row.attempts)))
        .bind(all(rows, |row| i64::from(row.abandoned)))
        .bind(all(rows, |row| row.token.cast_signed()))
        .bind(all(rows, |row| row.granted_at.as_micros()))
        .bind(all(rows, |row| row.enqueued_at.as_micros()))
        .bind(all(rows, |row| row.due.map(Timestamp::as_micros)))
        .bind(all(rows, |row| micros(row.run.lease)));
    update.execute(&mut *writing.connection).await.map(drop)
}

pub(super) fn read(row: &PgRow) -> sqlx::Result<Kept> {
    let due = some_time(row, 12)?;
    let written: Vec<Id> = row.try_get(23)?;
    let reason: Option<String> = row.try_get(24)?;
    let over: Option<i64> = row.try_get(25)?;
    let kept = Row {
        run: run(row)?,
        state: state_of(row.try_get(4)?).ok_or_else(|| unreadable(4, "no state"))?,
        epoch: count(row, 5)?,
        attempts: count(row, 6)?,
        abandoned: count(row, 7)?,
        token: number(row, 8)?,
        parked_in: None,
        granted_at: time(row, 9)?,
        enqueued_at: time(row, 10)?,
        sequence: number(row, 11)?,
        due,
        lineage: lineage(row, 17)?,
        saved: saved(row)?,
        wait: wait(row, due)?,
        written: written.into_iter().map(BreadcrumbId::from).collect(),
        reason: reason.map(column::of_name),
        over: over.map(i64::cast_unsigned),
    };
    Ok(Kept {
        serial: row.try_get(0)?,
        head: row.try_get(13)?,
        row: kept,
    })
}

fn run(row: &PgRow) -> sqlx::Result<RunRef> {
    let event: Option<String> = row.try_get(16)?;
    let event = event
        .map(|text| serde_json::from_str::<Event>(&text))
        .transpose();
    let event = event.map_err(|error| unreadable(16, error))?;
    let executor = column::of_name(row.try_get(1)?);
    let order: Option<String> = row.try_get(15)?;
    let run = RunRef::new(executor, id(row, 2)?, number(row, 3)?)
        .lasting(Duration::from_micros(number(row, 14)?))
        .ordered_by(order.map(column::of_name));
    Ok(RunRef {
        event: event.map(Arc::new),
        ..run
    })
}

fn saved(row: &PgRow) -> sqlx::Result<Option<Saved>> {
    let Some(state) = row.try_get::<Option<String>, _>(19)? else {
        return Ok(None);
    };
    let with: Option<Id> = row.try_get(20)?;
    let state: Json = json(19, state)?;
    Ok(Some(Saved::new(state, with.map(Into::into))))
}

/// What a row waits for. When the wait ends at the latest is when the row is due.
fn wait(row: &PgRow, due: Option<Timestamp>) -> sqlx::Result<Option<Wait>> {
    let text: Option<String> = row.try_get(21)?;
    let (Some(text), Some(since)) = (text, some_time(row, 22)?) else {
        return Ok(None);
    };
    let wake = wake::of_text(&text, due).map_err(|error| unreadable(21, error))?;
    Ok(Some(Wait { wake, since }))
}

/// A length of time, at most as long as the clock is.
fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

pub(super) const fn number_of(state: RunState) -> i16 {
    match state {
        RunState::Ready => 0,
        RunState::Running => 1,
        RunState::Suspended => 2,
        RunState::Done => 3,
        RunState::Failed => 4,
        RunState::Skipped => 5,
        RunState::Superseded => 6,
    }
}

pub(super) fn state_of(number: i16) -> Option<RunState> {
    let all = [
        RunState::Ready,
        RunState::Running,
        RunState::Suspended,
        RunState::Done,
        RunState::Failed,
        RunState::Skipped,
        RunState::Superseded,
    ];
    all.into_iter().find(|state| number_of(*state) == number)
}
