//! The rows of the ledger in their table.

use super::changes::Statement;
use super::column::{
    self, Id, count, id, json, lineage, name_of, number, some_time, time, unreadable,
};
use super::parked::{self, Name};
use super::writing::{Known, Writing};
use super::{table, wake};
use crate::model::{BreadcrumbId, Event, Json, Timestamp};
use crate::store::row::{Row, Wait};
use crate::store::{Lease, Lineage, RunRef, RunState, Saved};
use sqlx::postgres::PgRow;
use sqlx::query_builder::Separated;
use sqlx::{PgConnection, Postgres, Row as _};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A row of the ledger, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// None if it is not in the table yet.
    pub(super) serial: Option<i64>,
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

/// What is known of the runs with these names, lines and places. What is limited is looked up for each of them: a plan that
/// was made before the server knew how large the tables are would read all of the tenant instead.
macro_rules! known {
    ($lock:literal) => {
        concat!(
            "SELECT r.*, u.place, b.id IS NOT NULL, b.writer, b.correlation, b.hops,
                 coalesce(r.line, u.line) IS NULL OR (SELECT o.serial FROM ux_runs AS o
                     WHERE o.tenant = $1 AND o.executor = u.executor AND o.line = coalesce(r.line, u.line)
                         AND o.line IS NOT NULL AND o.over IS NULL LIMIT 1) IS NULL
             FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::text[]) WITH ORDINALITY
                 AS u (trigger_id, trigger_version, executor, line, place)
             LEFT JOIN LATERAL (",
            select!(
                "FROM ux_runs AS r WHERE r.tenant = $1 AND r.trigger_id = u.trigger_id
                     AND r.trigger_version = u.trigger_version AND r.executor = u.executor "
            ),
            $lock,
            ") AS r ON TRUE
             LEFT JOIN LATERAL (SELECT b.id, b.writer, b.correlation, b.hops FROM ux_breadcrumbs AS b
                 WHERE b.tenant = $1 AND b.id = u.trigger_id AND b.version = u.trigger_version LIMIT 1) AS b ON TRUE"
        )
    };
}

/// What is known of a run, to be read only.
pub(super) async fn find(
    connection: &mut PgConnection,
    tenant: i64,
    run: &RunRef,
) -> sqlx::Result<Option<Known>> {
    let runs = vec![run.clone()];
    let found = find_with(known!(""), connection, tenant, runs).await?;
    Ok(found.into_values().next())
}

/// What is known of runs, whose rows nobody else changes until the transaction ends.
pub(super) async fn lock(
    connection: &mut PgConnection,
    tenant: i64,
    runs: Vec<RunRef>,
) -> sqlx::Result<HashMap<Name, Known>> {
    find_with(known!("FOR UPDATE"), connection, tenant, runs).await
}

async fn find_with(
    sql: &'static str,
    connection: &mut PgConnection,
    tenant: i64,
    mut runs: Vec<RunRef>,
) -> sqlx::Result<HashMap<Name, Known>> {
    // All who lock more than one row do so in this order, so that none waits for another that waits for it.
    runs.sort_by_cached_key(parked::name);
    let all = sqlx::query(sql)
        .bind(tenant)
        .bind(of_all(&runs, |run| Id::from(run.trigger_id)))
        .bind(of_all(&runs, |run| run.trigger_version.cast_signed()))
        .bind(of_all(&runs, |run| name_of(&run.executor)))
        .bind(of_all(&runs, |run| run.order.as_deref().map(name_of)));
    let mut known = HashMap::with_capacity(runs.len());
    for found in all.fetch_all(connection).await? {
        let place = usize::try_from(found.try_get::<i64, _>(26)? - 1).unwrap_or_default();
        let Some(run) = runs.get(place) else { continue };
        let is_there = found.try_get::<Option<i64>, _>(0)?.is_some();
        let one = Known {
            kept: is_there.then(|| read(&found)).transpose()?,
            origin: table::origin(&found, 27, run)?,
            is_alone: found.try_get(31)?,
        };
        known.insert(parked::name(run), one);
    }
    Ok(known)
}

fn of_all<R, T>(rows: &[R], of: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

/// Adds to a statement that rows are new.
pub(super) fn insert(statement: &mut Statement, tenant: i64, rows: &[&Kept]) {
    if rows.is_empty() {
        return;
    }
    statement.push(
        ", added AS (INSERT INTO ux_runs (tenant, executor, trigger_id, trigger_version, line, event, state, epoch,
             attempts, abandoned, token, granted_at, enqueued_at, sequence, due, head, lease, correlation, hops, saved,
             woken_by, wake, suspended_at, written, reason, over) SELECT ",
    );
    statement.push_bind(tenant);
    statement.push("::bigint, u.executor, u.trigger_id, u.trigger_version, u.line, u.event, ");
    statement.push(CHANGING);
    statement.push(" FROM unnest(");
    let run = |of: &dyn Fn(&RunRef) -> String| of_all(rows, |kept| of(&kept.row.run));
    let mut columns = statement.separated(", ");
    columns
        .push_bind(run(&|run| name_of(&run.executor)))
        .push_bind(of_all(rows, |kept| Id::from(kept.row.run.trigger_id)))
        .push_bind(of_all(rows, |kept| {
            kept.row.run.trigger_version.cast_signed()
        }))
        .push_bind(of_all(rows, |kept| {
            kept.row.run.order.as_deref().map(name_of)
        }))
        .push_bind(of_all(rows, |kept| {
            let event = kept.row.run.event.as_deref();
            event.and_then(|event| serde_json::to_string(event).ok())
        }));
    push_changing(&mut columns, rows);
    statement.push(") AS u (executor, trigger_id, trigger_version, line, event, ");
    statement.push(NAMES).push("))");
}

