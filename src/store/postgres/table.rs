//! Rows of breadcrumbs and tombstones in the PostgreSQL table `ux_breadcrumbs`.

use super::column::{self, Id, id, json, lineage, name_of, number, some_time, time, unreadable};
use super::error::Fault;
use super::read::Read;
use super::statement::Statement;
use super::tenant::{TenantHandle, clock, provisional_number};
use crate::model::{Breadcrumb, BreadcrumbId, Json, Sensitivity, Timestamp, Visibility};
use crate::store::durable::stored_breadcrumb::{BreadcrumbWriter, StoredBreadcrumb};
use crate::store::durable::tenant::StoreClock;
use crate::store::row::Origin;
use crate::store::{Lineage, RunRef, StoreError, WrittenBy};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::collections::HashMap;
use std::sync::Arc;

/// SQL of the columns of a breadcrumb's row with the table alias `b`, in the order in which [`read`] expects them.
macro_rules! columns {
    () => {
        "b.id, b.version, b.schema_name, b.updated_at, b.created_at, b.ttl, b.deleted, b.visibility, b.sensitivity,
         b.created_by, b.updated_by, b.title, b.description, b.semantic_version, b.tags, b.llm_hints, b.context "
    };
}
pub(super) use columns;

/// SQL that reads breadcrumbs or their tombstones by ID.
macro_rules! find {
    ($lock:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            "FROM ux_breadcrumbs AS b WHERE b.tenant = $1 AND b.id = ANY($2) ORDER BY b.id ",
            $lock
        )
    };
}

/// Reads breadcrumbs or their tombstones by ID without a lock.
pub(super) async fn find(
    connection: &mut PgConnection,
    tenant: i64,
    ids: &[BreadcrumbId],
) -> sqlx::Result<Vec<StoredBreadcrumb>> {
    let ids: Vec<Id> = ids.iter().copied().map(Id::from).collect();
    let rows = sqlx::query(find!("")).bind(tenant).bind(ids);
    let rows = rows.fetch_all(connection);
    rows.await?.iter().map(|row| read(row, 0)).collect()
}

/// SQL that each connection prepares to read breadcrumbs or their tombstones by ID and to lock their rows. The lock does not conflict with
/// the lock of a row that gets a vector.
pub(super) const FIND: &str = concat!(
    "PREPARE ux_find (bigint, uuid[]) AS ",
    find!("FOR NO KEY UPDATE")
);

/// Read of one breadcrumb by ID. Fails if it is deleted or expired.
pub(super) struct GetBreadcrumb<'t> {
    pub(super) tenant: &'t TenantHandle,
    pub(super) id: BreadcrumbId,
}

impl Read for GetBreadcrumb<'_> {
    type Answer = Breadcrumb;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        clock: &StoreClock,
    ) -> Result<Breadcrumb, Fault> {
        let none = || StoreError::NotFound {
            id: self.id,
            tombstone: None,
        };
        let tenant = self.tenant.id(connection).await?.ok_or_else(none)?;
        let stored = get(connection, tenant, self.id, clock).await?;
        let (stored, now) = stored.ok_or_else(none)?;
        Ok(StoredBreadcrumb::require_live(Some(stored), self.id, now)?.breadcrumb)
    }
}

/// Reads a breadcrumb or its tombstone by ID, and the store's clock.
async fn get(
    connection: &mut PgConnection,
    tenant: i64,
    id: BreadcrumbId,
    clock: &StoreClock,
) -> sqlx::Result<Option<(StoredBreadcrumb, Timestamp)>> {
    let query = sqlx::query(concat!(
        "SELECT ",
        clock!(),
        ", ",
        columns!(),
        "FROM ux_breadcrumbs AS b WHERE b.tenant = $1 AND b.id = $4"
    ));
    let query = query
        .bind(tenant)
        .bind(clock.stopped_at())
        .bind(clock.shift())
        .bind(Id::from(id));
    let Some(row) = query.fetch_optional(connection).await? else {
        return Ok(None);
    };
    Ok(Some((read(&row, 1)?, time(&row, 0)?)))
}

/// Read of the executors whose runs wrote versions of breadcrumbs.
pub(super) struct WriterQuery<'w> {
    pub(super) tenant: &'w TenantHandle,
    pub(super) versions: &'w [(BreadcrumbId, u64)],
}

