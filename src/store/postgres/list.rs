//! Reads of the run ledger in PostgreSQL: by filter and by page.

use super::column::{self, Id};
use super::error::Fault;
use super::lease;
use super::read::Read;
use super::row::{self, StoredRun, select};
use super::tenant::{TenantHandle, clock};
use crate::model::Timestamp;
use crate::store::durable::tenant::StoreClock;
use crate::store::run_page::RowSelection;
use crate::store::{Run, RunFilter, RunQuery, RunRef, RunState};
use sqlx::{AssertSqlSafe, PgConnection};

/// Read of the runs that a filter selects, ordered by due time, then by sequence number.
pub(super) struct RunListQuery<'f> {
    pub(super) tenant: &'f TenantHandle,
    pub(super) filter: &'f RunFilter,
}

impl Read for RunListQuery<'_> {
    type Answer = Vec<Run>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &StoreClock,
    ) -> Result<Vec<Run>, Fault> {
        match self.tenant.id(connection).await? {
            Some(tenant) => list(connection, tenant, self.filter, time).await,
            None => Ok(Vec::new()),
        }
    }
}

async fn list(
    connection: &mut PgConnection,
    tenant: i64,
    filter: &RunFilter,
    time: &StoreClock,
) -> Result<Vec<Run>, Fault> {
    let now = now(connection, tenant, time).await?;
    let rows = select_rows(connection, tenant, filter, now).await?;
    let views = rows
        .into_iter()
        .map(|stored| stored.row.list_item(filter, now));
    Ok(views.collect())
}

/// Reads the time of the store's clock from the PostgreSQL server.
async fn now(
    connection: &mut PgConnection,
    tenant: i64,
    time: &StoreClock,
) -> sqlx::Result<Timestamp> {
    let clock = sqlx::query_scalar(concat!("SELECT ", clock!()));
    let clock = clock
        .bind(tenant)
        .bind(time.stopped_at())
        .bind(time.shift());
    clock
        .fetch_one(connection)
        .await
        .map(Timestamp::from_micros)
}

/// Read of a run's ordering key, which never changes. The result is `None` for a run without a key or without a row.
pub(super) struct OrderingKeyQuery<'r> {
    pub(super) tenant: &'r TenantHandle,
    pub(super) run: &'r RunRef,
}

impl Read for OrderingKeyQuery<'_> {
    type Answer = Option<String>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        _: &StoreClock,
    ) -> Result<Option<String>, Fault> {
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(None);
        };
        let key = sqlx::query_scalar::<_, Option<String>>(
            "SELECT line FROM ux_runs WHERE tenant = $1 AND trigger_id = $2 AND trigger_version = $3 AND executor = $4",
        );
        let key = key
            .bind(tenant)
            .bind(Id::from(self.run.trigger_id))
            .bind(self.run.trigger_version.cast_signed())
            .bind(column::name(&self.run.executor));
        let key = key.fetch_optional(connection).await?;
        Ok(key.flatten().map(column::of_name))
    }
}

/// Query for one page of runs, newest first, each with its position in the list. It reads one run more than the page size, which shows if
/// there is a next page.
pub(super) struct RunPageQuery<'q> {
    pub(super) tenant: &'q TenantHandle,
    pub(super) query: &'q RunQuery,
}

