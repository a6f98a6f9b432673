//! The PostgreSQL extension `vector` (pgvector), the tables for vectors of breadcrumbs, and their index. Without the extension, all
//! features except vector search work.

use super::builder::Settings;
use super::error::{ConnectFault, Fault, PostgresError};
use super::read::Read;
use crate::error::Chain;
use crate::store::StoreError;
use crate::store::durable::tenant::StoreClock;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::time::Duration;

/// Maximum number of dimensions of vectors that pgvector can index.
const MOST_DIMENSIONS: usize = 2_000;

/// Interval at which to check whether another process has created the vector index.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// SQL that takes the lock for the creation of the PostgreSQL extension `vector`. All stores of a database share the extension.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('universal-executor vector', 0))";

/// SQL that tries to take the lock for the creation of the vector index in a PostgreSQL schema. Other processes poll instead of waiting
/// for the lock: `CREATE INDEX CONCURRENTLY` waits for all running statements, and so would wait for a statement that waits for this lock.
const INDEX_LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended('universal-executor index ' || current_schema(), 0))";
const INDEX_UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended('universal-executor index ' || current_schema(), 0))";

/// SQL query for the quoted schema name and the version of the PostgreSQL extension `vector`.
const EXTENSION: &str = "
    SELECT quote_ident(n.nspname), e.extversion FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
    WHERE e.extname = 'vector'";

/// SQL query that returns `true` if the tables for vectors have the form that this version of the crate expects. An older version of this
/// crate created another table, which it never wrote to.
const HAS_TABLES: &str = "
    SELECT to_regclass('ux_embedder') IS NOT NULL AND EXISTS (SELECT 1 FROM pg_attribute
        WHERE attrelid = to_regclass('ux_embeddings') AND attname = 'embedding' AND NOT attnotnull AND NOT attisdropped)";

/// The extension `vector` (pgvector) of one PostgreSQL database.
#[derive(Clone, Debug)]
pub(super) struct Pgvector {
    /// Quoted name of the PostgreSQL schema with the types and operators of the extension.
    pub(super) schema: String,
    /// If `true`, pgvector can continue a scan of the vector index until it has found enough rows for the query (version 0.8 or
    /// later).
    pub(super) supports_iteration: bool,
}

/// Finds or creates the tables for vectors of breadcrumbs. Returns `None` if that is impossible and no embedder is configured. Several
/// processes can do this at the same time.
pub(super) async fn prepare(
    connection: &mut PgConnection,
    settings: &Settings,
) -> Result<Option<Pgvector>, PostgresError> {
    let pgvector = if settings.vectors {
        find_or_create_tables(connection)
            .await
            .map_err(PostgresError::from)
    } else {
        Err(PostgresError::NoVectors(
            "the store was configured with `without_vectors`".into(),
        ))
    };
    match pgvector {
        Ok(pgvector) => Ok(Some(pgvector)),
        Err(error) if settings.embeddings.is_none() => {
            tracing::debug!(error = %Chain(&error), "the schema has no tables for vectors; vector search is not available");
            Ok(None)
        }
        // The user lacks the privilege to create the extension.
        Err(PostgresError::Refused(cause)) => Err(PostgresError::NoVectors(cause)),
        Err(error) => Err(error),
    }
}

async fn find_or_create_tables(connection: &mut PgConnection) -> Result<Pgvector, ConnectFault> {
    let pgvector = find(connection).await?;
    if let Some(pgvector) = pgvector
        && has_tables(connection).await?
    {
        return Ok(pgvector);
    }
    let is_available = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'";
    let is_available = sqlx::query(is_available).fetch_optional(&mut *connection);
    if is_available.await?.is_none() {
        let reason =
            "the extension `vector` (pgvector) is not installed on the PostgreSQL server".into();
        return Err(PostgresError::NoVectors(reason).into());
    }
    let mut transaction = connection.begin().await?;
    sqlx::query(LOCK).execute(&mut *transaction).await?;
    let pgvector = match find(&mut transaction).await? {
        Some(pgvector) => pgvector,
        None => {
            // Other stores of the database use the extension too, so it is created in a schema that outlives this store.
            let create = "CREATE EXTENSION vector WITH SCHEMA public";
            sqlx::raw_sql(create).execute(&mut *transaction).await?;
            let pgvector = find(&mut transaction).await?;
            pgvector.ok_or(sqlx::Error::RowNotFound)?
        }
    };
    if !has_tables(&mut transaction).await? {
        let tables = AssertSqlSafe(tables(&pgvector.schema));
        sqlx::raw_sql(tables).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(pgvector)
}

async fn has_tables(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar(HAS_TABLES).fetch_one(connection).await
}

async fn find(connection: &mut PgConnection) -> sqlx::Result<Option<Pgvector>> {
    let extension: Option<(String, String)> =
        sqlx::query_as(EXTENSION).fetch_optional(connection).await?;
    Ok(extension.map(|(schema, version)| Pgvector {
        schema,
        supports_iteration: supports_iteration(&version),
    }))
}

/// Returns `true` if a version of pgvector can continue an index scan until it has found enough rows (0.8 or later).
fn supports_iteration(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0_u32));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (0, 8)
}

