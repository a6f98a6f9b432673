//! Vectors of breadcrumbs in SQLite. Triggers of the tables delete a vector when its breadcrumb changes or is deleted, so no statement can
//! miss that.

use super::cache::{VectorCache, VectorKey};
use super::column::blob;
use super::error::Fault;
use super::tenant::TenantTransaction;
use super::{search, table};
use crate::model::Timestamp;
use crate::store::embedding::{
    BreadcrumbVector, EmbedError, EmbeddingConfig, Nearest, UnembeddedPage, from_bytes, similarity,
    to_bytes,
};
use crate::store::{Scored, StoreError, VectorQuery};
use rusqlite::{Connection, OptionalExtension, Statement};
use std::sync::Arc;

/// SQL query for the vector of the breadcrumb with a row ID.
pub(super) const OF: &str =
    "SELECT vector FROM ux_vectors WHERE serial = ?1 AND vector IS NOT NULL";

/// SQL query for a tenant's breadcrumbs that were updated after a time, each with a flag that is 1 if the breadcrumb has no vector.
pub(super) const WITHOUT: &str = "
    SELECT b.updated_at, b.serial, v.serial IS NULL
    FROM ux_breadcrumbs AS b INDEXED BY ux_breadcrumbs_by_time LEFT JOIN ux_vectors AS v ON v.serial = b.serial
    WHERE b.tenant = ?1 AND b.deleted = 0 AND b.updated_at > ?2 ORDER BY b.updated_at LIMIT ?3";

/// Deletes all stored vectors of breadcrumbs if `forgets` is `true`, and stores the embedding model's name in the SQLite file if
/// the file names none.
///
/// The inner result is an error if the stored vectors come from another model. Then nothing was changed.
pub(super) fn prepare(
    connection: &Connection,
    config: Option<&EmbeddingConfig>,
    forgets: bool,
) -> rusqlite::Result<Result<(), EmbedError>> {
    if forgets {
        connection.execute_batch("DELETE FROM ux_vectors; DELETE FROM ux_embedder")?;
    }
    let Some(config) = config else {
        return Ok(Ok(()));
    };
    if let Some(stored_model) = stored_model(connection)? {
        return Ok(config.check(&stored_model.model, stored_model.dimensions));
    }
    let dimensions = i64::try_from(config.dimensions()).unwrap_or(i64::MAX);
    let insert = "INSERT INTO ux_embedder VALUES (1, ?1, ?2, random())";
    connection.execute(insert, (config.model(), dimensions))?;
    Ok(Ok(()))
}

/// Returns the identifier of the SQLite file's current set of vectors. Fails if the stored vectors come from another model: another
/// process can have opened the file with `forget_vectors` and another embedder.
pub(super) fn check(connection: &Connection, config: &EmbeddingConfig) -> Result<i64, Fault> {
    let stored_model = stored_model(connection)?.unwrap_or_default();
    let checked = config.check(&stored_model.model, stored_model.dimensions);
    checked.map_err(|error: EmbedError| StoreError::from(error))?;
    Ok(stored_model.generation)
}

/// Embedding model of the stored vectors, and the identifier of the set of vectors.
#[derive(Default)]
struct StoredModel {
    model: String,
    dimensions: usize,
    generation: i64,
}

fn stored_model(connection: &Connection) -> rusqlite::Result<Option<StoredModel>> {
    let mut stored_model =
        connection.prepare_cached("SELECT model, dimensions, since FROM ux_embedder")?;
    let stored_model = stored_model.query_row((), |row| {
        let dimensions: i64 = row.get(1)?;
        Ok(StoredModel {
            model: row.get(0)?,
            dimensions: usize::try_from(dimensions).unwrap_or_default(),
            generation: row.get(2)?,
        })
    });
    stored_model.optional()
}

