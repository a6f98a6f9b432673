//! The nearest of what a query selects: in the order of the server, as far as SQL can tell, each looked at in full.
//!
//! How near they are is counted here once more, as every store does it, so that all find the same. The server counts the
//! same numbers in another order, and may be off by a little: so much more of its order is looked at.

use super::column;
use super::database::Read;
use super::error::Fault;
use super::pgvector::Pgvector;
use super::search::{Asked, SNAPSHOT};
use super::table::{self, columns};
use super::tenant::{Named, clock};
use super::vectors;
use crate::model::Timestamp;
use crate::store::durable::tenant::Time;
use crate::store::embedding::{EmbeddingConfig, Nearest, similarity};
use crate::store::{Scored, VectorQuery};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use std::sync::Arc;

/// How many rows are read at once.
const PAGE: usize = 256;
/// How many more than are wanted, where SQL tells all that is asked for but the end of their time.
const SPARE: usize = 8;

/// Reads the nearest of what a query selects.
pub(super) struct VectorSearch<'q> {
    pub(super) tenant: &'q Named,
    pub(super) query: &'q VectorQuery,
    /// What they shall be near to.
    pub(super) to: &'q [f32],
    pub(super) config: &'q EmbeddingConfig,
    pub(super) pgvector: &'q Pgvector,
    /// Whether there is an index, which finds nearly all of them.
    pub(super) is_indexed: bool,
}

impl Read for VectorSearch<'_> {
    type Answer = Vec<Scored>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, time: &Time) -> Result<Vec<Scored>, Fault> {
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(Vec::new());
        };
        let Some(asked) = Asked::of(tenant, &self.query.query, time) else {
            return Ok(Vec::new());
        };
        if self.is_indexed
            && let Some(found) = self.by_index(&asked, connection).await?
        {
            return Ok(found);
        }
        let mut found = Met::new(self);
        let page = self.page();
        let rows = self
            .rows(&asked, Way::Exact, Some(page), connection)
            .await?;
        if rows.is_empty() {
            // There may be none since they were forgotten.
            vectors::check(connection, self.config).await?;
        }
        let is_last = rows.len() < page;
        if found.take(rows)? || is_last {
            return Ok(found.nearest.into_scored());
        }
        self.all(&asked, connection).await
    }
}

/// How the server finds them.
#[derive(Clone, Copy)]
enum Way {
    Exact,
    ByIndex,
}