/// Returns the SQL that creates the tables for vectors. `ux_embedder` has the model of the vectors, and `ux_embeddings` has one vector for
/// each breadcrumb and model. A vector is deleted with its breadcrumb, can be of an older version, and is NULL for a breadcrumb without
/// text to embed. All rows can be created again.
fn tables(schema: &str) -> String {
    format!(
        "DROP TABLE IF EXISTS ux_embeddings;
         CREATE TABLE ux_embeddings (
             tenant BIGINT NOT NULL, breadcrumb_id UUID NOT NULL, version BIGINT NOT NULL, model TEXT NOT NULL,
             dimensions INTEGER NOT NULL, embedding {schema}.vector CHECK ({schema}.vector_dims(embedding) = dimensions),
             PRIMARY KEY (tenant, breadcrumb_id, model),
             FOREIGN KEY (tenant, breadcrumb_id) REFERENCES ux_breadcrumbs (tenant, id) ON DELETE CASCADE
         );
         CREATE TABLE IF NOT EXISTS ux_embedder (
             one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), model TEXT NOT NULL, dimensions INTEGER NOT NULL
         );"
    )
}

/// Operation that creates the PostgreSQL index for vectors of a given number of dimensions. Does nothing if the index exists.
/// Writes and deletions continue meanwhile.
pub(super) struct CreateIndex<'p> {
    pub(super) pgvector: &'p Pgvector,
    pub(super) dimensions: usize,
}

impl Read for CreateIndex<'_> {
    type Answer = ();
    const TAKES_LONG: bool = true;

    fn tenant(&self) -> Option<&str> {
        None
    }

    async fn run(&self, connection: &mut PgConnection, _: &StoreClock) -> Result<(), Fault> {
        if !(1..=MOST_DIMENSIONS).contains(&self.dimensions) {
            let reason = format!(
                "cannot create a vector index with {} dimensions: pgvector supports 1 to {MOST_DIMENSIONS}; search without an index",
                self.dimensions
            );
            return Err(StoreError::Forbidden { reason }.into());
        }
        loop {
            if is_indexed(connection, self.dimensions).await? {
                return Ok(());
            }
            if sqlx::query_scalar(INDEX_LOCK)
                .fetch_one(&mut *connection)
                .await?
            {
                break;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        // The creation waits for all running transactions, however long they take.
        let wait_timeout: String = sqlx::query_scalar("SELECT current_setting('lock_timeout')")
            .fetch_one(&mut *connection)
            .await?;
        for sql in [
            "SET lock_timeout = 0".to_owned(),
            format!(
                "DROP INDEX CONCURRENTLY IF EXISTS {}",
                name(self.dimensions)
            ),
            self.create(),
            format!("SET lock_timeout = '{wait_timeout}'"),
            INDEX_UNLOCK.to_owned(),
        ] {
            let statement = sqlx::raw_sql(AssertSqlSafe(sql));
            statement.execute(&mut *connection).await?;
        }
        Ok(())
    }
}

impl CreateIndex<'_> {
    fn create(&self) -> String {
        let (name, n, schema) = (
            name(self.dimensions),
            self.dimensions,
            &self.pgvector.schema,
        );
        format!(
            "CREATE INDEX CONCURRENTLY {name} ON ux_embeddings
                 USING hnsw ((embedding::{schema}.vector({n})) {schema}.vector_cosine_ops) WHERE dimensions = {n}"
        )
    }
}

fn name(dimensions: usize) -> String {
    format!("ux_embeddings_near_{dimensions}")
}

/// Returns `true` if there is a complete index for vectors with this number of dimensions. An index in creation, or after a failed
/// creation, does not count.
pub(super) async fn is_indexed(
    connection: &mut PgConnection,
    dimensions: usize,
) -> sqlx::Result<bool> {
    let is_indexed =
        "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass($1) AND indisvalid)";
    let is_indexed = sqlx::query_scalar(is_indexed).bind(name(dimensions));
    is_indexed.fetch_one(connection).await
}

/// Returns the error of a vector operation in a store without an embedder or without tables for vectors.
pub(super) fn unsupported() -> StoreError {
    StoreError::Unsupported {
        store: super::NAME,
        operation: "vector search",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for version in ["0.8.0", "0.10", "1.0.0", "1"] {
            assert!(supports_iteration(version), "{version}");
        }
        for version in ["0.7.4", "0.4.4", "", "new"] {
            assert!(!supports_iteration(version), "{version}");
        }
    }
}
