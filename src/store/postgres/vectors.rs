//! A table for vectors of breadcrumbs, where the server has the extension `vector` (pgvector): nothing writes to it yet.
//! Without the extension everything else works.

use super::NAME;
use super::database::Read;
use super::error::Fault;
use super::tenant::Time;
use crate::store::StoreError;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// The most dimensions that an index can have.
const MOST_DIMENSIONS: u32 = 2_000;

/// All stores of a database share the extension, so those who make it wait for each other.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('universal-executor vector', 0))";

/// One vector of each breadcrumb and model, which goes with the breadcrumb. It may be of an older version. The type is in
/// the schema of the extension.
const TABLE: &str = "
    SELECT format('CREATE TABLE IF NOT EXISTS ux_embeddings (
        tenant BIGINT NOT NULL, breadcrumb_id UUID NOT NULL, version BIGINT NOT NULL, model TEXT NOT NULL,
        dimensions INTEGER NOT NULL, embedding %1$I.vector NOT NULL CHECK (%1$I.vector_dims(embedding) = dimensions),
        PRIMARY KEY (tenant, breadcrumb_id, model),
        FOREIGN KEY (tenant, breadcrumb_id) REFERENCES ux_breadcrumbs (tenant, id) ON DELETE CASCADE
    )', n.nspname) FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'";

/// An index for the vectors of one model, which have to have the same number of dimensions.
const INDEX: &str = "
    SELECT format('CREATE INDEX IF NOT EXISTS %I ON ux_embeddings
        USING hnsw ((embedding::%2$I.vector(%3$s)) %2$I.vector_cosine_ops) WHERE model = %4$L AND dimensions = %3$s',
        'ux_embeddings_' || left(md5($1), 16) || '_' || $2, n.nspname, $2, $1)
    FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'";

const HAS_TABLE: &str = "SELECT to_regclass('ux_embeddings') IS NOT NULL";

/// Makes the table if the extension can be had, and says whether there is one. Several processes may do so at once.
pub(super) async fn prepare(connection: &mut PgConnection) -> bool {
    match make_table(connection).await {
        Ok(has_table) => has_table,
        Err(error) => {
            tracing::debug!(%error, "there is no table for vectors");
            false
        }
    }
}

async fn make_table(connection: &mut PgConnection) -> sqlx::Result<bool> {
    if sqlx::query_scalar(HAS_TABLE)
        .fetch_one(&mut *connection)
        .await?
    {
        return Ok(true);
    }
    let is_installed =
        "SELECT installed_version IS NOT NULL FROM pg_available_extensions WHERE name = 'vector'";
    let is_installed = sqlx::query_scalar::<_, bool>(is_installed).fetch_optional(&mut *connection);
    let Some(is_installed) = is_installed.await? else {
        tracing::debug!("there is no table for vectors: the server does not have the extension");
        return Ok(false);
    };
    let mut transaction = connection.begin().await?;
    sqlx::query(LOCK).execute(&mut *transaction).await?;
    if !is_installed {
        // In a schema that outlives this store: others of the database use it as well.
        let create = "CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public";
        sqlx::raw_sql(create).execute(&mut *transaction).await?;
    }
    let table: String = sqlx::query_scalar(TABLE)
        .fetch_one(&mut *transaction)
        .await?;
    let table = sqlx::raw_sql(AssertSqlSafe(table));
    table.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Makes an index for the vectors of a model, unless there is one.
pub(super) struct Index<'m> {
    pub(super) model: &'m str,
    pub(super) dimensions: u32,
}

impl Read for Index<'_> {
    type Answer = ();

    async fn run(&self, connection: &mut PgConnection, _: &Time) -> Result<(), Fault> {
        if !(1..=MOST_DIMENSIONS).contains(&self.dimensions) {
            let reason = format!(
                "an index of vectors has 1 to {MOST_DIMENSIONS} dimensions, not {}",
                self.dimensions
            );
            return Err(StoreError::Forbidden { reason }.into());
        }
        let mut transaction = connection.begin().await?;
        sqlx::query(LOCK).execute(&mut *transaction).await?;
        let index = sqlx::query_scalar(INDEX)
            .bind(self.model)
            .bind(self.dimensions.to_string());
        let index: String = index.fetch_one(&mut *transaction).await?;
        let index = sqlx::raw_sql(AssertSqlSafe(index));
        index.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// There is no table.
pub(super) fn unsupported() -> StoreError {
    StoreError::Unsupported {
        store: NAME,
        operation: "vector search",
    }
}
