//! Vectors of breadcrumbs in PostgreSQL, and the embedding model that they come from. A vector has the version of its breadcrumb, and is
//! used for no other version.

use super::builder::Settings;
use super::column::{self, Id};
use super::error::{ConnectFault, Fault, PostgresError};
use super::pgvector::Pgvector;
use super::read::Read;
use super::statement::Statement;
use super::table;
use super::tenant::{TenantHandle, clock};
use crate::model::{BreadcrumbId, Timestamp};
use crate::store::StoreError;
use crate::store::durable::tenant::StoreClock;
use crate::store::embedding::{BreadcrumbVector, EmbedError, EmbeddingConfig, UnembeddedPage};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use std::sync::Arc;

/// Deletes all stored vectors if `forget_vectors` was set, and stores the name of the embedding model in the database. Fails if
/// the stored vectors come from another model.
pub(super) async fn prepare(
    connection: &mut PgConnection,
    settings: &Settings,
) -> Result<(), ConnectFault> {
    if settings.embeddings.is_none() && !settings.forgets_vectors {
        return Ok(());
    }
    let mut transaction = connection.begin().await?;
    if settings.forgets_vectors {
        let forget = "DELETE FROM ux_embedder; DELETE FROM ux_embeddings";
        sqlx::raw_sql(forget).execute(&mut *transaction).await?;
    }
    if let Some(config) = &settings.embeddings {
        let insert =
            "INSERT INTO ux_embedder (model, dimensions) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let insert = sqlx::query(insert)
            .bind(column::name(config.model()))
            .bind(dimensions(config));
        insert.execute(&mut *transaction).await?;
        compare(config, stored_model(&mut transaction).await?).map_err(PostgresError::from)?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Returns an error if the stored vectors come from another model than the store's embedder. For example, another process can have
/// opened the store with `forget_vectors`.
pub(super) async fn check(
    connection: &mut PgConnection,
    config: &EmbeddingConfig,
) -> Result<(), Fault> {
    let stored_model = stored_model(connection).await?;
    compare(config, stored_model).map_err(|error| StoreError::from(error).into())
}

/// Model name and number of dimensions of the stored vectors.
type StoredModel = Option<(String, i32)>;

async fn stored_model(connection: &mut PgConnection) -> sqlx::Result<StoredModel> {
    let stored_model = sqlx::query_as("SELECT model, dimensions FROM ux_embedder");
    stored_model.fetch_optional(connection).await
}

fn compare(config: &EmbeddingConfig, stored_model: StoredModel) -> Result<(), EmbedError> {
    let (model, dimensions) = stored_model.unwrap_or_default();
    let dimensions = usize::try_from(dimensions).unwrap_or_default();
    config.check(&column::of_name(model), dimensions)
}

pub(super) fn dimensions(config: &EmbeddingConfig) -> i32 {
    i32::try_from(config.dimensions()).unwrap_or(i32::MAX)
}

/// Adds the deletion of breadcrumbs' vectors to an SQL statement.
pub(super) fn delete_vectors(
    statement: &mut Statement,
    tenant: i64,
    of: impl Iterator<Item = BreadcrumbId>,
) {
    let of: Vec<Id> = of.map(Id::from).collect();
    if of.is_empty() {
        return;
    }
    statement
        .push(", forgotten AS (DELETE FROM ux_embeddings WHERE tenant = ")
        .push_bind(tenant)
        .push(" AND breadcrumb_id = ANY(")
        .push_bind(of)
        .push("))");
}

/// Read of breadcrumbs without a vector of their current version.
pub(super) struct MissingVectors<'t> {
    pub(super) tenant: &'t TenantHandle,
    pub(super) model: &'t str,
    pub(super) after: Timestamp,
    pub(super) most: usize,
}

/// SQL query for a tenant's breadcrumbs that were updated after a time, each with a flag that is true if its current version has no
/// vector.
const WITHOUT: &str = concat!(
    "SELECT ",
    clock!(),
    ", b.updated_at, b.id, e.tenant IS NULL FROM ux_breadcrumbs AS b
     LEFT JOIN ux_embeddings AS e
         ON e.tenant = b.tenant AND e.breadcrumb_id = b.id AND e.model = $4 AND e.version = b.version
     WHERE b.tenant = $1 AND NOT b.deleted AND b.updated_at > $5 ORDER BY b.updated_at LIMIT $6"
);

impl Read for MissingVectors<'_> {
    type Answer = UnembeddedPage;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &StoreClock,
    ) -> Result<UnembeddedPage, Fault> {
        /// Maximum number of breadcrumbs that one read checks for missing vectors.
        const ROWS: usize = 4_096;
        let mut page = UnembeddedPage {
            found: Vec::new(),
            until: self.after,
            more: false,
        };
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(page);
        };
        let rows = sqlx::query(WITHOUT)
            .bind(tenant)
            .bind(time.stopped_at())
            .bind(time.shift())
            .bind(column::name(self.model))
            .bind(self.after.as_micros())
            .bind(ROWS.cast_signed() as i64);
        let rows = rows.fetch_all(&mut *connection).await?;
        let (mut ids, mut now, mut checked_rows) = (Vec::new(), Timestamp::UNIX_EPOCH, 0);
        for row in &rows {
            if ids.len() == self.most {
                break;
            }
            checked_rows += 1;
            now = column::time(row, 0)?;
            page.until = column::time(row, 1)?;
            if row.try_get(3)? {
                ids.push(column::id(row, 2)?);
            }
        }
        page.more = checked_rows < rows.len() || checked_rows == ROWS;
        if !ids.is_empty() {
            let stored = table::find(connection, tenant, &ids).await?.into_iter();
            let live = stored.filter(|stored| stored.is_live(now));
            page.found = live.map(|stored| Arc::new(stored.breadcrumb)).collect();
        }
        Ok(page)
    }
}