/// Adds to a statement what can change of rows that are there.
pub(super) fn update(statement: &mut Statement, rows: &[&Kept]) {
    if rows.is_empty() {
        return;
    }
    statement.push(", changed AS (UPDATE ux_runs AS r SET (");
    statement
        .push(NAMES)
        .push(") = ROW(")
        .push(CHANGING)
        .push(") FROM unnest(");
    let mut columns = statement.separated(", ");
    columns.push_bind(of_all(rows, |kept| kept.serial));
    push_changing(&mut columns, rows);
    statement
        .push(") AS u (serial, ")
        .push(NAMES)
        .push(") WHERE r.serial = u.serial)");
}

/// Keeps the progress of the run of a lease, and says whether that is still the newest of its row. With which breadcrumb
/// it was woken stays.
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
        .bind(number_of(RunState::Running));
    Ok(save.execute(connection).await?.rows_affected() > 0)
}

/// The columns that can change.
const NAMES: &str =
    "state, epoch, attempts, abandoned, token, granted_at, enqueued_at, sequence, due, head, lease,
    correlation, hops, saved, woken_by, wake, suspended_at, written, reason, over";

/// The same of a table `u`, as their types.
const CHANGING: &str = "u.state, u.epoch, u.attempts, u.abandoned, u.token, u.granted_at, u.enqueued_at, u.sequence,
    u.due, u.head, u.lease, u.correlation, u.hops, u.saved, u.woken_by, u.wake, u.suspended_at, u.written::uuid[],
    u.reason, u.over";

fn push_changing(columns: &mut Separated<'_, Postgres, &'static str>, rows: &[&Kept]) {
    fn all<'k, T>(rows: &[&'k Kept], of: impl Fn(&'k Row) -> T) -> Vec<T> {
        rows.iter().map(|kept| of(&kept.row)).collect()
    }
    fn lineage(row: &Row) -> Option<&Lineage> {
        row.lineage.as_ref()
    }
    columns
        .push_bind(all(rows, |row| number_of(row.state)))
        .push_bind(all(rows, |row| i64::from(row.epoch)))
        .push_bind(all(rows, |row| i64::from(row.attempts)))
        .push_bind(all(rows, |row| i64::from(row.abandoned)))
        .push_bind(all(rows, |row| row.token.cast_signed()))
        .push_bind(all(rows, |row| row.granted_at.as_micros()))
        .push_bind(all(rows, |row| row.enqueued_at.as_micros()))
        .push_bind(all(rows, |row| row.sequence.cast_signed()))
        .push_bind(all(rows, |row| row.due.map(Timestamp::as_micros)))
        .push_bind(of_all(rows, |kept| kept.head))
        .push_bind(all(rows, |row| micros(row.run.lease)))
        .push_bind(all(rows, |row| {
            lineage(row).map(|of| name_of(&of.correlation_id))
        }))
        .push_bind(all(rows, |row| lineage(row).map(|of| i64::from(of.hops))))
        .push_bind(all(rows, |row| {
            row.saved.as_ref().map(|saved| saved.state.to_string())
        }))
        .push_bind(all(rows, |row| {
            let with = row.saved.as_ref().and_then(|saved| saved.with);
            with.map(Id::from)
        }))
        .push_bind(all(rows, |row| {
            row.wait.as_ref().map(|wait| wake::to_text(&wait.wake))
        }))
        .push_bind(all(rows, |row| {
            row.wait.as_ref().map(|wait| wait.since.as_micros())
        }))
        .push_bind(all(rows, |row| ids(&row.written)))
        .push_bind(all(rows, |row| row.reason.as_deref().map(name_of)))
        .push_bind(all(rows, |row| row.over.map(u64::cast_signed)));
}

/// Ids as PostgreSQL writes an array of them.
fn ids(ids: &[BreadcrumbId]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("{{{}}}", ids.join(","))
}

/// Writes back what a claim changes, of several rows in one statement.
pub(super) async fn update_granted(writing: &mut Writing<'_>, rows: &[Kept]) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    fn all<T>(rows: &[Kept], of: impl Fn(&Row) -> T) -> Vec<T> {
        of_all(rows, |kept| of(&kept.row))
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
        .bind(of_all(rows, |kept| kept.serial))
        .bind(number_of(RunState::Running))
        .bind(all(rows, |row| i64::from(row.attempts)))
        .bind(all(rows, |row| i64::from(row.abandoned)))
        .bind(all(rows, |row| row.token.cast_signed()))
        .bind(all(rows, |row| row.granted_at.as_micros()))
        .bind(all(rows, |row| row.enqueued_at.as_micros()))
        .bind(all(rows, |row| row.due.map(Timestamp::as_micros)))
        .bind(all(rows, |row| micros(row.run.lease)));
    update.execute(writing.tells()).await.map(drop)
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
pub(super) fn micros(length: Duration) -> i64 {
    /// No time is later than this from now.
    const MOST: i64 = i64::MAX / 4;
    i64::try_from(length.as_micros()).map_or(MOST, |micros| micros.min(MOST))
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
