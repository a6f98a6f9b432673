//! Vector search in PostgreSQL: the server sorts the candidates by distance, and this module checks each candidate against the whole query.
//!
//! This module computes each score again with [`similarity`], so that all stores return the same results. The server sums in another
//! order, and its distances can have a small rounding error. The search therefore reads candidates until their distance exceeds the
//! limit by more than this error.

use super::column;
use super::error::Fault;
use super::pgvector::Pgvector;
use super::read::Read;
use super::search::{SNAPSHOT, SqlConditions};
use super::table::{self, columns};
use super::tenant::{TenantHandle, clock};
use super::vectors;
use crate::model::Timestamp;
use crate::store::durable::tenant::StoreClock;
use crate::store::embedding::{EmbeddingConfig, Nearest, similarity};
use crate::store::{Scored, VectorQuery};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use std::sync::Arc;

/// Maximum number of candidate rows on one page of a vector search.
const PAGE: usize = 256;
/// Number of rows that the first page of a vector search reads beyond the query's limit, to make up for expired breadcrumbs. It applies to
/// queries without conditions, which SQL can check completely, except for the expiry.
const SPARE: usize = 8;

/// Read that searches one tenant's breadcrumbs for the nearest vectors.
pub(super) struct VectorSearch<'q> {
    pub(super) tenant: &'q TenantHandle,
    pub(super) query: &'q VectorQuery,
    /// Unit vector of the query's text.
    pub(super) query_vector: &'q [f32],
    pub(super) config: &'q EmbeddingConfig,
    pub(super) pgvector: &'q Pgvector,
    /// If `true`, there is an approximate PostgreSQL index for the vectors.
    pub(super) is_indexed: bool,
}

impl Read for VectorSearch<'_> {
    type Answer = Vec<Scored>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &StoreClock,
    ) -> Result<Vec<Scored>, Fault> {
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(Vec::new());
        };
        let Some(conditions) = SqlConditions::of(tenant, &self.query.query, time) else {
            return Ok(Vec::new());
        };
        if self.is_indexed
            && let Some(scored) = self.by_index(&conditions, connection).await?
        {
            return Ok(scored);
        }
        let mut progress = VectorSearchProgress::new(self);
        let page = self.page();
        let rows = self
            .rows(&conditions, SearchMethod::Exact, Some(page), connection)
            .await?;
        if rows.is_empty() {
            // Without rows, the vectors may have been deleted, or replaced by vectors of another model.
            vectors::check(connection, self.config).await?;
        }
        let is_last = rows.len() < page;
        if progress.add_rows(rows)? || is_last {
            return Ok(progress.nearest.into_scored());
        }
        self.all(&conditions, connection).await
    }
}

/// Method of a vector search on the server: exact, or by the approximate index.
#[derive(Clone, Copy)]
enum SearchMethod {
    Exact,
    ByIndex,
}