/// Write that stores vectors of breadcrumb versions that are still current.
pub(super) struct PutVectors {
    pub(super) tenant: Arc<TenantHandle>,
    pub(super) pgvector: Pgvector,
    pub(super) config: EmbeddingConfig,
    pub(super) made: Vec<BreadcrumbVector>,
}

impl Read for PutVectors {
    type Answer = ();

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, _: &StoreClock) -> Result<(), Fault> {
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(());
        };
        let (mut numbers, mut offsets) = (Vec::new(), Vec::new());
        for made in &self.made {
            let offset = made.vector.as_ref().map(|vector| {
                let offset = i32::try_from(numbers.len()).unwrap_or(i32::MAX);
                numbers.extend_from_slice(vector);
                offset
            });
            offsets.push(offset);
        }
        let ids: Vec<Id> = self.made.iter().map(|made| Id::from(made.id)).collect();
        let versions: Vec<i64> = self
            .made
            .iter()
            .map(|made| made.version.cast_signed())
            .collect();
        let stored_model = sqlx::query_as(AssertSqlSafe(put(&self.pgvector)))
            .bind(tenant)
            .bind(ids)
            .bind(versions)
            .bind(offsets)
            .bind(numbers)
            .bind(column::name(self.config.model()))
            .bind(dimensions(&self.config));
        let stored_model: StoredModel = stored_model.fetch_optional(connection).await?;
        compare(&self.config, stored_model).map_err(|error| StoreError::from(error).into())
    }
}

/// Returns the SQL statement that stores vectors of breadcrumbs if the recorded model is the embedder's model. The statement returns the
/// recorded model. All vectors are concatenated in one parameter. A breadcrumb that another transaction deletes meanwhile gets no vector.
fn put(Pgvector { schema, .. }: &Pgvector) -> String {
    format!(
        "WITH put AS (
             INSERT INTO ux_embeddings AS kept (tenant, breadcrumb_id, version, model, dimensions, embedding)
             SELECT $1, u.id, u.version, $6, $7, ($5::real[])[u.place + 1 : u.place + $7]::{schema}.vector
             FROM unnest($2::uuid[], $3::bigint[], $4::integer[]) AS u (id, version, place)
             JOIN ux_breadcrumbs AS b ON b.tenant = $1 AND b.id = u.id AND b.version = u.version AND NOT b.deleted
             WHERE EXISTS (SELECT 1 FROM ux_embedder AS k WHERE k.model = $6 AND k.dimensions = $7)
             FOR KEY SHARE OF b
             ON CONFLICT (tenant, breadcrumb_id, model) DO UPDATE SET version = excluded.version,
                 dimensions = excluded.dimensions, embedding = excluded.embedding WHERE kept.version < excluded.version
         ) SELECT model, dimensions FROM ux_embedder"
    )
}
