//! The breadcrumbs of a tenant as rows.

use super::column::{self, Id, id, json, lineage, number, some_time, time, unreadable};
use super::database::Read;
use super::error::Fault;
use super::tenant::{Named, Time, Writing, clock};
use crate::model::{Breadcrumb, BreadcrumbId, Json, Sensitivity, Timestamp, Visibility};
use crate::store::row::Origin;
use crate::store::{Lineage, RunRef, StoreError};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::sync::Arc;

/// A breadcrumb, or what is left of it.
pub(super) struct Found {
    pub(super) breadcrumb: Breadcrumb,
    pub(super) deleted: bool,
}

/// Which run wrote a version.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) executor: Arc<str>,
    pub(super) lineage: Lineage,
}

impl Found {
    /// Whether it is there at a time: neither deleted nor over.
    pub(super) fn lives(&self, now: Timestamp) -> bool {
        !self.deleted && self.breadcrumb.ttl.is_none_or(|end| now < end)
    }

    /// The breadcrumb if it is there, else why it is not.
    pub(super) fn living(
        found: Option<Self>,
        id: BreadcrumbId,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        match found {
            Some(found) if found.lives(now) => Ok(found),
            Some(Self {
                breadcrumb,
                deleted: true,
                ..
            }) => Err(StoreError::NotFound {
                id,
                tombstone: Some(Arc::new(breadcrumb)),
            }),
            Some(_) | None => Err(StoreError::NotFound {
                id,
                tombstone: None,
            }),
        }
    }
}

/// The columns of a breadcrumb `b`, in the order in which [`read`] wants them.
macro_rules! columns {
    () => {
        "b.id, b.version, b.schema_name, b.updated_at, b.created_at, b.ttl, b.deleted, b.visibility, b.sensitivity,
         b.created_by, b.updated_by, b.title, b.description, b.semantic_version, b.tags, b.llm_hints, b.context "
    };
}
pub(super) use columns;

/// A breadcrumb or its tombstone, for a job that may change it.
pub(super) async fn find(
    connection: &mut PgConnection,
    tenant: i64,
    id: BreadcrumbId,
) -> sqlx::Result<Option<Found>> {
    let found = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        "FROM ux_breadcrumbs AS b WHERE b.tenant = $1 AND b.id = $2"
    ));
    let row = found
        .bind(tenant)
        .bind(Id::from(id))
        .fetch_optional(connection);
    row.await?.map(|row| read(&row, 0)).transpose()
}

/// Reads a breadcrumb that is there.
pub(super) struct Get<'t> {
    pub(super) tenant: &'t Named,
    pub(super) id: BreadcrumbId,
}

impl Read for Get<'_> {
    type Answer = Breadcrumb;

    async fn run(&self, connection: &mut PgConnection, clock: &Time) -> Result<Breadcrumb, Fault> {
        let none = || StoreError::NotFound {
            id: self.id,
            tombstone: None,
        };
        let tenant = self.tenant.id(connection).await?.ok_or_else(none)?;
        let found = get(connection, tenant, self.id, clock).await?;
        let (found, now) = found.ok_or_else(none)?;
        Ok(Found::living(Some(found), self.id, now)?.breadcrumb)
    }
}

/// A breadcrumb or its tombstone, and what the clock shows.
async fn get(
    connection: &mut PgConnection,
    tenant: i64,
    id: BreadcrumbId,
    clock: &Time,
) -> sqlx::Result<Option<(Found, Timestamp)>> {
    let found = sqlx::query(concat!(
        "SELECT ",
        clock!(),
        ", ",
        columns!(),
        "FROM ux_breadcrumbs AS b WHERE b.tenant = $1 AND b.id = $4"
    ));
    let found = found
        .bind(tenant)
        .bind(clock.held())
        .bind(clock.shift())
        .bind(Id::from(id));
    let Some(row) = found.fetch_optional(connection).await? else {
        return Ok(None);
    };
    Ok(Some((read(&row, 1)?, time(&row, 0)?)))
}