/// Returns breadcrumbs whose current version has no stored vector.
pub(super) fn without(
    connection: &Connection,
    tenant: i64,
    after: Timestamp,
    most: usize,
    now: Timestamp,
) -> Result<UnembeddedPage, Fault> {
    /// Maximum number of breadcrumbs that one read checks for missing vectors.
    const ROWS: i64 = 4_096;
    let (mut found, mut until, mut checked_rows) = (Vec::new(), after, 0);
    let mut rows = connection.prepare_cached(WITHOUT)?;
    let mut rows = rows.query((tenant, after.as_micros(), ROWS))?;
    while found.len() < most
        && let Some(row) = rows.next()?
    {
        checked_rows += 1;
        until = Timestamp::from_micros(row.get(0)?);
        if row.get(2)? {
            let stored = table::at(connection, row.get(1)?)?;
            let stored = stored.filter(|stored| stored.is_live(now));
            found.extend(stored.map(|stored| Arc::new(stored.breadcrumb)));
        }
    }
    Ok(UnembeddedPage {
        more: found.len() == most || checked_rows == ROWS,
        found,
        until,
    })
}

/// Stores vectors of breadcrumb versions that are still current.
pub(super) fn put(
    transaction: &mut TenantTransaction<'_>,
    config: &EmbeddingConfig,
    made: &[BreadcrumbVector],
) -> Result<(), Fault> {
    check(transaction.connection, config)?;
    let mut put = transaction.sql(
        "INSERT OR IGNORE INTO ux_vectors SELECT serial, ?4 FROM ux_breadcrumbs
         WHERE tenant = ?1 AND id = ?2 AND version = ?3 AND deleted = 0",
    )?;
    for BreadcrumbVector {
        id,
        version,
        vector,
    } in made
    {
        let vector = vector.as_deref().map(to_bytes);
        put.execute((
            transaction.tenant.id,
            blob(*id),
            version.cast_signed(),
            vector,
        ))?;
    }
    Ok(())
}

/// Parameters of a vector search in SQLite, with the unit vector of the query's text.
pub(super) struct VectorSearch<'q> {
    pub(super) query: &'q VectorQuery,
    pub(super) query_vector: &'q [f32],
    pub(super) config: &'q EmbeddingConfig,
    pub(super) cache: &'q VectorCache,
}

/// Returns the breadcrumbs that a query selects and whose vectors are nearest to the query's. Ends early with a partial result if the
/// caller stops waiting.
pub(super) fn nearest(
    connection: &Connection,
    tenant: i64,
    parameters: &VectorSearch<'_>,
    now: Timestamp,
    has_caller: &dyn Fn() -> bool,
) -> Result<Vec<Scored>, Fault> {
    let (query, query_vector) = (parameters.query, parameters.query_vector);
    let generation = check(connection, parameters.config)?;
    let mut nearest = Nearest::new(query);
    let mut vector = vec![0.0; query_vector.len()];
    let mut vectors = connection.prepare_cached(OF)?;
    let mut cached = parameters.cache.search(generation, query_vector.len());
    search::each_candidate(connection, tenant, &query.query, |time, serial| {
        let key = VectorKey {
            tenant,
            serial,
            time,
        };
        let score = match cached.get(key) {
            Some(known) => similarity(known, query_vector),
            None if read(&mut vectors, serial, &mut vector)? => {
                cached.add_missing(key, &vector);
                similarity(&vector, query_vector)
            }
            None => return Ok(has_caller()),
        };
        if nearest.accepts(score)
            && let Some(stored) = table::at(connection, serial)?
            && stored.is_live(now)
            && query.query.selects(&stored.breadcrumb)
        {
            nearest.add(score, Arc::new(stored.breadcrumb));
        }
        Ok(has_caller())
    })?;
    cached.end();
    Ok(nearest.into_scored())
}

/// Reads the vector of the breadcrumb with a row ID. Returns `false` if the row has none.
fn read(vectors: &mut Statement<'_>, serial: i64, vector: &mut [f32]) -> rusqlite::Result<bool> {
    let mut rows = vectors.query([serial])?;
    match rows.next()? {
        Some(row) => Ok(from_bytes(row.get_ref(0)?.as_blob()?, vector)),
        None => Ok(false),
    }
}
