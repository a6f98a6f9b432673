//! First protocol message of a PostgreSQL transaction: it begins the transaction, locks ordering keys of runs, and reads the rows that the
//! jobs (store operations) need.

use super::NAME;
use super::column;
use super::facts::{FactQuery, ReadFacts};
use super::prepared::{self, PLANNED_ONCE};
use super::row::OrderingKey;
use super::tenant::{self, clock, wall_clock};
use crate::model::Timestamp;
use crate::store::durable::tenant::{StoreClock, Tenant};
use sqlx::{PgConnection, Row as _};
use std::collections::BTreeSet;

/// The PostgreSQL server's answer to the first protocol message of a transaction: the tenant's row, the clock and the rows that
/// the jobs (store operations) need.
pub(super) struct BeginResponse {
    /// The tenant's row (counters and event positions) at the start of the transaction. Other transactions can change it until
    /// [`lock_tenant_row`] locks it.
    pub(super) tenant: Tenant,
    /// Time of the store's clock at the start of the PostgreSQL transaction.
    pub(super) now: Timestamp,
    /// PostgreSQL's ID of the transaction, by which the outcome of an unanswered commit is found.
    pub(super) xid: String,
    /// If `true`, at least one breadcrumb of the tenant has expired.
    pub(super) has_expired: bool,
    /// Identifier in the table `ux_alive`, which changes with each crash of the PostgreSQL server. As long as it is unchanged,
    /// the server knows the outcome of a transaction by the transaction's ID. `None` after a crash, or before the first commit.
    pub(super) uptime_id: Option<String>,
    pub(super) facts: ReadFacts,
}

/// Returns the SQL that each connection prepares to begin transactions and to lock the tenant's row and ordering keys of runs.
pub(super) fn statements() -> String {
    let columns = tenant::COLUMNS;
    // The subquery reads the earliest expiry from an index. A comparison with the clock could not use the index, because the clock is
    // volatile: its value can change from row to row.
    let begin = format!(
        "PREPARE ux_begin (bigint, bigint, bigint) AS
         SELECT {columns}, {clock}, pg_current_xact_id()::text, coalesce((SELECT b.ttl FROM ux_breadcrumbs AS b
             WHERE b.tenant = $1 AND b.ttl IS NOT NULL AND NOT b.deleted ORDER BY b.ttl LIMIT 1) <= {clock}, FALSE),
             (SELECT since FROM ux_alive), {wall}
         FROM ux_tenants AS n WHERE n.id = $1",
        clock = clock!(),
        wall = wall_clock!()
    );
    // An exceeded limit causes a division by zero, which aborts the transaction.
    let take = format!(
        "PREPARE ux_take (bigint, bigint, bigint, bigint, bigint, bigint, bigint) AS
         SELECT {columns}, 1 / CASE WHEN ($2 <= 0 OR n.breadcrumbs + $2 <= $3)
             AND ($4 <= 0 OR n.open_runs + $4 <= $5) AND ($6 <= 0 OR n.requests + $6 <= $7) THEN 1 ELSE 0 END
         FROM ux_tenants AS n WHERE n.id = $1 FOR UPDATE"
    );
    // The lock functions never return NULL, so the statement takes all locks and returns no row.
    let ordering_keys = "PREPARE ux_lines (bigint, text[]) AS
         SELECT FROM unnest($2) AS line (name) WHERE pg_advisory_xact_lock_shared($1) IS NULL
             OR pg_advisory_xact_lock(hashtextextended(line.name, $1)) IS NULL";
    let all = "PREPARE ux_all_lines (bigint) AS SELECT WHERE pg_advisory_xact_lock($1) IS NULL";
    format!("{begin}; {take}; {ordering_keys}; {all}")
}

/// Begins a PostgreSQL transaction. Locks ordering keys of runs, and reads the tenant's row, the clock and the rows that the transaction's
/// jobs (store operations) need. The plans are generic, because planning for each set of parameters would cost more than the execution.
pub(super) async fn begin(
    connection: &mut PgConnection,
    tenant: i64,
    time: &StoreClock,
    fact_query: FactQuery,
) -> sqlx::Result<BeginResponse> {
    let mut message = vec!["BEGIN".to_owned(), PLANNED_ONCE.to_owned()];
    if !fact_query.ordering_keys.is_empty() {
        message.push(lock_ordering_keys(tenant, &fact_query.ordering_keys));
    }
    let clock = prepared::time(time);
    message.push(format!("EXECUTE ux_begin ({tenant}, {clock})"));
    let before = message.len();
    let pending = fact_query.add_statements(tenant, &mut message);
    let mut rows = prepared::rows(connection, &message).await?;
    let facts = pending.read(&rows.split_off(before))?;
    let row = rows.last().and_then(|rows| rows.first());
    let row = row.ok_or(sqlx::Error::RowNotFound)?;
    time.jumps.record(NAME, row.try_get(14)?);
    Ok(BeginResponse {
        tenant: tenant::read(row)?,
        now: column::time(row, 10)?,
        xid: row.try_get(11)?,
        has_expired: row.try_get(12)?,
        uptime_id: row.try_get(13)?,
        facts,
    })
}

/// Returns the SQL statement that locks ordering keys of runs until the transaction ends. The keys are locked in sorted order, which
/// prevents deadlocks. The server's lock table is limited, so one lock on all keys of the tenant replaces more than 256 single locks.
pub(super) fn lock_ordering_keys(tenant: i64, ordering_keys: &BTreeSet<OrderingKey>) -> String {
    /// Maximum number of ordering keys that a transaction locks one by one; for more keys, one lock covers all ordering keys of
    /// the tenant.
    const MOST: usize = 256;
    if ordering_keys.len() > MOST {
        return format!("EXECUTE ux_all_lines ({tenant})");
    }
    let name = |(executor, ordering_key): &OrderingKey| {
        format!("{}:{executor}{ordering_key}", executor.len())
    };
    let names: Vec<String> = ordering_keys.iter().map(name).collect();
    let names = prepared::names(names.iter().map(String::as_str));
    format!("EXECUTE ux_lines ({tenant}, {names})")
}

/// Numbers of breadcrumbs, open runs and idempotency keys that a transaction adds, each with the tenant's limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LimitedAdditions {
    /// Number of breadcrumbs that the transaction adds, and the tenant's maximum number of breadcrumbs.
    pub(super) breadcrumbs: (i64, i64),
    /// Number of open runs that the transaction adds, and the tenant's maximum number of open runs.
    pub(super) runs: (i64, i64),
    /// Number of idempotency keys that the transaction adds, and the tenant's maximum number of idempotency keys.
    pub(super) requests: (i64, i64),
}

/// Returns the SQL statement that locks the tenant's row until the end of the transaction, and fails if the new rows would exceed a limit.
pub(super) fn lock_tenant_row(tenant: i64, additions: LimitedAdditions) -> String {
    let LimitedAdditions {
        breadcrumbs: (breadcrumbs, most_breadcrumbs),
        runs: (runs, most_runs),
        requests: (requests, most_requests),
    } = additions;
    format!(
        "EXECUTE ux_take ({tenant}, {breadcrumbs}, {most_breadcrumbs}, {runs}, {most_runs}, {requests}, {most_requests})"
    )
}
