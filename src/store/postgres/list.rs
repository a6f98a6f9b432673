//! Listing the rows of the ledger.

use super::column::{self, Id};
use super::database::Read;
use super::error::Fault;
use super::parked::{self, Name};
use super::row::{self, Kept, number_of, select};
use super::tenant::{Named, clock};
use crate::model::Timestamp;
use crate::store::durable::tenant::Time;
use crate::store::row::Row;
use crate::store::{Run, RunFilter, RunState};
use sqlx::{AssertSqlSafe, PgConnection};
use std::collections::HashMap;

/// The token and epoch of each lease that is parked in the handle that asks.
pub(super) type Parked = HashMap<Name, (u64, u32)>;

/// Reads the rows a filter selects, in the order in which they are due, then were added.
pub(super) struct List<'f> {
    pub(super) tenant: &'f Named,
    pub(super) filter: &'f RunFilter,
    pub(super) parked: &'f Parked,
}

impl Read for List<'_> {
    type Answer = Vec<Run>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, time: &Time) -> Result<Vec<Run>, Fault> {
        match self.tenant.id(connection).await? {
            Some(tenant) => list(connection, tenant, self.filter, self.parked, time).await,
            None => Ok(Vec::new()),
        }
    }
}

async fn list(
    connection: &mut PgConnection,
    tenant: i64,
    filter: &RunFilter,
    parked: &Parked,
    time: &Time,
) -> Result<Vec<Run>, Fault> {
    let (rows, now) = if filter.parked {
        those_parked(connection, tenant, filter, parked, time).await?
    } else {
        let clock = sqlx::query_scalar(concat!("SELECT ", clock!()));
        let clock = clock.bind(tenant).bind(time.held()).bind(time.shift());
        let now = Timestamp::from_micros(clock.fetch_one(&mut *connection).await?);
        let rows = those_selected(connection, tenant, filter, now).await?;
        (rows, now)
    };
    let views = rows.into_iter().map(|mut kept| {
        if is_parked(&kept, parked) {
            kept.row.parked_in = Some(THIS);
        }
        let state = kept.row.state_at(now);
        kept.row.view(state, THIS)
    });
    Ok(views.collect())
}

/// Which handle asks does not matter: only its own leases are told.
const THIS: u64 = 0;

/// Selects of rows whose leases are parked in the handle that asks, and are not over.
pub(super) fn of_parked(mut rows: Vec<Row>, filter: &RunFilter) -> Vec<Run> {
    rows.retain(|row| {
        filter
            .executor
            .as_ref()
            .is_none_or(|id| **id == *row.run.executor)
            && filter.trigger_id.is_none_or(|id| id == row.run.trigger_id)
            && (filter.states.is_empty() || filter.states.contains(&row.state))
    });
    rows.sort_by_key(|row| (row.due, row.sequence));
    rows.truncate(filter.limit.unwrap_or(usize::MAX));
    let views = rows.into_iter().map(|mut row| {
        row.parked_in = Some(THIS);
        row.view(row.state, THIS)
    });
    views.collect()
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

async fn those_parked(
    connection: &mut PgConnection,
    tenant: i64,
    filter: &RunFilter,
    parked: &Parked,
    time: &Time,
) -> Result<(Vec<Kept>, Timestamp), Fault> {
    let named = parked.keys().filter(|(executor, trigger, _)| {
        filter.executor.as_ref().is_none_or(|id| **id == **executor)
            && filter.trigger_id.is_none_or(|id| id == *trigger)
    });
    let named: Vec<&Name> = named.collect();
    let found = sqlx::query(concat!(
        "SELECT r.*, ",
        clock!(),
        " FROM unnest($4::uuid[], $5::bigint[], $6::text[]) AS u (trigger_id, trigger_version, executor)
         JOIN LATERAL (",
        select!(
            "FROM ux_runs AS r WHERE r.tenant = $1 AND r.trigger_id = u.trigger_id
                 AND r.trigger_version = u.trigger_version AND r.executor = u.executor LIMIT 1"
        ),
        ") AS r ON TRUE"
    ));
    let found = found
        .bind(tenant)
        .bind(time.held())
        .bind(time.shift())
        .bind(
            named
                .iter()
                .map(|(_, trigger, _)| Id::from(*trigger))
                .collect::<Vec<_>>(),
        )
        .bind(
            named
                .iter()
                .map(|(.., version)| version.cast_signed())
                .collect::<Vec<_>>(),
        )
        .bind(column::names(
            named.iter().map(|(executor, ..)| &**executor),
        ));
    let (mut rows, mut now) = (Vec::new(), Timestamp::UNIX_EPOCH);
    for found in found.fetch_all(connection).await? {
        now = now.max(column::time(&found, row::COLUMNS)?);
        let kept = row::read(&found)?;
        let state = kept.row.state_at(now);
        if is_parked(&kept, parked) && (filter.states.is_empty() || filter.states.contains(&state))
        {
            rows.push(kept);
        }
    }
    rows.sort_by_key(|kept| (kept.row.due.is_none(), kept.row.due, kept.row.sequence));
    rows.truncate(filter.limit.unwrap_or(usize::MAX));
    Ok((rows, now))
}

async fn those_selected(
    connection: &mut PgConnection,
    tenant: i64,
    filter: &RunFilter,
    now: Timestamp,
) -> Result<Vec<Kept>, Fault> {
    let mut sql = String::from(select!("FROM ux_runs AS r WHERE r.tenant = $1"));
    let mut places = 4..;
    if let Some(place) = filter.executor.as_ref().and_then(|_| places.next()) {
        sql.push_str(&format!(" AND r.executor = ${place}"));
    }
    if let Some(place) = filter.trigger_id.as_ref().and_then(|_| places.next()) {
        sql.push_str(&format!(" AND r.trigger_id = ${place}"));
    }
    if !filter.states.is_empty() {
        let any: Vec<String> = filter.states.iter().map(|state| test_of(*state)).collect();
        sql.push_str(&format!(" AND ({})", any.join(" OR ")));
    }
    sql.push_str(" ORDER BY r.due NULLS LAST, r.sequence LIMIT $3");
    let limit = filter
        .limit
        .map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
    let mut rows = sqlx::query(AssertSqlSafe(sql))
        .bind(tenant)
        .bind(now.as_micros())
        .bind(limit);
    if let Some(executor) = &filter.executor {
        rows = rows.bind(column::name(executor));
    }
    if let Some(trigger) = filter.trigger_id {
        rows = rows.bind(Id::from(trigger));
    }
    let rows = rows.fetch_all(connection).await?;
    Ok(rows.iter().map(row::read).collect::<sqlx::Result<_>>()?)
}

/// Whether a row has a state now, in SQL: one whose time is up is ready.
fn test_of(state: RunState) -> String {
    let number = number_of(state);
    match state {
        RunState::Ready => "r.state = 0 OR (r.state IN (1, 2) AND r.due <= $2)".to_owned(),
        RunState::Running | RunState::Suspended => {
            format!("(r.state = {number} AND (r.due IS NULL OR r.due > $2))")
        }
        RunState::Done | RunState::Failed | RunState::Skipped | RunState::Superseded => {
            format!("r.state = {number}")
        }
    }
}