impl Read for RunPageQuery<'_> {
    type Answer = Vec<(u64, Run)>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &StoreClock,
    ) -> Result<Vec<(u64, Run)>, Fault> {
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(Vec::new());
        };
        let now = now(connection, tenant, time).await?;
        let query = self.query;
        let state_queries = query.stored_states();
        let state_queries: Vec<String> = state_queries
            .into_iter()
            .map(|(state, rows)| state_query(query, state, rows))
            .collect();
        let sql = format!(
            "SELECT {} FROM (({})) AS r ORDER BY r.sequence DESC LIMIT $8",
            row::columns!(),
            state_queries.join(") UNION ALL (")
        );
        let micros = |time: Option<Timestamp>, or| time.map_or(or, Timestamp::as_micros);
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(tenant)
            .bind(now.as_micros())
            .bind(query.after.map_or(i64::MAX, |after| {
                i64::try_from(after.as_u64()).unwrap_or(i64::MAX)
            }))
            .bind(
                query
                    .executor
                    .as_deref()
                    .map(|id| column::name(id).into_owned()),
            )
            .bind(
                query
                    .code
                    .as_deref()
                    .map(|code| column::name(code).into_owned()),
            )
            .bind(micros(query.added_from, i64::MIN))
            .bind(micros(query.added_before, i64::MAX))
            .bind(i64::try_from(query.page_size() + 1).unwrap_or(i64::MAX));
        let rows = rows.fetch_all(connection).await?;
        let on_page = |stored: StoredRun| stored.row.page_item(now);
        let rows = rows.iter().map(|pg_row| row::read(pg_row).map(on_page));
        Ok(rows.collect::<sqlx::Result<_>>()?)
    }
}

/// Returns the SQL that selects the newest runs whose rows have the state `state`, which can differ from the current state after a lease
/// has expired. Finished rows have no due time, so the index of states contains them in this order. The order therefore names the due
/// time too.
fn state_query(query: &RunQuery, state: RunState, rows: RowSelection) -> String {
    let (due, order) = match rows {
        RowSelection::Any => ("", "r.sequence DESC"),
        RowSelection::Due => (" AND r.due <= $2", "r.sequence DESC"),
        RowSelection::NotDue => (" AND (r.due IS NULL OR r.due > $2)", "r.sequence DESC"),
        RowSelection::Over => (" AND r.due IS NULL", "r.due DESC, r.sequence DESC"),
    };
    // The server cannot estimate these conditions. With them in every query, it would read and sort all rows of the state.
    let from = query
        .added_from
        .map_or("", |_| " AND COALESCE(r.added_at, r.enqueued_at) >= $6");
    let before = query
        .added_before
        .map_or("", |_| " AND COALESCE(r.added_at, r.enqueued_at) < $7");
    format!(
        "SELECT r.* FROM ux_runs AS r WHERE r.tenant = $1 AND r.state = {}{due} AND r.sequence < $3
             AND ($4::text IS NULL OR r.executor = $4) AND ($5::text IS NULL OR r.code = $5){from}{before}
         ORDER BY {order} LIMIT $8",
        state.number()
    )
}

async fn select_rows(
    connection: &mut PgConnection,
    tenant: i64,
    filter: &RunFilter,
    now: Timestamp,
) -> Result<Vec<StoredRun>, Fault> {
    let mut sql = String::from(select!("FROM ux_runs AS r WHERE r.tenant = $1"));
    let mut numbers = 4..;
    if let Some(number) = filter.executor.as_ref().and_then(|_| numbers.next()) {
        sql.push_str(&format!(" AND r.executor = ${number}"));
    }
    if let Some(number) = filter.trigger_id.as_ref().and_then(|_| numbers.next()) {
        sql.push_str(&format!(" AND r.trigger_id = ${number}"));
    }
    if let Some(number) = filter.claim.and_then(|_| numbers.next()) {
        sql.push_str(&format!(" AND r.state = 1 AND r.claim = ${number}"));
    }
    if !filter.states.is_empty() {
        let conditions: Vec<String> = filter
            .states
            .iter()
            .map(|state| state_condition(*state))
            .collect();
        sql.push_str(&format!(" AND ({})", conditions.join(" OR ")));
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
    if let Some(id) = filter.claim {
        rows = rows.bind(Id::from(id));
    }
    let rows = rows.fetch_all(connection).await?;
    let rows = rows.iter().map(row::read);
    match filter.claim {
        // A row that cannot be read does not hide the other leases of a claim.
        Some(_) => Ok(rows.filter_map(lease::readable).collect()),
        None => Ok(rows.collect::<sqlx::Result<_>>()?),
    }
}

/// Returns the SQL condition for runs whose current state is `state`. A run whose due time has passed is ready.
fn state_condition(state: RunState) -> String {
    let number = state.number();
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