impl VectorSearch<'_> {
    /// Returns the size of a vector search's first page in rows.
    fn page(&self) -> usize {
        let query = &self.query.query;
        if query.selector.conditions().is_empty() {
            query.limit.min(PAGE) + SPARE
        } else {
            PAGE
        }
    }

    /// Searches for the nearest vectors with the approximate index, or returns `None` if the index yields too few breadcrumbs. An
    /// approximate index can miss some.
    async fn by_index(
        &self,
        conditions: &SqlConditions<'_>,
        connection: &mut PgConnection,
    ) -> Result<Option<Vec<Scored>>, Fault> {
        let page = self.page();
        let mut snapshot = connection
            .begin_with(AssertSqlSafe(self.settings(page)))
            .await?;
        let rows = self
            .rows(conditions, SearchMethod::ByIndex, Some(page), &mut snapshot)
            .await?;
        snapshot.commit().await?;
        let mut progress = VectorSearchProgress::new(self);
        let is_enough = progress.add_rows(rows)? || progress.nearest.is_full();
        Ok(is_enough.then(|| progress.nearest.into_scored()))
    }

    /// Returns the SQL statements that begin a transaction for a search with the approximate vector index, and that set the
    /// search's number of candidates. The server plans each statement with its parameters, so that it compares few selected rows
    /// without the index.
    fn settings(&self, page: usize) -> String {
        /// Maximum value of pgvector's setting `hnsw.ef_search`.
        const MOST: usize = 1_000;
        let breadth = page.saturating_mul(8).clamp(200, MOST);
        let iterates = if self.pgvector.supports_iteration {
            "SET LOCAL hnsw.iterative_scan = strict_order;"
        } else {
            ""
        };
        format!(
            "BEGIN READ ONLY; {iterates} SET LOCAL hnsw.ef_search = {breadth};
             SET LOCAL plan_cache_mode = force_custom_plan"
        )
    }

    /// Reads candidate breadcrumbs of a vector search page by page through an SQL cursor until the result is complete. The server
    /// sorts the candidates once.
    async fn all(
        &self,
        conditions: &SqlConditions<'_>,
        connection: &mut PgConnection,
    ) -> Result<Vec<Scored>, Fault> {
        let mut snapshot = connection.begin_with(SNAPSHOT).await?;
        self.rows(conditions, SearchMethod::Exact, None, &mut snapshot)
            .await?;
        let fetch = format!("FETCH {PAGE} FROM near");
        let mut progress = VectorSearchProgress::new(self);
        loop {
            let rows = sqlx::query(AssertSqlSafe(fetch.as_str()))
                .fetch_all(&mut *snapshot)
                .await?;
            let is_last = rows.len() < PAGE;
            if progress.add_rows(rows)? || is_last {
                break;
            }
        }
        snapshot.commit().await?;
        Ok(progress.nearest.into_scored())
    }

    /// Returns the first `most` candidate rows of a vector search, or declares an SQL cursor over all rows if `most` is `None`.
    async fn rows(
        &self,
        conditions: &SqlConditions<'_>,
        method: SearchMethod,
        most: Option<usize>,
        connection: &mut PgConnection,
    ) -> sqlx::Result<Vec<PgRow>> {
        let sql = self.sql(conditions, method, most.is_some());
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(conditions.tenant)
            .bind(conditions.time.stopped_at())
            .bind(conditions.time.shift())
            .bind(most.map(|most| most.cast_signed() as i64))
            .bind(self.query_vector)
            .bind(column::name(self.config.model()))
            .bind(vectors::dimensions(self.config));
        conditions
            .bind(rows, conditions.query.before)
            .fetch_all(connection)
            .await
    }

    /// Returns the SQL statement of a vector search, nearest rows first. The inner query sorts the rows by distance, and the outer query
    /// reads their columns.
    fn sql(&self, conditions: &SqlConditions<'_>, method: SearchMethod, is_page: bool) -> String {
        /// Number of SQL parameters before the parameters of the query's filter.
        const PARAMETERS: usize = 7;
        let (schema, n) = (&self.pgvector.schema, self.query_vector.len());
        let (distance, dimensions_condition) = match method {
            // The inner product of two unit vectors is their cosine. `<#>` returns the negative inner product.
            SearchMethod::Exact => (
                format!("1 + (e.embedding OPERATOR({schema}.<#>) $5::real[]::{schema}.vector)"),
                String::from("e.dimensions = $7"),
            ),
            SearchMethod::ByIndex => (
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
        let filter = conditions.filter(PARAMETERS, conditions.query.before.is_some());
        format!(
            concat!(
                "{declare}SELECT ",
                clock!(),
                ", n.distance, e.embedding::real[], ",
                columns!(),
                "FROM (SELECT b.serial, {distance} AS distance FROM ux_breadcrumbs AS b JOIN ux_embeddings AS e
                     ON e.tenant = $1 AND e.breadcrumb_id = b.id AND e.version = b.version AND e.model = $6 AND {dimensions_condition}
                 WHERE b.tenant = $1 AND NOT b.deleted AND e.embedding IS NOT NULL{filter}
                     AND EXISTS (SELECT 1 FROM ux_embedder AS k WHERE k.model = $6 AND k.dimensions = $7)
                 ORDER BY distance LIMIT $4) AS n
                 JOIN ux_breadcrumbs AS b ON b.serial = n.serial
                 JOIN ux_embeddings AS e ON e.tenant = $1 AND e.breadcrumb_id = b.id AND e.model = $6
                 ORDER BY n.distance"
            ),
            declare = declare, distance = distance, dimensions_condition = dimensions_condition, filter = filter
        )
    }
}

/// Result so far of a vector search.
struct VectorSearchProgress<'q> {
    search: &'q VectorSearch<'q>,
    nearest: Nearest<'q>,
    /// Maximum rounding error of the vector distances that the server computes.
    rounding_error: f64,
}

impl<'q> VectorSearchProgress<'q> {
    fn new(search: &'q VectorSearch<'q>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "there are few dimensions")]
        let rounding_error = search.query_vector.len() as f64 * f64::from(f32::EPSILON);
        Self {
            search,
            nearest: Nearest::new(search.query),
            rounding_error,
        }
    }

    /// Adds breadcrumbs of the next candidate rows to the result of the vector search. The rows must be sorted, nearest first. Returns
    /// `true` if no further row can be in the result.
    fn add_rows(&mut self, rows: Vec<PgRow>) -> sqlx::Result<bool> {
        for row in rows {
            let distance: f64 = row.try_get(1)?;
            if !self.nearest.accepts(1.0 - distance + self.rounding_error) {
                return Ok(true);
            }
            let vector: Vec<f32> = row.try_get(2)?;
            let score = similarity(&vector, self.search.query_vector);
            if self.nearest.accepts(score) {
                let now: Timestamp = column::time(&row, 0)?;
                let stored = table::read(&row, 3)?;
                // SQL is only a prefilter. `Query::selects` decides.
                if stored.is_live(now) && self.search.query.query.selects(&stored.breadcrumb) {
                    self.nearest.add(score, Arc::new(stored.breadcrumb));
                }
            }
        }
        Ok(false)
    }
}
