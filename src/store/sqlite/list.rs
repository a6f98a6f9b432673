//! Queries of the run ledger in SQLite: all runs that a filter selects, or one page of the runs of a query.

use super::error::Fault;
use super::row::{self, StoredRun, select};
use crate::model::Timestamp;
use crate::store::run_page::RowSelection;
use crate::store::{Run, RunFilter, RunQuery, RunState};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

/// Returns the runs that a filter selects, ordered by due time, then by sequence number (order in the ledger).
pub(super) fn list(
    connection: &Connection,
    tenant: i64,
    filter: &RunFilter,
    now: Timestamp,
) -> Result<Vec<Run>, Fault> {
    let rows = select_rows(connection, tenant, filter, now)?;
    let views = rows
        .into_iter()
        .map(|stored| stored.row.list_item(filter, now));
    Ok(views.collect())
}

fn select_rows(
    connection: &Connection,
    tenant: i64,
    filter: &RunFilter,
    now: Timestamp,
) -> Result<Vec<StoredRun>, Fault> {
    let mut sql = String::from(select!("WHERE tenant = ?"));
    let mut values = vec![Value::from(tenant)];
    if let Some(executor) = &filter.executor {
        sql.push_str(" AND executor = ?");
        values.push(executor.clone().into());
    }
    if let Some(trigger) = filter.trigger_id {
        sql.push_str(" AND trigger_id = ?");
        values.push(super::column::blob(trigger).to_vec().into());
    }
    if let Some(id) = filter.claim {
        sql.push_str(" AND state = 1 AND claim = ?");
        values.push(id.as_bytes().to_vec().into());
    }
    if !filter.states.is_empty() {
        let mut conditions = Vec::new();
        for state in &filter.states {
            let (condition, needs_now) = state_condition(*state);
            conditions.push(condition);
            values.extend(needs_now.then(|| Value::from(now.as_micros())));
        }
        sql.push_str(&format!(" AND ({})", conditions.join(" OR ")));
    }
    sql.push_str(" ORDER BY due IS NULL, due, sequence LIMIT ?");
    let limit = filter.limit.and_then(|limit| i64::try_from(limit).ok());
    values.push(limit.unwrap_or(-1).into());
    let mut rows = connection.prepare_cached(&sql)?;
    let rows = rows.query_map(params_from_iter(values), row::read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns the runs of one page of a query, newest first, and one more run if this page is not the last one. Each run comes with
/// its position.
pub(super) fn page(
    connection: &Connection,
    tenant: i64,
    query: &RunQuery,
    now: Timestamp,
) -> Result<Vec<(u64, Run)>, Fault> {
    let state_queries = query.stored_states();
    let state_queries = state_queries
        .into_iter()
        .map(|(state, rows)| state_query(state, rows));
    let state_queries =
        state_queries.map(|state_query| format!("SELECT serial FROM ({state_query})"));
    let state_queries: Vec<String> = state_queries.collect();
    let sql = format!(
        "{}{}) ORDER BY sequence DESC LIMIT ?8",
        select!("WHERE serial IN ("),
        state_queries.join(" UNION ALL ")
    );
    let mut rows = connection.prepare_cached(&sql)?;
    let micros = |time: Option<Timestamp>, or| time.map_or(or, Timestamp::as_micros);
    let values = rusqlite::params![
        tenant,
        now.as_micros(),
        query
            .after
            .map_or(i64::MAX, |after| i64::try_from(after.as_u64())
                .unwrap_or(i64::MAX)),
        query.executor.as_deref(),
        query.code.as_deref(),
        micros(query.added_from, i64::MIN),
        micros(query.added_before, i64::MAX),
        i64::try_from(query.page_size() + 1).unwrap_or(i64::MAX),
    ];
    let rows = rows.query_map(values, row::read)?;
    let rows: Vec<StoredRun> = rows.collect::<rusqlite::Result<_>>()?;
    Ok(rows
        .iter()
        .map(|stored| stored.row.page_item(now))
        .collect())
}

/// Returns the SQL that selects the newest runs whose rows have the state `state`, which can differ from the current state after a lease
/// has expired. Finished rows have no due time, so the index of states contains them in this order.
pub(super) fn state_query(state: RunState, rows: RowSelection) -> String {
    let due = match rows {
        RowSelection::Any => "",
        RowSelection::Due => " AND due <= ?2",
        RowSelection::NotDue => " AND (due IS NULL OR due > ?2)",
        RowSelection::Over => " AND due IS NULL",
    };
    format!(
        "SELECT serial FROM ux_runs WHERE tenant = ?1 AND state = {}{due} AND sequence < ?3
             AND (?4 IS NULL OR executor = ?4) AND (?5 IS NULL OR code = ?5)
             AND COALESCE(added_at, enqueued_at) >= ?6 AND COALESCE(added_at, enqueued_at) < ?7
         ORDER BY sequence DESC LIMIT ?8",
        state.number()
    )
}

/// Returns the SQL condition for runs whose current state is `state`. The second value is `true` if the condition takes the current
/// time as a parameter. A running or suspended run whose due time has passed is ready.
fn state_condition(state: RunState) -> (&'static str, bool) {
    match state {
        RunState::Ready => ("(state = 0 OR (state IN (1, 2) AND due <= ?))", true),
        RunState::Running => ("(state = 1 AND (due IS NULL OR due > ?))", true),
        RunState::Suspended => ("(state = 2 AND (due IS NULL OR due > ?))", true),
        RunState::Done => ("state = 3", false),
        RunState::Failed => ("state = 4", false),
        RunState::Skipped => ("state = 5", false),
        RunState::Superseded => ("state = 6", false),
    }
}
