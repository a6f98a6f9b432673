//! Rows of the run ledger in the PostgreSQL table `ux_runs`.

use super::column::{
    self, Id, count, id, json, lineage, name_of, number, some_time, time, unreadable,
};
use super::statement::{Statement, Value};
use super::wake;
use crate::model::{BreadcrumbId, Event, Json, Timestamp};
use crate::store::row::{RunRow, Wait};
use crate::store::{ClaimId, Lease, Lineage, RunRef, RunState, Saved};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::sync::Arc;
use std::time::Duration;

/// A run's row in the ledger, with its serial number in the PostgreSQL table `ux_runs`.
#[derive(Clone, Debug)]
pub(super) struct StoredRun {
    /// Serial number of the run's row, or `None` if the row is not in the table yet.
    pub(super) serial: Option<i64>,
    pub(super) row: RunRow,
}

/// SQL of the columns of a run's row, in the order in which [`read`] expects them.
macro_rules! columns {
    () => {
        "r.serial, r.executor, r.trigger_id, r.trigger_version, r.state, r.epoch, r.attempts, r.abandoned, r.token,
         r.granted_at, r.enqueued_at, r.sequence, r.due, r.head, r.lease, r.line, r.event, r.correlation, r.hops, r.saved,
         r.woken_by, r.wake, r.suspended_at, r.written, r.reason, r.over, r.cause, r.claim, r.code,
         COALESCE(r.added_at, r.enqueued_at), r.has_expired"
    };
}
pub(super) use columns;

/// Number of columns that a query selects for the ledger row of a run. It is also the index of the first column after the run's
/// columns.
pub(super) const COLUMNS: usize = 31;

/// SQL query for all columns of the runs' ledger rows that a clause selects.
macro_rules! select {
    ($clause:literal) => {
        concat!(
            "SELECT ",
            $crate::store::postgres::row::columns!(),
            " ",
            $clause
        )
    };
}
pub(super) use select;

/// Executor ID, trigger ID and trigger version of a run, which identify the run.
pub(super) type RunIdentity = (Arc<str>, BreadcrumbId, u64);

/// Returns the identity of a run: executor ID, trigger ID and trigger version.
pub(super) fn identity(run: &RunRef) -> RunIdentity {
    (
        Arc::clone(&run.executor),
        run.trigger_id,
        run.trigger_version,
    )
}

/// An executor ID, and an ordering key of the executor's runs.
pub(super) type OrderingKey = (Arc<str>, Arc<str>);

/// Returns the executor and the ordering key of a run, or `None` if the run has no ordering key.
pub(super) fn ordering_key_of(run: &RunRef) -> Option<OrderingKey> {
    let ordering_key = run.order.as_deref()?;
    Some((Arc::clone(&run.executor), ordering_key.into()))
}

/// Identity of a run, and the ordering key that a job (store operation) gave for the run. The jobs of one transaction can refer to a run
/// with different keys, and the key decides whether a new row is the first of its ordering key.
pub(super) type RunLookupKey = (RunIdentity, Option<Arc<str>>);

/// Returns the identity of a run and its ordering key, by which a transaction finds the rows that it read for the run.
pub(super) fn lookup_key(run: &RunRef) -> RunLookupKey {
    (identity(run), run.order.clone())
}

fn column_values<R, T>(rows: &[R], of: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

/// Adds the insertion of new runs to an SQL statement. Rows that another transaction has added first remain unchanged if `skips_known` is
/// `true`, and abort the transaction otherwise.
pub(super) fn insert(statement: &mut Statement, rows: &[&StoredRun], skips_known: bool) {
    if rows.is_empty() {
        return;
    }
    statement
        .push(if skips_known { ", added" } else { ", granted" })
        .push(
            " AS (INSERT INTO ux_runs (tenant, executor, trigger_id, trigger_version, line, event, added_at, state, epoch,
             attempts, abandoned, token, granted_at, enqueued_at, sequence, due, head, lease, correlation, hops, saved,
             woken_by, wake, suspended_at, written, reason, over, cause, claim, code, has_expired) SELECT t.id, u.executor, u.trigger_id,
             u.trigger_version, u.line, u.event, u.added_at, ",
        )
        .push(CHANGING)
        .push(" FROM t CROSS JOIN ");
    let run = |of: &dyn Fn(&RunRef) -> String| column_values(rows, |stored| of(&stored.row.run));
    let mut columns: Vec<Value> = vec![
        run(&|run| name_of(&run.executor)).into(),
        column_values(rows, |stored| Id::from(stored.row.run.trigger_id)).into(),
        column_values(rows, |stored| stored.row.run.trigger_version.cast_signed()).into(),
        column_values(rows, |stored| stored.row.run.order.as_deref().map(name_of)).into(),
        column_values(rows, |stored| {
            let event = stored.row.run.event.as_deref();
            event.and_then(|event| serde_json::to_string(event).ok())
        })
        .into(),
        column_values(rows, |stored| stored.row.added_at.as_micros()).into(),
    ];
    columns.extend(changing(rows));
    statement.push_rows(rows.len(), columns, false);
    statement
        .push(" AS u (executor, trigger_id, trigger_version, line, event, added_at, ")
        .push(NAMES)
        .push(")");
    if skips_known {
        statement.push(" ON CONFLICT DO NOTHING RETURNING 1");
    }
    statement.push(")");
}

