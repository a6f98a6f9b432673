//! Queries: candidates newest first, as far as SQL can tell, each looked at in full.

use super::column::Id;
use super::database::Read;
use super::error::Fault;
use super::table::{self, columns};
use super::tenant::{Named, Time, clock};
use crate::bugs::planted;
use crate::model::{Breadcrumb, Order, Timestamp};
use crate::store::Query;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use std::sync::Arc;

/// The most candidates that are read at once.
const PAGE: usize = 256;

/// Reads what a query selects, in its order, and says how many were met whose time is over.
pub(super) struct Search<'q> {
    pub(super) tenant: &'q Named,
    pub(super) query: &'q Query,
}

impl Read for Search<'_> {
    type Answer = (Vec<Arc<Breadcrumb>>, usize);

    async fn run(&self, connection: &mut PgConnection, time: &Time) -> Result<Self::Answer, Fault> {
        match self.tenant.id(connection).await? {
            Some(tenant) => search(connection, tenant, self.query, time).await,
            None => Ok((Vec::new(), 0)),
        }
    }
}

async fn search(
    connection: &mut PgConnection,
    tenant: i64,
    query: &Query,
    time: &Time,
) -> Result<(Vec<Arc<Breadcrumb>>, usize), Fault> {
    let Some(asked) = Asked::of(tenant, query, time) else {
        return Ok((Vec::new(), 0));
    };
    let mut found = asked.page(connection, Met::default()).await?;
    if !found.is_all {
        // What changes between two pages shall be in neither or in one of them, so both are of one snapshot.
        let mut snapshot = connection.begin_with(SNAPSHOT).await?;
        found = Met::default();
        while !found.is_all {
            found = asked.page(&mut snapshot, found).await?;
        }
        snapshot.commit().await?;
    }
    if query.order == Order::OldestFirst {
        found.selected.reverse();
    }
    Ok((found.selected, found.expired))
}

const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// What was found so far.
#[derive(Default)]
struct Met {
    selected: Vec<Arc<Breadcrumb>>,
    /// How many were met whose time is over.
    expired: usize,
    /// The last candidate, if there may be more after it.
    last: Option<Key>,
    is_all: bool,
}

/// The place of a breadcrumb in the order of the store.
type Key = (Timestamp, u64, crate::model::BreadcrumbId);

/// What a query asks for, as far as SQL can tell.
struct Asked<'q> {
    tenant: i64,
    query: &'q Query,
    time: &'q Time,
    schema: Option<&'q str>,
    /// Tags that must all be there.
    all: Vec<&'q str>,
    /// Tags of which one must be there.
    any: Option<Vec<&'q str>>,
}

impl<'q> Asked<'q> {
    /// None if nothing can be found.
    fn of(tenant: i64, query: &'q Query, time: &'q Time) -> Option<Self> {
        // What is kept has no U+0000 in it, and PostgreSQL cannot be asked for it.
        let is_kept = |text: &&str| !text.contains('\0');
        let selector = &query.selector;
        let all = selector.all_of_tags().iter().chain(&query.scope_tags);
        let all: Vec<&str> = all.map(String::as_str).collect();
        let any = selector.any_of_tags().map(|tags| {
            let tags = tags.iter().map(String::as_str).filter(is_kept);
            tags.collect::<Vec<&str>>()
        });
        let schema = selector.schema_name();
        let can_be = query.limit > 0
            && all.iter().all(is_kept)
            && schema.as_ref().is_none_or(is_kept)
            && any.as_ref().is_none_or(|any| !any.is_empty());
        can_be.then_some(Self {
            tenant,
            query,
            time,
            schema,
            all,
            any,
        })
    }

    /// Adds what the next page has.
    async fn page(&self, connection: &mut PgConnection, mut met: Met) -> Result<Met, Fault> {
        let most = self.query.limit.clamp(1, PAGE);
        let before = met.last.or(self.query.before);
        let mut page = sqlx::query(AssertSqlSafe(self.sql(before.is_some())))
            .bind(self.tenant)
            .bind(self.time.held())
            .bind(self.time.shift())
            .bind(most.cast_signed() as i64);
        if let Some(schema) = self.schema {
            page = page.bind(schema);
        }
        if !self.all.is_empty() {
            page = page.bind(&self.all);
        }
        if let Some(any) = &self.any {
            page = page.bind(any);
        }
        if let Some((time, version, id)) = before {
            page = page
                .bind(time.as_micros())
                .bind(version.cast_signed())
                .bind(Id::from(id));
        }
        let rows = page.fetch_all(connection).await?;
        met.is_all = rows.len() < most;
        for row in rows {
            let now = Timestamp::from_micros(row.try_get(0)?);
            let one = table::read(&row, 1)?;
            met.last = Some(one.breadcrumb.order_key());
            if !one.lives(now) {
                met.expired += 1;
            } else if self.query.selects(&one.breadcrumb) {
                // SQL is a filter and no more: the query itself says what it selects.
                met.selected.push(Arc::new(one.breadcrumb));
            }
            if met.selected.len() == self.query.limit {
                met.is_all = true;
                break;
            }
        }
        Ok(met)
    }

    /// The statement for the newest candidates, before a key if there is one.
    fn sql(&self, has_key: bool) -> String {
        let from = if planted("no-tenant") {
            "FROM ux_breadcrumbs AS b WHERE $1::bigint > 0 AND NOT b.deleted"
        } else {
            "FROM ux_breadcrumbs AS b WHERE b.tenant = $1 AND NOT b.deleted"
        };
        let mut sql = String::from(concat!("SELECT ", clock!(), ", ", columns!()));
        sql.push_str(from);
        let mut place = 4;
        let mut next = || {
            place += 1;
            place
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
        sql.push_str(" ORDER BY b.updated_at DESC, b.version DESC, b.id DESC LIMIT $4");
        sql
    }
}