impl VectorSearch<'_> {
    /// How many rows the first page has.
    fn page(&self) -> usize {
        let query = &self.query.query;
        if query.selector.conditions().is_empty() {
            query.limit.min(PAGE) + SPARE
        } else {
            PAGE
        }
    }

    /// What an index finds. None if that is not enough: it may have passed over some that are selected.
    async fn by_index(
        &self,
        asked: &Asked<'_>,
        connection: &mut PgConnection,
    ) -> Result<Option<Vec<Scored>>, Fault> {
        let page = self.page();
        let mut snapshot = connection
            .begin_with(AssertSqlSafe(self.settings(page)))
            .await?;
        let rows = self
            .rows(asked, Way::ByIndex, Some(page), &mut snapshot)
            .await?;
        snapshot.commit().await?;
        let mut found = Met::new(self);
        let is_enough = found.take(rows)? || found.nearest.is_full();
        Ok(is_enough.then(|| found.nearest.into_scored()))
    }

    /// How thoroughly the index is searched. What is selected is planned for each time: few are compared without it.
    fn settings(&self, page: usize) -> String {
        /// What the extension allows.
        const MOST: usize = 1_000;
        let breadth = page.saturating_mul(8).clamp(200, MOST);
        let iterates = if self.pgvector.iterates {
            "SET LOCAL hnsw.iterative_scan = strict_order;"
        } else {
            ""
        };
        format!(
            "BEGIN READ ONLY; {iterates} SET LOCAL hnsw.ef_search = {breadth};
             SET LOCAL plan_cache_mode = force_custom_plan"
        )
    }

    /// All that are near enough, page by page. The server puts them in order once.
    async fn all(
        &self,
        asked: &Asked<'_>,
        connection: &mut PgConnection,
    ) -> Result<Vec<Scored>, Fault> {
        let mut snapshot = connection.begin_with(SNAPSHOT).await?;
        self.rows(asked, Way::Exact, None, &mut snapshot).await?;
        let fetch = format!("FETCH {PAGE} FROM near");
        let mut found = Met::new(self);
        loop {
            let rows = sqlx::query(AssertSqlSafe(fetch.as_str()))
                .fetch_all(&mut *snapshot)
                .await?;
            let is_last = rows.len() < PAGE;
            if found.take(rows)? || is_last {
                break;
            }
        }
        snapshot.commit().await?;
        Ok(found.nearest.into_scored())
    }

    /// The first rows, or a cursor over all of them.
    async fn rows(
        &self,
        asked: &Asked<'_>,
        way: Way,
        most: Option<usize>,
        connection: &mut PgConnection,
    ) -> sqlx::Result<Vec<PgRow>> {
        let sql = self.sql(asked, way, most.is_some());
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(asked.tenant)
            .bind(asked.time.held())
            .bind(asked.time.shift())
            .bind(most.map(|most| most.cast_signed() as i64))
            .bind(self.to)
            .bind(column::name(self.config.model()))
            .bind(vectors::dimensions(self.config));
        asked
            .bind(rows, asked.query.before)
            .fetch_all(connection)
            .await
    }

    /// The statement for what SQL can tell, nearest first: rows first, then what is in them.
    fn sql(&self, asked: &Asked<'_>, way: Way, is_page: bool) -> String {
        /// How many parameters come before those of what is asked for.
        const PARAMETERS: usize = 7;
        let (schema, n) = (&self.pgvector.schema, self.to.len());
        let (distance, which) = match way {
            // Of vectors of length one the product is the cosine.
            Way::Exact => (
                format!("1 + (e.embedding OPERATOR({schema}.<#>) $5::real[]::{schema}.vector)"),
                String::from("e.dimensions = $7"),
            ),
            Way::ByIndex => (
                format!(
                    "e.embedding::{schema}.vector({n}) OPERATOR({schema}.<=>) $5::real[]::{schema}.vector({n})"
                ),
                format!("e.dimensions = {n} AND e.dimensions = $7"),
            ),
        };
        let declare = if is_page {
            ""
        } else {
            "DECLARE near NO SCROLL CURSOR FOR "
        };
        let what = asked.filter(PARAMETERS, asked.query.before.is_some());
        format!(
            concat!(
                "{declare}SELECT ",
                clock!(),
                ", n.distance, e.embedding::real[], ",
                columns!(),
                "FROM (SELECT b.serial, {distance} AS distance FROM ux_breadcrumbs AS b JOIN ux_embeddings AS e
                     ON e.tenant = $1 AND e.breadcrumb_id = b.id AND e.version = b.version AND e.model = $6 AND {which}
                 WHERE b.tenant = $1 AND NOT b.deleted AND e.embedding IS NOT NULL{what}
                     AND EXISTS (SELECT 1 FROM ux_embedder AS k WHERE k.model = $6 AND k.dimensions = $7)
                 ORDER BY distance LIMIT $4) AS n
                 JOIN ux_breadcrumbs AS b ON b.serial = n.serial
                 JOIN ux_embeddings AS e ON e.tenant = $1 AND e.breadcrumb_id = b.id AND e.model = $6
                 ORDER BY n.distance"
            ),
            declare = declare, distance = distance, which = which, what = what
        )
    }
}

/// What was found so far.
struct Met<'q> {
    near: &'q VectorSearch<'q>,
    nearest: Nearest<'q>,
    /// How much the server may be off.
    blur: f64,
}

impl<'q> Met<'q> {
    fn new(near: &'q VectorSearch<'q>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "there are few dimensions")]
        let blur = near.to.len() as f64 * f64::from(f32::EPSILON);
        Self {
            near,
            nearest: Nearest::new(near.query),
            blur,
        }
    }

    /// Adds the next rows, nearest first, and says whether that was enough.
    fn take(&mut self, rows: Vec<PgRow>) -> sqlx::Result<bool> {
        for row in rows {
            let distance: f64 = row.try_get(1)?;
            if !self.nearest.wants(1.0 - distance + self.blur) {
                return Ok(true);
            }
            let vector: Vec<f32> = row.try_get(2)?;
            let score = similarity(&vector, self.near.to);
            if self.nearest.wants(score) {
                let now: Timestamp = column::time(&row, 0)?;
                let one = table::read(&row, 3)?;
                // SQL is a filter and no more: the query itself says what it selects.
                if one.lives(now) && self.near.query.query.selects(&one.breadcrumb) {
                    self.nearest.add(score, Arc::new(one.breadcrumb));
                }
            }
        }
        Ok(false)
    }
}
