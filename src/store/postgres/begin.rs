//! How a transaction begins: by one message.

use super::column;
use super::prepared::{self, PLANNED_ONCE};
use super::row::{self, Asked, select, select_known};
use super::tenant::{self, clock};
use super::writing::Known;
use crate::model::Timestamp;
use crate::store::RunRef;
use crate::store::durable::tenant::{Tenant, Time};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::collections::HashMap;

/// What is known at the beginning.
pub(super) struct Begun {
    pub(super) tenant: Tenant,
    /// What the clock shows.
    pub(super) now: Timestamp,
    /// The number of the transaction.
    pub(super) number: String,
    /// Whether the time of a breadcrumb is over.
    pub(super) has_expired: bool,
    /// Since when the server knows its transactions by their numbers; none if it has crashed, or never knew.
    pub(super) since: Option<String>,
    pub(super) runs: HashMap<Asked, Known>,
}

/// Prepares what [`begin`] asks for.
pub(super) fn statements() -> String {
    let tenant = |name: &str, lock: &str, has_expired: &str| {
        format!(
            "PREPARE {name} (bigint, bigint, bigint) AS
             SELECT t.*, {}, pg_current_xact_id()::text, {has_expired}, (SELECT since FROM ux_alive)
             FROM (SELECT id, latest, sequence, position, first_event, breadcrumbs, tombstones, open_runs, finished_runs
                 FROM ux_tenants WHERE id = $1 {lock}) AS t",
            clock!()
        )
    };
    // The first that ends: an index is not asked with a clock, which changes from row to row.
    let has_expired = concat!(
        "coalesce((SELECT b.ttl FROM ux_breadcrumbs AS b WHERE b.tenant = $1 AND b.ttl IS NOT NULL
             AND NOT b.deleted ORDER BY b.ttl LIMIT 1) <= ",
        clock!(),
        ", FALSE)"
    );
    let known = concat!(
        "PREPARE ux_known (bigint, uuid, bigint, text, text) AS ",
        select_known!("(VALUES ($2, $3, $4, $5, 1::bigint))", "FOR UPDATE")
    );
    let locks = tenant("ux_lock", "FOR UPDATE", has_expired);
    let looks = tenant("ux_look", "", "FALSE");
    format!("{locks}; {looks}; {known}")
}

/// Begins a transaction, and asks for the row of the tenant, the clock and the like, and for what is known of a run if
/// there is one only, which is taken out of those that are wanted then. What follows finds rows by their keys, whatever the
/// parameters are: a plan for each time would cost more than doing it.
pub(super) async fn begin(
    connection: &mut PgConnection,
    tenant: i64,
    time: &Time,
    locks: bool,
    runs: &mut Vec<RunRef>,
) -> sqlx::Result<Begun> {
    let statement = if locks { "ux_lock" } else { "ux_look" };
    let mut message = format!(
        "BEGIN; {PLANNED_ONCE}; EXECUTE {statement} ({tenant}, {})",
        prepared::time(time)
    );
    let mut asked = Vec::new();
    if let [run] = &runs[..] {
        message.push_str(&known(tenant, run));
        asked.append(runs);
    }
    let rows = sqlx::raw_sql(AssertSqlSafe(message))
        .fetch_all(connection)
        .await?;
    let (row, found) = rows.split_first().ok_or(sqlx::Error::RowNotFound)?;
    let known = found.iter().filter_map(|found| row::known(found, &asked));
    Ok(Begun {
        tenant: tenant::read(row)?,
        now: column::time(row, 9)?,
        number: row.try_get(10)?,
        has_expired: row.try_get(11)?,
        since: row.try_get(12)?,
        runs: known.collect::<sqlx::Result<_>>()?,
    })
}

/// Asks for what is known of a run.
fn known(tenant: i64, run: &RunRef) -> String {
    format!(
        "; EXECUTE ux_known ({tenant}, {}, {}, {}, {})",
        prepared::id(run.trigger_id.as_uuid()),
        run.trigger_version.cast_signed(),
        prepared::name(&run.executor),
        run.order
            .as_deref()
            .map_or("NULL".to_owned(), prepared::name)
    )
}
