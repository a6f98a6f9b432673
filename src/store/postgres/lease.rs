//! Leases of due runs: one statement that commits by itself, because each run needs it.
//!
//! So this statement repeats [`grant`](crate::store::rules::grant) in SQL.

use super::column::{self, Id};
use super::prepared;
use super::row::{self, Kept, columns, select};
use super::table;
use super::tenant::clock;
use crate::bugs::planted;
use crate::error::Chain;
use crate::model::Breadcrumb;
use crate::store::durable::tenant::Time;
use crate::store::row::Row;
use crate::store::{ClaimId, Claimed, ExecutorLimits, RunState};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::collections::HashMap;
use std::sync::Arc;

/// The runs that a claim requests.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Executors and the maximum number of runs of each, in the order in which they take turns.
    executors: Vec<(Arc<str>, usize)>,
    /// Maximum number of runs of all executors.
    most: usize,
    /// Marks the leases, so that they are found again if the answer is lost.
    pub(super) claim: ClaimId,
}

impl Asked {
    pub(super) fn new(n: usize, of: &[ExecutorLimits], id: ClaimId) -> Self {
        // An executor that is named more than once has the places of all its names.
        let mut executors: Vec<(Arc<str>, usize)> = Vec::with_capacity(of.len());
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(of.len());
        for limits in of.iter().filter(|limits| limits.free > 0) {
            let place = *places.entry(&limits.executor).or_insert(executors.len());
            match executors.get_mut(place) {
                Some((_, free)) => *free = free.saturating_add(limits.free).min(n),
                None => executors.push((Arc::clone(&limits.executor), limits.free.min(n))),
            }
        }
        Self {
            executors,
            most: n,
            claim: id,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.most == 0 || self.executors.is_empty()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.executors.iter().map(|(executor, _)| &**executor)
    }

    /// Returns the statement that claims the runs. A message with it starts with [`PLANNED_ONCE`](prepared::PLANNED_ONCE).
    pub(super) fn message(&self, tenant: i64, time: &Time) -> String {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let counts = i64::from(!planted("late-count"));
        format!(
            "EXECUTE ux_lease ({tenant}, {}, {}, {}, {}, {counts}, {})",
            prepared::time(time),
            prepared::names(self.names()),
            prepared::numbers(self.executors.iter().map(|(_, free)| count(*free))),
            count(self.most),
            prepared::id(self.claim)
        )
    }
}

/// The statement that each connection prepares: the runs that have been due for the longest time first, without those that another
/// transaction is about to change, and without the runs of paused executors: that condition is evaluated once for each executor. The clock is read once, because an index is not searched with a value that changes from row to
/// row. A trigger is returned with its run, unless it is large.
pub(super) fn statement() -> String {
    let clock = clock!();
    let columns = columns!();
    let trigger = table::columns!();
    let (running, suspended) = (RunState::Running.number(), RunState::Suspended.number());
    format!(
        "PREPARE ux_lease (bigint, bigint, bigint, text[], bigint[], bigint, bigint, uuid) AS
         WITH clock AS MATERIALIZED (SELECT {clock} AS now),
         taken AS MATERIALIZED (SELECT free.serial, free.trigger_id, free.turn, asked.place
             FROM unnest($4, $5) WITH ORDINALITY AS asked (executor, most, place)
             CROSS JOIN LATERAL (SELECT due.serial, due.trigger_id, row_number() OVER () AS turn
                 FROM (SELECT r.serial, r.trigger_id FROM ux_runs AS r
                     WHERE r.tenant = $1 AND r.executor = asked.executor AND r.due <= (SELECT now FROM clock) AND r.head
                         AND r.due IS NOT NULL AND NOT EXISTS (SELECT FROM ux_paused AS p
                             WHERE p.tenant = $1 AND p.executor = asked.executor)
                     ORDER BY r.due, r.sequence LIMIT asked.most FOR UPDATE SKIP LOCKED) AS due) AS free
             ORDER BY free.turn, asked.place LIMIT $6),
         found AS MATERIALIZED (SELECT taken.serial, taken.turn, taken.place, clock.now, b.*
             FROM taken CROSS JOIN clock LEFT JOIN LATERAL (SELECT {trigger} FROM ux_breadcrumbs AS b
                 WHERE b.tenant = $1 AND b.id = taken.trigger_id AND NOT b.deleted AND (b.ttl IS NULL OR b.ttl > clock.now)
                     AND octet_length(b.context) <= {MOST_AT_HAND} LIMIT 1) AS b ON TRUE)
         UPDATE ux_runs AS r SET state = {running}, attempts = r.attempts + $7,
             abandoned = (r.abandoned + CASE WHEN r.state = {running} THEN 1 ELSE 0 END) * $7, token = r.token + 1,
             has_expired = r.has_expired OR r.state = {running}, granted_at = b.now, due = b.now + r.lease,
             enqueued_at = CASE WHEN r.state = {suspended} OR r.granted_at = 0 THEN b.now ELSE r.enqueued_at END,
             wake = NULL, suspended_at = NULL, reason = NULL, claim = $8
         FROM found AS b WHERE r.serial = b.serial RETURNING {columns}, b.turn AS ux_turn, b.place, b.id IS NOT NULL, {trigger}"
    )
}

/// Maximum size of the context of a trigger that is returned with its run, in bytes. A claim has up to 64 triggers.
const MOST_AT_HAND: usize = 64 << 10;

/// A run that a claim leased.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    /// Its place among the runs of the claim.
    turn: (i64, i64),
    pub(super) row: Row,
    trigger: Option<Arc<Breadcrumb>>,
}