impl Read for WriterQuery<'_> {
    type Answer = Vec<WrittenBy>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        _: &StoreClock,
    ) -> Result<Self::Answer, Fault> {
        let mut current = HashMap::new();
        if let Some(tenant) = self.tenant.id(connection).await? {
            let ids: Vec<Id> = self.versions.iter().map(|(id, _)| Id::from(*id)).collect();
            let writers = sqlx::query(
                "SELECT id, version, writer FROM ux_breadcrumbs WHERE tenant = $1 AND id = ANY($2)",
            );
            let writers = writers.bind(tenant).bind(ids).fetch_all(&mut *connection);
            for row in writers.await? {
                let executor: Option<String> = row.try_get(2)?;
                let executor = executor.map(|name| Arc::from(column::of_name(name)));
                current.insert(id(&row, 0)?, (number(&row, 1)?, executor));
            }
        }
        let written_by =
            |(id, version): &(BreadcrumbId, u64)| WrittenBy::of(*version, current.get(id).cloned());
        Ok(self.versions.iter().map(written_by).collect())
    }
}

/// Reads the origin of a run's trigger from a row of a query result, starting with the column at index `column`. The columns are:
/// `true` if the trigger's version is the current one, then its writer, correlation ID and hops.
pub(super) fn origin(row: &PgRow, column: usize, run: &RunRef) -> sqlx::Result<Origin> {
    let is_current: bool = row.try_get(column)?;
    if !is_current {
        return Ok(Origin::Unknown);
    }
    let executor: Option<String> = row.try_get(column + 1)?;
    let is_own = executor
        .map(column::of_name)
        .is_some_and(|executor| *executor == *run.executor);
    Ok(match lineage(row, column + 2)? {
        _ if is_own => Origin::Own,
        Some(lineage) => Origin::Known(lineage),
        None => Origin::Known(Lineage::origin(run.trigger_id)),
    })
}

/// A new version of a breadcrumb or its tombstone, and the run that wrote it.
#[derive(Debug)]
pub(super) struct NewVersion {
    pub(super) breadcrumb: Arc<Breadcrumb>,
    pub(super) is_tombstone: bool,
    pub(super) writer: Option<BreadcrumbWriter>,
}

/// Adds the insertion of new breadcrumbs to an SQL statement.
pub(super) fn insert(statement: &mut Statement, tenant: i64, new: &[NewVersion]) {
    if new.is_empty() {
        return;
    }
    statement.push(
        ", created AS (INSERT INTO ux_breadcrumbs (id, version, updated_at, created_at, ttl, deleted, visibility,
             sensitivity, schema_name, writer, correlation, hops, created_by, updated_by, title, description,
             semantic_version, tags, llm_hints, context, tenant) SELECT u.*, ",
    );
    statement.push_bind(tenant).push("::bigint FROM ");
    let new: Vec<&NewVersion> = new.iter().collect();
    push_columns(statement, &new);
    statement.push(")");
}

/// Adds the replacement of breadcrumbs by new versions or tombstones to an SQL statement.
pub(super) fn replace(statement: &mut Statement, tenant: i64, new: &[&NewVersion]) {
    if new.is_empty() {
        return;
    }
    statement.push(
        ", replaced AS (UPDATE ux_breadcrumbs AS b SET version = u.version, updated_at = u.updated_at, ttl = u.ttl,
             deleted = u.deleted, visibility = u.visibility, sensitivity = u.sensitivity, schema_name = u.schema_name,
             writer = u.writer, correlation = u.correlation, hops = u.hops, updated_by = u.updated_by, title = u.title,
             description = u.description, semantic_version = u.semantic_version, tags = u.tags,
             llm_hints = u.llm_hints, context = u.context FROM ",
    );
    push_columns(statement, new);
    // `LATERAL` looks up each row: a plan that was made before the server knew the size of the table would read all of it.
    statement
        .push(" CROSS JOIN LATERAL (SELECT k.serial FROM ux_breadcrumbs AS k WHERE k.id = u.id AND k.tenant = ")
        .push_bind(tenant)
        .push(" LIMIT 1) AS k WHERE b.serial = k.serial)");
}

