//! Listing the rows of the ledger.

use super::error::Fault;
use super::row::{self, Kept, select};
use crate::model::Timestamp;
use crate::store::{Run, RunFilter, RunState};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

/// The rows a filter selects, in the order in which they are due, then were added.
pub(super) fn list(
    connection: &Connection,
    tenant: i64,
    filter: &RunFilter,
    now: Timestamp,
) -> Result<Vec<Run>, Fault> {
    let rows = those_selected(connection, tenant, filter, now)?;
    let views = rows.into_iter().map(|kept| kept.row.view(filter, now));
    Ok(views.collect())
}

fn those_selected(
    connection: &Connection,
    tenant: i64,
    filter: &RunFilter,
    now: Timestamp,
) -> Result<Vec<Kept>, Fault> {
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
        values.push(id.as_uuid().into_bytes().to_vec().into());
    }
    if !filter.states.is_empty() {
        let mut any = Vec::new();
        for state in &filter.states {
            let (test, needs_now) = test_of(*state);
            any.push(test);
            values.extend(needs_now.then(|| Value::from(now.as_micros())));
        }
        sql.push_str(&format!(" AND ({})", any.join(" OR ")));
    }
    sql.push_str(" ORDER BY due IS NULL, due, sequence LIMIT ?");
    let limit = filter.limit.and_then(|limit| i64::try_from(limit).ok());
    values.push(limit.unwrap_or(-1).into());
    let mut rows = connection.prepare_cached(&sql)?;
    let rows = rows.query_map(params_from_iter(values), row::read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Whether a row has a state now, in SQL, and whether that asks for the time: one whose time is up is ready.
fn test_of(state: RunState) -> (&'static str, bool) {
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