/// Adds the update of changed runs to an SQL statement.
pub(super) fn update(statement: &mut Statement, rows: &[&StoredRun]) {
    if rows.is_empty() {
        return;
    }
    statement.push(", changed AS (UPDATE ux_runs AS r SET (");
    statement
        .push(NAMES)
        .push(") = ROW(")
        .push(CHANGING)
        .push(") FROM t CROSS JOIN ");
    let mut columns: Vec<Value> = vec![column_values(rows, |stored| stored.serial).into()];
    columns.extend(changing(rows));
    statement.push_rows(rows.len(), columns, false);
    statement
        .push(" AS u (serial, ")
        .push(NAMES)
        .push(") WHERE r.serial = u.serial)");
}

/// Saves the progress of a leased run (its JSON state) in the run's ledger row. Returns `false` if the lease is no longer the newest of
/// its row. The breadcrumb that woke the run remains.
pub(super) async fn save(
    connection: &mut PgConnection,
    tenant: i64,
    lease: &Lease,
    state: &Json,
) -> sqlx::Result<bool> {
    let save = sqlx::query(
        "UPDATE ux_runs SET saved = $7 WHERE tenant = $1 AND trigger_id = $2 AND trigger_version = $3 AND executor = $4
             AND token = $5 AND epoch = $6 AND state = $8",
    );
    let save = save
        .bind(tenant)
        .bind(Id::from(lease.run.trigger_id))
        .bind(lease.run.trigger_version.cast_signed())
        .bind(column::name(&lease.run.executor))
        .bind(lease.token.cast_signed())
        .bind(i64::from(lease.epoch))
        .bind(state.to_string())
        .bind(RunState::Running.number());
    Ok(save.execute(connection).await?.rows_affected() > 0)
}

/// Columns of a run's row that can change after its insertion.
const NAMES: &str =
    "state, epoch, attempts, abandoned, token, granted_at, enqueued_at, sequence, due, head, lease,
    correlation, hops, saved, woken_by, wake, suspended_at, written, reason, over, cause, claim, code, has_expired";

/// SQL expressions for the changeable columns of a run's row, from a table `u` with the new values. Times and sequence numbers that are
/// [provisional](super::tenant::with_provisional_values) are added to the values of the table `t`.
const CHANGING: &str = "u.state, u.epoch, u.attempts, u.abandoned, u.token, u.granted_at, u.enqueued_at,
    u.sequence + CASE WHEN u.sequence & (1::bigint << 61) <> 0 THEN t.sequence - (1::bigint << 61) ELSE 0 END,
    u.due, u.head, u.lease, u.correlation, u.hops, u.saved, u.woken_by, u.wake,
    u.suspended_at + CASE WHEN u.suspended_at & (1::bigint << 60) <> 0 THEN t.base - (1::bigint << 60) ELSE 0 END,
    u.written::uuid[], u.reason,
    u.over + CASE WHEN u.over & (1::bigint << 61) <> 0 THEN t.sequence - (1::bigint << 61) ELSE 0 END,
    u.cause, u.claim, u.code, u.has_expired";