impl Leased {
    /// Reads a row of the statement. `None` if the row cannot be read.
    pub(super) fn read(found: &PgRow) -> Option<Self> {
        let row = readable(row::read(found))?.row;
        let turn = (found.try_get(row::COLUMNS), found.try_get(row::COLUMNS + 1));
        let has_trigger = found.try_get(row::COLUMNS + 2).unwrap_or(false);
        // A run whose trigger cannot be read here reads it again, and fails with a clear error.
        let trigger = has_trigger.then(|| table::read(found, row::COLUMNS + 3));
        Some(Self {
            turn: (turn.0.ok()?, turn.1.ok()?),
            row,
            trigger: trigger
                .and_then(Result::ok)
                .map(|found| Arc::new(found.breadcrumb)),
        })
    }

    /// Reports whether a row is one of the statement.
    pub(super) fn is_in(found: &PgRow) -> bool {
        found.try_get::<i64, _>("ux_turn").is_ok()
    }

    pub(super) fn claimed(&self) -> Claimed {
        Claimed {
            trigger: self.trigger.clone(),
            ..self.row.claimed()
        }
    }

    /// Sorts the runs of a claim by their places.
    pub(super) fn sort(leased: &mut [Self]) {
        leased.sort_by_key(|leased| leased.turn);
    }
}

/// Leases due runs, one of each executor in turn. Returns them in this order.
pub(super) async fn due(
    connection: &mut PgConnection,
    tenant: i64,
    time: &Time,
    asked: &Asked,
) -> sqlx::Result<Vec<Leased>> {
    let message = format!(
        "{}; {}",
        prepared::PLANNED_ONCE,
        asked.message(tenant, time)
    );
    let leased = sqlx::raw_sql(AssertSqlSafe(message));
    let leased = leased.fetch_all(connection).await?;
    let mut leased: Vec<Leased> = leased.iter().filter_map(Leased::read).collect();
    Leased::sort(&mut leased);
    Ok(leased)
}

/// Returns the runs that a claim leased whose answer was lost, without those whose leases expired.
pub(super) async fn again(
    connection: &mut PgConnection,
    tenant: i64,
    time: &Time,
    asked: &Asked,
) -> sqlx::Result<Vec<Leased>> {
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
        .bind(RunState::Running.number())
        .bind(Id::from(asked.claim));
    let leased = leased.fetch_all(connection).await?;
    let rows = leased.iter().map(row::read).filter_map(readable);
    let leased = rows.zip(0..).map(|(kept, place)| Leased {
        turn: (place, 0),
        row: kept.row,
        trigger: None,
    });
    Ok(leased.collect())
}

/// A row that can be read. One that cannot be read keeps no other from its work: its lease expires, until it has no attempts left.
pub(super) fn readable(kept: sqlx::Result<Kept>) -> Option<Kept> {
    kept.inspect_err(
        |error| tracing::error!(error = %Chain(error), "a row of the ledger cannot be read"),
    )
    .ok()
}