/// What is known of where the trigger of a run comes from: nothing, if the version is not the current one.
pub(super) async fn origin(
    connection: &mut PgConnection,
    tenant: i64,
    run: &RunRef,
) -> sqlx::Result<Origin> {
    let writer = sqlx::query(
        "SELECT writer, correlation, hops FROM ux_breadcrumbs WHERE tenant = $1 AND id = $2 AND version = $3",
    );
    let writer = writer
        .bind(tenant)
        .bind(Id::from(run.trigger_id))
        .bind(run.trigger_version.cast_signed());
    match writer.fetch_optional(connection).await? {
        None => Ok(Origin::Unknown),
        Some(row) => origin_of(&row, 0, run),
    }
}

/// Where the trigger of a run comes from, whose writer, correlation and hops are in these columns.
fn origin_of(row: &PgRow, column: usize, run: &RunRef) -> sqlx::Result<Origin> {
    let executor: Option<String> = row.try_get(column)?;
    let is_own = executor
        .map(column::of_name)
        .is_some_and(|executor| *executor == *run.executor);
    Ok(match lineage(row, column + 1)? {
        _ if is_own => Origin::Own,
        Some(lineage) => Origin::Known(lineage),
        None => Origin::Known(Lineage::origin(run.trigger_id)),
    })
}

/// Adds breadcrumbs, all in one statement.
pub(super) async fn insert(
    writing: &mut Writing<'_>,
    new: &[Arc<Breadcrumb>],
    writer: Option<&Writer>,
) -> sqlx::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let insert = sqlx::query(
        "INSERT INTO ux_breadcrumbs (tenant, id, version, updated_at, created_at, ttl, visibility, sensitivity, deleted,
             schema_name, writer, correlation, hops, created_by, updated_by, title, description, semantic_version, tags,
             llm_hints, context)
         SELECT $1, u.id, u.version, u.updated_at, u.created_at, u.ttl, u.visibility, u.sensitivity, FALSE,
             u.schema_name, $2, $3, $4, u.created_by, u.updated_by, u.title, u.description, u.semantic_version,
             ARRAY(SELECT json_array_elements_text(u.tags::json)), u.llm_hints, u.context
         FROM unnest($5::uuid[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::smallint[],
             $11::smallint[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[],
             $19::text[], $20::text[])
             AS u (id, version, updated_at, created_at, ttl, visibility, sensitivity, schema_name, created_by,
                 updated_by, title, description, semantic_version, tags, llm_hints, context)",
    );
    let insert = insert
        .bind(writing.tenant.id)
        .bind(writer.map(|writer| column::name(&writer.executor)))
        .bind(writer.map(|writer| column::name(&writer.lineage.correlation_id)))
        .bind(writer.map(|writer| i64::from(writer.lineage.hops)))
        .bind(all(new, |new| Id::from(new.id)))
        .bind(all(new, |new| new.version.cast_signed()))
        .bind(all(new, |new| new.updated_at.as_micros()))
        .bind(all(new, |new| new.created_at.as_micros()))
        .bind(all(new, |new| new.ttl.map(Timestamp::as_micros)))
        .bind(all(new, |new| visibility(new.visibility)))
        .bind(all(new, |new| sensitivity(new.sensitivity)))
        .bind(all(new, |new| new.schema_name.as_deref()))
        .bind(all(new, |new| new.created_by.as_deref()))
        .bind(all(new, |new| new.updated_by.as_deref()))
        .bind(all(new, |new| &*new.title))
        .bind(all(new, |new| new.description.as_deref()))
        .bind(all(new, |new| new.semantic_version.as_deref()))
        .bind(all(new, |new| texts(&new.tags)))
        .bind(all(new, |new| new.llm_hints.as_ref().map(Json::to_string)))
        .bind(all(new, |new| new.context.to_string()));
    insert.execute(&mut *writing.connection).await?;
    writing.tenant.breadcrumbs += new.len().cast_signed() as i64;
    Ok(())
}