/// Returns the values of the changeable columns of runs' rows, one parameter for each column.
fn changing(rows: &[&StoredRun]) -> Vec<Value> {
    fn all<'k, T>(rows: &[&'k StoredRun], of: impl Fn(&'k RunRow) -> T) -> Vec<T> {
        rows.iter().map(|stored| of(&stored.row)).collect()
    }
    fn lineage(row: &RunRow) -> Option<&Lineage> {
        row.lineage.as_ref()
    }
    vec![
        all(rows, |row| row.state.number()).into(),
        all(rows, |row| i64::from(row.epoch)).into(),
        all(rows, |row| i64::from(row.attempts)).into(),
        all(rows, |row| i64::from(row.abandoned)).into(),
        all(rows, |row| row.token.cast_signed()).into(),
        all(rows, |row| row.granted_at.as_micros()).into(),
        all(rows, |row| row.since.as_micros()).into(),
        all(rows, |row| row.sequence.cast_signed()).into(),
        all(rows, |row| row.due.map(Timestamp::as_micros)).into(),
        all(rows, |row| row.head).into(),
        all(rows, |row| micros(row.run.lease)).into(),
        all(rows, |row| {
            lineage(row).map(|of| name_of(&of.correlation_id))
        })
        .into(),
        all(rows, |row| lineage(row).map(|of| i64::from(of.hops))).into(),
        all(rows, |row| {
            row.saved.as_ref().map(|saved| saved.state.to_string())
        })
        .into(),
        all(rows, |row| {
            let with = row.saved.as_ref().and_then(|saved| saved.with);
            with.map(Id::from)
        })
        .into(),
        all(rows, |row| {
            row.wait.as_ref().map(|wait| wake::to_text(&wait.wake))
        })
        .into(),
        all(rows, |row| {
            row.wait.as_ref().map(|wait| wait.since.as_micros())
        })
        .into(),
        all(rows, |row| ids(&row.written)).into(),
        all(rows, |row| row.reason.as_deref().map(name_of)).into(),
        all(rows, |row| row.over.map(u64::cast_signed)).into(),
        all(rows, |row| row.cause.as_deref().map(name_of)).into(),
        all(rows, |row| row.claim.map(Id::from)).into(),
        all(rows, |row| row.code.as_deref().map(name_of)).into(),
        all(rows, |row| row.has_expired).into(),
    ]
}

/// Formats breadcrumb IDs as an array literal of PostgreSQL.
fn ids(ids: &[BreadcrumbId]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("{{{}}}", ids.join(","))
}

pub(super) fn read(row: &PgRow) -> sqlx::Result<StoredRun> {
    let due = some_time(row, 12)?;
    let written: Vec<Id> = row.try_get(23)?;
    let reason: Option<String> = row.try_get(24)?;
    let over: Option<i64> = row.try_get(25)?;
    let cause: Option<String> = row.try_get(26)?;
    let claim: Option<Id> = row.try_get(27)?;
    let code: Option<String> = row.try_get(28)?;
    let ledger_row = RunRow {
        run: run(row)?,
        state: RunState::of_number(row.try_get(4)?)
            .ok_or_else(|| unreadable(4, "unknown run state"))?,
        epoch: count(row, 5)?,
        attempts: count(row, 6)?,
        abandoned: count(row, 7)?,
        has_expired: row.try_get(30)?,
        token: number(row, 8)?,
        claim: claim.map(ClaimId::from),
        granted_at: time(row, 9)?,
        since: time(row, 10)?,
        sequence: number(row, 11)?,
        head: row.try_get(13)?,
        due,
        lineage: lineage(row, 17)?,
        saved: saved(row)?,
        wait: wait(row, due)?,
        written: written.into_iter().map(BreadcrumbId::from).collect(),
        reason: reason.map(column::of_name),
        over: over.map(i64::cast_unsigned),
        cause: cause.map(column::of_name),
        code: code.map(column::of_name),
        added_at: time(row, 29)?,
    };
    Ok(StoredRun {
        serial: row.try_get(0)?,
        row: ledger_row,
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

/// Reads the condition for which a suspended run waits, and the time of its suspension, from the run's row. The row is due when
/// the wait ends at the latest.
fn wait(row: &PgRow, due: Option<Timestamp>) -> sqlx::Result<Option<Wait>> {
    let text: Option<String> = row.try_get(21)?;
    let (Some(text), Some(since)) = (text, some_time(row, 22)?) else {
        return Ok(None);
    };
    let wake = wake::from_text(&text, due).map_err(|error| unreadable(21, error))?;
    Ok(Some(Wait { wake, since }))
}

/// Converts a duration to microseconds, clamped so that its sum with any time cannot overflow.
pub(super) fn micros(length: Duration) -> i64 {
    /// Maximum duration in microseconds: a quarter of the largest 64-bit signed integer.
    const MOST: i64 = i64::MAX / 4;
    i64::try_from(length.as_micros()).map_or(MOST, |micros| micros.min(MOST))
}
