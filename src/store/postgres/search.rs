//! Queries for breadcrumbs in PostgreSQL. SQL selects candidates, newest first, and [`Query::selects`] checks each candidate.

use super::column::Id;
use super::connections::Connections;
use super::error::Fault;
use super::read::Read;
use super::table::{self, columns};
use super::tenant::{TenantHandle, clock};
use crate::bugs::planted;
use crate::model::{Breadcrumb, Order, Timestamp};
use crate::store::Query;
use crate::store::durable::tenant::StoreClock;
use sqlx::postgres::PgArguments;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres, Row as _};
use std::sync::Arc;

/// Maximum number of breadcrumbs on one page of a query, from which the query then selects the matching ones.
const PAGE: usize = 256;

/// Read of the breadcrumbs that a query selects, in the order that the query sets. The result includes the number of expired
/// breadcrumbs that were read.
pub(super) struct Search<'q> {
    pub(super) tenant: &'q TenantHandle,
    pub(super) query: &'q Query,
    /// Pool of the store's PostgreSQL connections. The pool's time limit applies to each page of the search, but not to the whole
    /// search.
    pub(super) connections: &'q Connections,
}

impl Read for Search<'_> {
    type Answer = (Vec<Arc<Breadcrumb>>, usize);
    const TAKES_LONG: bool = true;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &StoreClock,
    ) -> Result<Self::Answer, Fault> {
        let Self {
            tenant,
            query,
            connections,
        } = *self;
        let id = tenant.id(connection);
        let Some(tenant) = connections.with_timeout(id).await?? else {
            return Ok((Vec::new(), 0));
        };
        let Some(conditions) = SqlConditions::of(tenant, query, time) else {
            return Ok((Vec::new(), 0));
        };
        // The first candidates answer most queries.
        let few = query.limit.clamp(1, PAGE);
        let page = conditions.page(connection, SearchProgress::default(), few);
        let mut progress = connections.with_timeout(page).await??;
        if !progress.is_complete {
            // A change between two pages must be visible in both or in neither, so all pages come from one snapshot.
            let begin = connections.with_timeout(connection.begin_with(SNAPSHOT));
            let mut snapshot = begin.await??;
            progress = SearchProgress::default();
            while !progress.is_complete {
                let page = conditions.page(&mut snapshot, progress, PAGE);
                progress = connections.with_timeout(page).await??;
            }
            connections.with_timeout(snapshot.commit()).await??;
        }
        if query.order == Order::OldestFirst {
            progress.selected.reverse();
        }
        Ok((progress.selected, progress.expired))
    }
}

pub(super) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Result so far of a query for breadcrumbs.
#[derive(Default)]
struct SearchProgress {
    selected: Vec<Arc<Breadcrumb>>,
    /// Number of expired breadcrumbs that the query has read.
    expired: usize,
    /// Sort key of the last candidate breadcrumb, after which the next page starts.
    last: Option<SortKey>,
    is_complete: bool,
}

/// Sort key by which a store orders breadcrumbs: update time, then version, then ID.
type SortKey = (Timestamp, u64, crate::model::BreadcrumbId);

/// An SQL query with bound parameters.
type Bound<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

/// Conditions of a query for breadcrumbs that SQL can check.
pub(super) struct SqlConditions<'q> {
    pub(super) tenant: i64,
    pub(super) query: &'q Query,
    pub(super) time: &'q StoreClock,
    schema: Option<&'q str>,
    /// Tags of the query; a breadcrumb must have all of them.
    all: Vec<&'q str>,
    /// Tags of the query; a breadcrumb must have at least one of them.
    any: Option<Vec<&'q str>>,
}

impl<'q> SqlConditions<'q> {
    /// Returns the SQL conditions of a query, or `None` if no breadcrumb can match.
    pub(super) fn of(tenant: i64, query: &'q Query, time: &'q StoreClock) -> Option<Self> {
        // Stored strings contain no U+0000, and PostgreSQL does not accept it as a parameter.
        let is_storable = |text: &&str| !text.contains('\0');
        let selector = &query.selector;
        let all = selector.all_of_tags().iter().chain(&query.scope_tags);
        let all: Vec<&str> = all.map(String::as_str).collect();
        let any = selector.any_of_tags().map(|tags| {
            let tags = tags.iter().map(String::as_str).filter(is_storable);
            tags.collect::<Vec<&str>>()
        });
        let schema = selector.schema_name();
        let can_match = query.limit > 0
            && all.iter().all(is_storable)
            && schema.as_ref().is_none_or(is_storable)
            && any.as_ref().is_none_or(|any| !any.is_empty());
        can_match.then_some(Self {
            tenant,
            query,
            time,
            schema,
            all,
            any,
        })
    }

