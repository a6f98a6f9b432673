//! How due runs are leased: by one statement that commits by itself, since this is done for every run.
//!
//! So what [`Row::grant`](crate::store::row::Row::grant) does to a row is said here once more, in SQL.

use super::column::{self, Id};
use super::prepared::{self, PLANNED_ONCE};
use super::row::{self, Kept, columns, select};
use super::tenant::clock;
use crate::bugs::planted;
use crate::error::Chain;
use crate::store::RunState;
use crate::store::durable::tenant::Time;
use crate::store::row::Row;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::sync::Arc;
use uuid::Uuid;

/// What is asked for.
pub(super) struct Asked {
    /// Executors and how many runs of each, in the order in which they take turns.
    pub(super) executors: Vec<(Arc<str>, usize)>,
    /// Of all of them together.
    pub(super) most: usize,
    /// Marks what is leased, so that it is found again if the answer is lost.
    pub(super) claim: Uuid,
}

impl Asked {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.executors.iter().map(|(executor, _)| &**executor)
    }
}

/// Prepares what [`due`] asks for: who has been due for the longest time first, and nobody whom another transaction is about
/// to change. The clock is asked once, since an index is not asked with what changes from row to row.
pub(super) fn statement() -> String {
    let clock = clock!();
    let columns = columns!();
    let (running, suspended) = (
        row::number_of(RunState::Running),
        row::number_of(RunState::Suspended),
    );
    format!(
        "PREPARE ux_lease (bigint, bigint, bigint, text[], bigint[], bigint, bigint, uuid) AS
         WITH clock AS MATERIALIZED (SELECT {clock} AS now),
         taken AS MATERIALIZED (SELECT free.serial, free.turn, asked.place FROM unnest($4, $5) WITH ORDINALITY AS asked (executor, most, place)
             CROSS JOIN LATERAL (SELECT due.serial, row_number() OVER () AS turn FROM (SELECT r.serial FROM ux_runs AS r
                 WHERE r.tenant = $1 AND r.executor = asked.executor AND r.due <= (SELECT now FROM clock) AND r.head
                     AND r.due IS NOT NULL
                 ORDER BY r.due, r.sequence LIMIT asked.most FOR UPDATE SKIP LOCKED) AS due) AS free
             ORDER BY free.turn, asked.place LIMIT $6)
         UPDATE ux_runs AS r SET state = {running}, attempts = r.attempts + $7,
             abandoned = (r.abandoned + CASE WHEN r.state = {running} THEN 1 ELSE 0 END) * $7, token = r.token + 1,
             granted_at = clock.now, due = clock.now + r.lease,
             enqueued_at = CASE WHEN r.state = {suspended} OR r.granted_at = 0 THEN clock.now ELSE r.enqueued_at END,
             wake = NULL, suspended_at = NULL, reason = NULL, claim = $8
         FROM taken CROSS JOIN clock WHERE r.serial = taken.serial RETURNING {columns}, taken.turn, taken.place"
    )
}

/// Leases rows that are due, one of each executor in turn. Returns them in this order, as they are from then on.
pub(super) async fn due(
    connection: &mut PgConnection,
    tenant: i64,
    time: &Time,
    asked: &Asked,
) -> sqlx::Result<Vec<Row>> {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let counts = i64::from(!planted("late-count"));
    let message = format!(
        "{PLANNED_ONCE}; EXECUTE ux_lease ({tenant}, {}, {}, {}, {}, {counts}, {})",
        prepared::time(time),
        prepared::names(asked.names()),
        prepared::numbers(asked.executors.iter().map(|(_, free)| count(*free))),
        count(asked.most),
        prepared::id(asked.claim)
    );
    let leased = sqlx::raw_sql(AssertSqlSafe(message));
    let leased = leased.fetch_all(connection).await?;
    let mut turns = Vec::with_capacity(leased.len());
    for row in leased {
        let turn: (i64, i64) = (row.try_get(row::COLUMNS)?, row.try_get(row::COLUMNS + 1)?);
        turns.push((turn, row));
    }
    turns.sort_by_key(|(turn, _)| *turn);
    let rows = turns.iter().map(|(_, row)| row::read(row));
    Ok(rows.filter_map(readable).map(|kept| kept.row).collect())
}

/// What was leased by a claim whose answer was lost, as far as that is not over.
pub(super) async fn again(
    connection: &mut PgConnection,
    tenant: i64,
    time: &Time,
    asked: &Asked,
) -> sqlx::Result<Vec<Row>> {
    let leased = sqlx::query(concat!(
        select!(
            "FROM ux_runs AS r WHERE r.tenant = $1 AND r.executor = ANY($4) AND r.head AND r.due IS NOT NULL
                 AND r.state = $5 AND r.claim = $6 AND r.due > "
        ),
        clock!()
    ));
    let leased = leased
        .bind(tenant)
        .bind(time.held())
        .bind(time.shift())
        .bind(column::names(asked.names()))
        .bind(row::number_of(RunState::Running))
        .bind(Id::from(asked.claim));
    let leased = leased.fetch_all(connection).await?;
    let rows = leased.iter().map(row::read);
    Ok(rows.filter_map(readable).map(|kept| kept.row).collect())
}

/// A row that can be read. One that cannot be read keeps no other from its work: its lease expires, until it has no attempts left.
pub(super) fn readable(kept: sqlx::Result<Kept>) -> Option<Kept> {
    kept.inspect_err(
        |error| tracing::error!(error = %Chain(error), "a row of the ledger cannot be read"),
    )
    .ok()
}
