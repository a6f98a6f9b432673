//! Claims of due runs in PostgreSQL, each as one SQL statement in its own transaction. Claims must be fast, because every run needs one.
//!
//! The statement repeats [`grant`](crate::store::rules::grant) in SQL.

use super::column::{self, Id};
use super::prepared;
use super::row::{self, StoredRun, columns, select};
use super::table;
use super::tenant::clock;
use crate::bugs::planted;
use crate::error::Chain;
use crate::model::Breadcrumb;
use crate::store::durable::tenant::StoreClock;
use crate::store::row::RunRow;
use crate::store::{ClaimId, Claimed, ExecutorLimits, RunState};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::collections::HashMap;
use std::sync::Arc;

/// Parameters of a claim of due runs: executors, limits and the claim ID.
#[derive(Clone, Debug)]
pub(super) struct ClaimRequest {
    /// Executors whose runs are claimed, each with its maximum number of runs. The executors take turns in the order of this list.
    executors: Vec<(Arc<str>, usize)>,
    /// Maximum number of runs of all executors that one claim leases.
    most: usize,
    /// ID that a claim of due runs writes into each lease that it grants. The store finds the leases by this ID if the answer to
    /// the claim is lost.
    pub(super) claim: ClaimId,
}

impl ClaimRequest {
    pub(super) fn new(n: usize, of: &[ExecutorLimits], id: ClaimId) -> Self {
        // The limits of an executor that the caller lists more than once are added.
        let mut executors: Vec<(Arc<str>, usize)> = Vec::with_capacity(of.len());
        let mut indexes: HashMap<&str, usize> = HashMap::with_capacity(of.len());
        for limits in of.iter().filter(|limits| limits.free > 0) {
            let index = *indexes.entry(&limits.executor).or_insert(executors.len());
            match executors.get_mut(index) {
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

    /// Returns the SQL statement that claims due runs. Its message must start with [`PLANNED_ONCE`](prepared::PLANNED_ONCE).
    pub(super) fn message(&self, tenant: i64, time: &StoreClock) -> String {
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

/// Returns the SQL that each connection prepares to claim due runs.
///
/// It leases the runs that have been due for the longest time first. It skips rows that another transaction has locked, and the runs of
/// paused executors; the pause is evaluated once for each executor. The clock is read once, because the server does not search an index
/// for a volatile value. A run is returned with its trigger, unless the trigger is large.
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

/// Maximum context size of a trigger, in bytes, up to which a claim returns the trigger together with its run. A claim has up to
/// 64 triggers.
const MOST_AT_HAND: usize = 64 << 10;

/// A run that a claim leased.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    /// Sort key that puts the leased runs into the order in which the claim selected them.
    claim_order: (i64, i64),
    pub(super) row: RunRow,
    trigger: Option<Arc<Breadcrumb>>,
}

impl Leased {
    /// Reads a leased run from a row that the claim statement returned. Returns `None` if the row is unreadable.
    pub(super) fn read(pg_row: &PgRow) -> Option<Self> {
        let row = readable(row::read(pg_row))?.row;
        let claim_order = (
            pg_row.try_get(row::COLUMNS),
            pg_row.try_get(row::COLUMNS + 1),
        );
        let has_trigger = pg_row.try_get(row::COLUMNS + 2).unwrap_or(false);
        // If the trigger is unreadable, the run reads it again and fails with a clear error.
        let trigger = has_trigger.then(|| table::read(pg_row, row::COLUMNS + 3));
        Some(Self {
            claim_order: (claim_order.0.ok()?, claim_order.1.ok()?),
            row,
            trigger: trigger
                .and_then(Result::ok)
                .map(|stored| Arc::new(stored.breadcrumb)),
        })
    }

    /// Returns `true` if a row comes from the SQL statement that claims due runs.
    pub(super) fn is_in(pg_row: &PgRow) -> bool {
        pg_row.try_get::<i64, _>("ux_turn").is_ok()
    }

    pub(super) fn claimed(&self) -> Claimed {
        Claimed {
            trigger: self.trigger.clone(),
            ..self.row.claimed()
        }
    }

    /// Sorts the runs of a claim in the order in which the claim selected the runs.
    pub(super) fn sort(leased: &mut [Self]) {
        leased.sort_by_key(|leased| leased.claim_order);
    }
}

/// Leases due runs, taking turns between the executors. Returns the runs in this order.
pub(super) async fn due(
    connection: &mut PgConnection,
    tenant: i64,
    time: &StoreClock,
    claim_request: &ClaimRequest,
) -> sqlx::Result<Vec<Leased>> {
    let message = format!(
        "{}; {}",
        prepared::PLANNED_ONCE,
        claim_request.message(tenant, time)
    );
    let leased = sqlx::raw_sql(AssertSqlSafe(message));
    let leased = leased.fetch_all(connection).await?;
    let mut leased: Vec<Leased> = leased.iter().filter_map(Leased::read).collect();
    Leased::sort(&mut leased);
    Ok(leased)
}

/// Finds the runs that a claim leased, after the PostgreSQL server's answer to the claim was lost. Omits runs whose lease has
/// expired.
pub(super) async fn of_claim(
    connection: &mut PgConnection,
    tenant: i64,
    time: &StoreClock,
    claim_request: &ClaimRequest,
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
        .bind(time.stopped_at())
        .bind(time.shift())
        .bind(column::names(claim_request.names()))
        .bind(RunState::Running.number())
        .bind(Id::from(claim_request.claim));
    let leased = leased.fetch_all(connection).await?;
    let rows = leased.iter().map(row::read).filter_map(readable);
    let leased = rows.zip(0..).map(|(stored, index)| Leased {
        claim_order: (index, 0),
        row: stored.row,
        trigger: None,
    });
    Ok(leased.collect())
}

/// Returns a row of the run ledger, or logs the error and returns `None` if the row cannot be read. Such a row must not block
/// other runs: its lease expires until the run has no attempts left.
pub(super) fn readable(stored: sqlx::Result<StoredRun>) -> Option<StoredRun> {
    stored.inspect_err(
        |error| tracing::error!(error = %Chain(error), "cannot read a row of the run ledger; its run is skipped and not executed"),
    )
    .ok()
}