    /// Reads the next page of up to `most` candidates for the query, and adds the candidates that match the query to `progress`.
    async fn page(
        &self,
        connection: &mut PgConnection,
        mut progress: SearchProgress,
        most: usize,
    ) -> Result<SearchProgress, Fault> {
        let before = progress.last.or(self.query.before);
        let page = sqlx::query(AssertSqlSafe(self.sql(before.is_some())))
            .bind(self.tenant)
            .bind(self.time.stopped_at())
            .bind(self.time.shift())
            .bind(most.cast_signed() as i64);
        let rows = self.bind(page, before).fetch_all(connection).await?;
        progress.is_complete = rows.len() < most;
        for row in rows {
            let now = Timestamp::from_micros(row.try_get(0)?);
            let stored = table::read(&row, 1)?;
            progress.last = Some(stored.breadcrumb.order_key());
            if !stored.is_live(now) {
                progress.expired += 1;
            } else if self.query.selects(&stored.breadcrumb) {
                // SQL is only a prefilter. `Query::selects` decides.
                progress.selected.push(Arc::new(stored.breadcrumb));
            }
            if progress.selected.len() == self.query.limit {
                progress.is_complete = true;
                break;
            }
        }
        Ok(progress)
    }

    /// Returns the SQL that selects the newest candidates: breadcrumbs that satisfy those conditions of the query that SQL can
    /// check. With `has_key`, the SQL selects only candidates before a sort key.
    fn sql(&self, has_key: bool) -> String {
        let from = if planted("no-tenant") {
            "FROM ux_breadcrumbs AS b WHERE $1::bigint > 0 AND NOT b.deleted"
        } else {
            "FROM ux_breadcrumbs AS b WHERE b.tenant = $1 AND NOT b.deleted"
        };
        /// Number of SQL parameters before the parameters of the query's filter.
        const PARAMETERS: usize = 4;
        let mut sql = String::from(concat!("SELECT ", clock!(), ", ", columns!()));
        sql.push_str(from);
        sql.push_str(&self.filter(PARAMETERS, has_key));
        sql.push_str(" ORDER BY b.updated_at DESC, b.version DESC, b.id DESC LIMIT $4");
        sql
    }

    /// Returns the SQL conditions that select the breadcrumbs of a query from a table with the alias `b`. If `has_key` is `true`,
    /// the conditions include a sort key. The parameters are numbered after `parameters` others.
    pub(super) fn filter(&self, parameters: usize, has_key: bool) -> String {
        let (mut sql, mut number) = (String::new(), parameters);
        let mut next = || {
            number += 1;
            number
        };
        if self.schema.is_some() {
            sql.push_str(&format!(" AND b.schema_name = ${}", next()));
        }
        if !self.all.is_empty() {
            sql.push_str(&format!(" AND b.tags @> ${}::text[]", next()));
        }
        if self.any.is_some() {
            sql.push_str(&format!(" AND b.tags && ${}::text[]", next()));
        }
        if has_key {
            let (time, version, id) = (next(), next(), next());
            sql.push_str(&format!(
                " AND (b.updated_at, b.version, b.id) < (${time}, ${version}, ${id})"
            ));
        }
        if self.query.after.is_some() {
            sql.push_str(&format!(" AND b.updated_at > ${}", next()));
        }
        sql
    }

    /// Binds the SQL parameters of the query's [`filter`](Self::filter).
    pub(super) fn bind<'s>(&'s self, mut sql: Bound<'s>, before: Option<SortKey>) -> Bound<'s> {
        if let Some(schema) = self.schema {
            sql = sql.bind(schema);
        }
        if !self.all.is_empty() {
            sql = sql.bind(&self.all);
        }
        if let Some(any) = &self.any {
            sql = sql.bind(any);
        }
        if let Some((time, version, id)) = before {
            sql = sql
                .bind(time.as_micros())
                .bind(version.cast_signed())
                .bind(Id::from(id));
        }
        if let Some(after) = self.query.after {
            sql = sql.bind(after.as_micros());
        }
        sql
    }
}