fn all<'b, T>(new: &'b [Arc<Breadcrumb>], of: impl Fn(&'b Breadcrumb) -> T) -> Vec<T> {
    new.iter().map(|new| of(new)).collect()
}

/// Texts as a JSON array.
pub(super) fn texts(texts: &[String]) -> String {
    serde_json::Value::from(texts.to_vec()).to_string()
}

/// Puts a new version in the place of the one before, or its tombstone.
pub(super) async fn replace(
    writing: &mut Writing<'_>,
    new: &Breadcrumb,
    is_tombstone: bool,
    writer: Option<&Writer>,
) -> sqlx::Result<()> {
    let update = sqlx::query(
        "UPDATE ux_breadcrumbs SET version = $3, schema_name = $4, updated_at = $5, ttl = $6, deleted = $7,
             visibility = $8, sensitivity = $9, writer = $10, correlation = $11, hops = $12, updated_by = $13,
             title = $14, description = $15, semantic_version = $16, tags = $17, llm_hints = $18, context = $19
         WHERE tenant = $1 AND id = $2",
    );
    let update = update
        .bind(writing.tenant.id)
        .bind(Id::from(new.id))
        .bind(new.version.cast_signed())
        .bind(new.schema_name.as_deref())
        .bind(new.updated_at.as_micros())
        .bind(new.ttl.map(Timestamp::as_micros))
        .bind(is_tombstone)
        .bind(visibility(new.visibility))
        .bind(sensitivity(new.sensitivity))
        .bind(writer.map(|writer| column::name(&writer.executor)))
        .bind(writer.map(|writer| column::name(&writer.lineage.correlation_id)))
        .bind(writer.map(|writer| i64::from(writer.lineage.hops)))
        .bind(new.updated_by.as_deref())
        .bind(&*new.title)
        .bind(new.description.as_deref())
        .bind(new.semantic_version.as_deref())
        .bind(&new.tags)
        .bind(new.llm_hints.as_ref().map(Json::to_string))
        .bind(new.context.to_string());
    update.execute(&mut *writing.connection).await?;
    if is_tombstone {
        writing.tenant.breadcrumbs -= 1;
        writing.tenant.tombstones += 1;
    }
    Ok(())
}

/// Removes up to `most` breadcrumbs whose time is over, and says whether there were as many.
pub(super) async fn expire(writing: &mut Writing<'_>, most: usize) -> sqlx::Result<bool> {
    if !writing.has_expired {
        return Ok(false);
    }
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let delete = sqlx::query(
        "DELETE FROM ux_breadcrumbs WHERE serial IN (SELECT serial FROM ux_breadcrumbs
             WHERE tenant = $1 AND ttl <= $2 AND ttl IS NOT NULL AND NOT deleted ORDER BY ttl LIMIT $3)",
    );
    let delete = delete
        .bind(writing.tenant.id)
        .bind(writing.now.as_micros())
        .bind(limit);
    let removed = delete
        .execute(&mut *writing.connection)
        .await?
        .rows_affected();
    writing.tenant.breadcrumbs -= removed.cast_signed();
    Ok(removed.cast_signed() == limit)
}

/// The breadcrumb whose columns begin here.
pub(super) fn read(row: &PgRow, first: usize) -> sqlx::Result<Found> {
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
            _ => return Err(unreadable(at(7), "no visibility")),
        },
        sensitivity: match row.try_get::<i16, _>(at(8))? {
            0 => Sensitivity::Low,
            1 => Sensitivity::Pii,
            2 => Sensitivity::Secret,
            _ => return Err(unreadable(at(8), "no sensitivity")),
        },
        version: number(row, at(1))?,
        ttl: some_time(row, at(5))?,
        ttl_type: None,
        created_at: time(row, at(4))?,
        updated_at: time(row, at(3))?,
        created_by: row.try_get(at(9))?,
        updated_by: row.try_get(at(10))?,
    };
    Ok(Found {
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