/// Adds the columns of breadcrumbs to an SQL statement as a table with the alias `u`.
fn push_columns(statement: &mut Statement, rows: &[&NewVersion]) {
    fn all<'w, T>(rows: &[&'w NewVersion], of: impl Fn(&'w Breadcrumb) -> T) -> Vec<T> {
        rows.iter().map(|row| of(&row.breadcrumb)).collect()
    }
    fn of_writers<'w, T>(
        rows: &[&'w NewVersion],
        of: impl Fn(&'w BreadcrumbWriter) -> T,
    ) -> Vec<Option<T>> {
        rows.iter()
            .map(|row| row.writer.as_ref().map(&of))
            .collect()
    }
    let tombstones: Vec<bool> = rows.iter().map(|row| row.is_tombstone).collect();
    statement.push("(SELECT u.id, u.version, t.base + u.updated_at AS updated_at, t.base + u.created_at AS created_at, u.ttl, u.deleted, u.visibility, u.sensitivity,
             u.schema_name, u.writer, u.correlation, u.hops, u.created_by, u.updated_by, u.title, u.description,
             u.semantic_version, u.tags::text[] AS tags, u.llm_hints, u.context FROM t CROSS JOIN ");
    let columns = vec![
        all(rows, |row| Id::from(row.id)).into(),
        all(rows, |row| row.version.cast_signed()).into(),
        all(rows, |row| provisional_number(row.updated_at)).into(),
        all(rows, |row| provisional_number(row.created_at)).into(),
        all(rows, |row| row.ttl.map(Timestamp::as_micros)).into(),
        tombstones.into(),
        all(rows, |row| visibility(row.visibility)).into(),
        all(rows, |row| sensitivity(row.sensitivity)).into(),
        all(rows, |row| row.schema_name.clone()).into(),
        of_writers(rows, |writer| name_of(&writer.executor)).into(),
        of_writers(rows, |writer| name_of(&writer.lineage.correlation_id)).into(),
        of_writers(rows, |writer| i64::from(writer.lineage.hops)).into(),
        all(rows, |row| row.created_by.clone()).into(),
        all(rows, |row| row.updated_by.clone()).into(),
        all(rows, |row| row.title.clone()).into(),
        all(rows, |row| row.description.clone()).into(),
        all(rows, |row| row.semantic_version.clone()).into(),
        all(rows, |row| column::texts(&row.tags)).into(),
        all(rows, |row| row.llm_hints.as_ref().map(Json::to_string)).into(),
        all(rows, |row| row.context.to_string()).into(),
    ];
    statement.push_rows(rows.len(), columns, false);
    statement.push(
        " AS u (id, version, updated_at, created_at, ttl, deleted, visibility, sensitivity, schema_name, writer,
             correlation, hops, created_by, updated_by, title, description, semantic_version, tags, llm_hints,
             context)) AS u",
    );
}

/// Reads a breadcrumb or a tombstone from a row of a query result, starting with the column at index `first`.
pub(super) fn read(row: &PgRow, first: usize) -> sqlx::Result<StoredBreadcrumb> {
    let at = |column: usize| first + column;
    let hints: Option<String> = row.try_get(at(15))?;
    let breadcrumb = Breadcrumb {
        id: id(row, at(0))?,
        owner_id: None,
        schema_name: row.try_get(at(2))?,
        title: row.try_get(at(11))?,
        description: row.try_get(at(12))?,
        semantic_version: row.try_get(at(13))?,
        tags: row.try_get(at(14))?,
        context: json(at(16), row.try_get(at(16))?)?,
        llm_hints: hints.map(|hints| json(at(15), hints)).transpose()?,
        visibility: match row.try_get::<i16, _>(at(7))? {
            0 => Visibility::Public,
            1 => Visibility::Team,
            2 => Visibility::Private,
            _ => return Err(unreadable(at(7), "unknown visibility")),
        },
        sensitivity: match row.try_get::<i16, _>(at(8))? {
            0 => Sensitivity::Low,
            1 => Sensitivity::Pii,
            2 => Sensitivity::Secret,
            _ => return Err(unreadable(at(8), "unknown sensitivity")),
        },
        version: number(row, at(1))?,
        ttl: some_time(row, at(5))?,
        ttl_type: None,
        created_at: time(row, at(4))?,
        updated_at: time(row, at(3))?,
        created_by: row.try_get(at(9))?,
        updated_by: row.try_get(at(10))?,
    };
    Ok(StoredBreadcrumb {
        row_id: (),
        breadcrumb,
        deleted: row.try_get(at(6))?,
    })
}

const fn visibility(visibility: Visibility) -> i16 {
    match visibility {
        Visibility::Public => 0,
        Visibility::Team => 1,
        Visibility::Private => 2,
    }
}

const fn sensitivity(sensitivity: Sensitivity) -> i16 {
    match sensitivity {
        Sensitivity::Low => 0,
        Sensitivity::Pii => 1,
        Sensitivity::Secret => 2,
    }
}
