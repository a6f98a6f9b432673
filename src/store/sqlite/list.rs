//! Listing the rows of the ledger.

use super::error::Fault;
use super::parked::{self, Name};
use super::row::{self, Kept, select};
use crate::model::Timestamp;
use crate::store::{Run, RunFilter, RunRef, RunState};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::collections::HashMap;
use std::sync::Arc;

/// The token and epoch of each lease that is parked in the handle that asks.
type Parked = HashMap<Name, (u64, u32)>;

/// The rows a filter selects, in the order in which they are due, then were added.
pub(super) fn list(
    connection: &Connection,
    tenant: i64,
    filter: &RunFilter,
    parked: &Parked,
    now: Timestamp,
) -> Result<Vec<Run>, Fault> {
    let rows = if filter.parked {
        those_parked(connection, tenant, filter, parked, now)?
    } else {
        those_selected(connection, tenant, filter, now)?
    };
    /// Which handle asks does not matter: only its own leases are told.
    const THIS: u64 = 0;
    let views = rows.into_iter().map(|mut kept| {
        if is_parked(&kept, parked) {
            kept.row.parked_in = Some(THIS);
        }
        let state = kept.row.state_at(now);
        kept.row.view(state, THIS)
    });
    Ok(views.collect())
}

/// Whether a filter selects all that is parked, so that what is not found is not parked any more.
pub(super) fn is_of_all_parked(filter: &RunFilter) -> bool {
    filter.parked
        && filter.executor.is_none()
        && filter.trigger_id.is_none()
        && filter.states.is_empty()
        && filter.limit.is_none()
}

/// Whether the lease of a row is one of those that are parked.
fn is_parked(kept: &Kept, parked: &Parked) -> bool {
    let row = &kept.row;
    row.state == RunState::Running
        && parked.get(&parked::name(&row.run)) == Some(&(row.token, row.epoch))
}

fn those_parked(
    connection: &Connection,
    tenant: i64,
    filter: &RunFilter,
    parked: &Parked,
    now: Timestamp,
) -> Result<Vec<Kept>, Fault> {
    let mut rows = Vec::new();
    for (executor, trigger, version) in parked.keys() {
        let run = RunRef::new(Arc::clone(executor), *trigger, *version);
        let selected = filter
            .executor
            .as_ref()
            .is_none_or(|id| **id == *run.executor)
            && filter.trigger_id.is_none_or(|id| id == run.trigger_id);
        if selected
            && let Some(kept) = row::find(connection, tenant, &run)?
            && is_parked(&kept, parked)
            && (filter.states.is_empty() || filter.states.contains(&kept.row.state_at(now)))
        {
            rows.push(kept);
        }
    }
    rows.sort_by_key(|kept| (kept.row.due.is_none(), kept.row.due, kept.row.sequence));
    rows.truncate(filter.limit.unwrap_or(usize::MAX));
    Ok(rows)
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
