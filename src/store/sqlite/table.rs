//! Rows of breadcrumbs and tombstones in the SQLite table `ux_breadcrumbs`.

use super::column::{blob, id, json, json_array, lineage, number, tags, time};
use super::tenant::TenantTransaction;
use crate::model::{Breadcrumb, BreadcrumbId, Json, Sensitivity, Timestamp, Visibility};
use crate::store::durable::stored_breadcrumb::{self, BreadcrumbWriter};
use crate::store::row::Origin;
use crate::store::{Lineage, RunRef};
use rusqlite::{Connection, OptionalExtension, Row};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) type StoredBreadcrumb = stored_breadcrumb::StoredBreadcrumb<i64>;

pub(super) const BY_ID: &str = "
    SELECT serial, id, version, schema_name, updated_at, created_at, ttl, deleted, visibility, sensitivity, created_by,
           updated_by, title, description, semantic_version, tags, llm_hints, context
    FROM ux_breadcrumbs WHERE tenant = ?1 AND id = ?2";

const BY_SERIAL: &str = "
    SELECT serial, id, version, schema_name, updated_at, created_at, ttl, deleted, visibility, sensitivity, created_by,
           updated_by, title, description, semantic_version, tags, llm_hints, context
    FROM ux_breadcrumbs WHERE serial = ?1";

/// Returns a breadcrumb or its tombstone by ID.
pub(super) fn find(
    connection: &Connection,
    tenant: i64,
    id: BreadcrumbId,
) -> rusqlite::Result<Option<StoredBreadcrumb>> {
    let mut statement = connection.prepare_cached(BY_ID)?;
    statement.query_row((tenant, blob(id)), read).optional()
}

/// Returns the breadcrumb or tombstone with a row ID.
pub(super) fn at(
    connection: &Connection,
    serial: i64,
) -> rusqlite::Result<Option<StoredBreadcrumb>> {
    let mut statement = connection.prepare_cached(BY_SERIAL)?;
    statement.query_row([serial], read).optional()
}

/// Returns the current version of a breadcrumb, or of its tombstone, and the ID of the executor that wrote this version. The
/// executor is `None` for a write outside of a run.
pub(super) fn writer(
    connection: &Connection,
    tenant: i64,
    id: BreadcrumbId,
) -> rusqlite::Result<Option<(u64, Option<Arc<str>>)>> {
    let mut writer = connection.prepare_cached(
        "SELECT version, writer FROM ux_breadcrumbs WHERE tenant = ?1 AND id = ?2",
    )?;
    let row = writer.query_row((tenant, blob(id)), |row| Ok((number(row, 0)?, row.get(1)?)));
    row.optional()
}

/// Returns the origin of a run's trigger: the run's own executor, or the chain of runs that led to the trigger. Returns
/// [`Origin::Unknown`] if the trigger's version is not the current one.
pub(super) fn origin(
    connection: &Connection,
    tenant: i64,
    run: &RunRef,
) -> rusqlite::Result<Origin> {
    let mut writer = connection.prepare_cached(
        "SELECT writer, correlation, hops FROM ux_breadcrumbs WHERE tenant = ?1 AND id = ?2 AND version = ?3",
    )?;
    let row = writer.query_row(
        (
            tenant,
            blob(run.trigger_id),
            run.trigger_version.cast_signed(),
        ),
        |row| {
            let executor: Option<String> = row.get(0)?;
            Ok((executor, lineage(row, 1)?))
        },
    );
    Ok(match row.optional()? {
        None => Origin::Unknown,
        Some((Some(executor), _)) if *executor == *run.executor => Origin::Own,
        Some((_, Some(lineage))) => Origin::Known(lineage),
        Some((_, None)) => Origin::Known(Lineage::origin(run.trigger_id)),
    })
}

/// Adds the row of a new breadcrumb, and its tags, to the SQLite tables.
pub(super) fn insert(
    transaction: &mut TenantTransaction<'_>,
    new: &Breadcrumb,
    writer: Option<&BreadcrumbWriter>,
) -> rusqlite::Result<()> {
    let mut insert = transaction.sql(
        "INSERT INTO ux_breadcrumbs (tenant, id, version, schema_name, updated_at, created_at, ttl, deleted,
             visibility, sensitivity, writer, correlation, hops, created_by, updated_by, title, description,
             semantic_version, tags, llm_hints, context)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
    )?;
    let serial = insert.insert(rusqlite::params![
        transaction.tenant.id,
        blob(new.id),
        new.version.cast_signed(),
        new.schema_name,
        new.updated_at.as_micros(),
        new.created_at.as_micros(),
        new.ttl.map(Timestamp::as_micros),
        visibility(new.visibility),
        sensitivity(new.sensitivity),
        writer.map(|writer| &*writer.executor),
        writer.map(|writer| &*writer.lineage.correlation_id),
        writer.map(|writer| writer.lineage.hops),
        new.created_by,
        new.updated_by,
        new.title,
        new.description,
        new.semantic_version,
        json_array(&new.tags),
        new.llm_hints.as_ref().map(Json::to_string),
        new.context.to_string(),
    ])?;
    transaction.tenant.breadcrumbs += 1;
    add_tags(transaction, serial, new)
}

/// Replaces a breadcrumb's row by its next version or its tombstone.
pub(super) fn replace(
    transaction: &mut TenantTransaction<'_>,
    before: &StoredBreadcrumb,
    new: &Breadcrumb,
    is_tombstone: bool,
    writer: Option<&BreadcrumbWriter>,
) -> rusqlite::Result<()> {
    remove_tags(transaction, &before.breadcrumb)?;
    let mut update = transaction.sql(
        "UPDATE ux_breadcrumbs SET version = ?2, schema_name = ?3, updated_at = ?4, ttl = ?5, deleted = ?6,
             visibility = ?7, sensitivity = ?8, writer = ?9, correlation = ?10, hops = ?11, updated_by = ?12,
             title = ?13, description = ?14, semantic_version = ?15, tags = ?16, llm_hints = ?17, context = ?18
         WHERE serial = ?1",
    )?;
    update.execute(rusqlite::params![
        before.row_id,
        new.version.cast_signed(),
        new.schema_name,
        new.updated_at.as_micros(),
        new.ttl.map(Timestamp::as_micros),
        is_tombstone,
        visibility(new.visibility),
        sensitivity(new.sensitivity),
        writer.map(|writer| &*writer.executor),
        writer.map(|writer| &*writer.lineage.correlation_id),
        writer.map(|writer| writer.lineage.hops),
        new.updated_by,
        new.title,
        new.description,
        new.semantic_version,
        json_array(&new.tags),
        new.llm_hints.as_ref().map(Json::to_string),
        new.context.to_string(),
    ])?;
    if is_tombstone {
        transaction.tenant.breadcrumbs -= 1;
        transaction.tenant.tombstones += 1;
        return Ok(());
    }
    add_tags(transaction, before.row_id, new)
}

/// SQL query for the tenant's breadcrumbs whose expiry time has passed, the longest expired first.
pub(super) const EXPIRED: &str = "
    SELECT serial FROM ux_breadcrumbs WHERE tenant = ?1 AND ttl <= ?2 AND ttl IS NOT NULL AND deleted = 0
    ORDER BY ttl LIMIT ?3";

/// Removes expired breadcrumbs of the tenant, at most `most`. Returns `true` if it found `most`, so that there may be more.
pub(super) fn expire(
    transaction: &mut TenantTransaction<'_>,
    most: usize,
) -> rusqlite::Result<bool> {
    let mut expired = transaction.sql(EXPIRED)?;
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let expired = expired.query_map(
        (transaction.tenant.id, transaction.now.as_micros(), limit),
        |row| row.get(0),
    )?;
    let expired: Vec<i64> = expired.collect::<rusqlite::Result<_>>()?;
    let has_reached_limit = expired.len() == most;
    for serial in expired {
        let Some(stored) = at(transaction.connection, serial)? else {
            continue;
        };
        remove_tags(transaction, &stored.breadcrumb)?;
        transaction
            .sql("DELETE FROM ux_breadcrumbs WHERE serial = ?1")?
            .execute([serial])?;
        transaction.tenant.breadcrumbs -= 1;
    }
    Ok(has_reached_limit)
}

fn add_tags(
    transaction: &TenantTransaction<'_>,
    serial: i64,
    new: &Breadcrumb,
) -> rusqlite::Result<()> {
    let mut insert = transaction.sql("INSERT INTO ux_tags VALUES (?1, ?2, ?3, ?4, ?5)")?;
    // A breadcrumb can have a tag more than once.
    for tag in new.tags.iter().collect::<BTreeSet<_>>() {
        insert.execute((
            transaction.tenant.id,
            tag,
            new.updated_at.as_micros(),
            serial,
            &new.schema_name,
        ))?;
    }
    Ok(())
}

fn remove_tags(transaction: &TenantTransaction<'_>, before: &Breadcrumb) -> rusqlite::Result<()> {
    let mut delete = transaction
        .sql("DELETE FROM ux_tags WHERE tenant = ?1 AND tag = ?2 AND updated_at = ?3")?;
    for tag in before.tags.iter().collect::<BTreeSet<_>>() {
        delete.execute((transaction.tenant.id, tag, before.updated_at.as_micros()))?;
    }
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<StoredBreadcrumb> {
    let hints: Option<String> = row.get(16)?;
    let breadcrumb = Breadcrumb {
        id: id(row, 1)?,
        owner_id: None,
        schema_name: row.get(3)?,
        title: row.get(12)?,
        description: row.get(13)?,
        semantic_version: row.get(14)?,
        tags: tags(row, 15)?,
        context: json(17, row.get(17)?)?,
        llm_hints: hints.map(|hints| json(16, hints)).transpose()?,
        visibility: match row.get(8)? {
            0 => Visibility::Public,
            1 => Visibility::Team,
            2 => Visibility::Private,
            other => return Err(rusqlite::Error::IntegralValueOutOfRange(8, other)),
        },
        sensitivity: match row.get(9)? {
            0 => Sensitivity::Low,
            1 => Sensitivity::Pii,
            2 => Sensitivity::Secret,
            other => return Err(rusqlite::Error::IntegralValueOutOfRange(9, other)),
        },
        version: number(row, 2)?,
        ttl: time(row, 6)?,
        ttl_type: None,
        created_at: Timestamp::from_micros(row.get(5)?),
        updated_at: Timestamp::from_micros(row.get(4)?),
        created_by: row.get(10)?,
        updated_by: row.get(11)?,
    };
    Ok(StoredBreadcrumb {
        row_id: row.get(0)?,
        breadcrumb,
        deleted: row.get(7)?,
    })
}

const fn visibility(visibility: Visibility) -> i64 {
    match visibility {
        Visibility::Public => 0,
        Visibility::Team => 1,
        Visibility::Private => 2,
    }
}

const fn sensitivity(sensitivity: Sensitivity) -> i64 {
    match sensitivity {
        Sensitivity::Low => 0,
        Sensitivity::Pii => 1,
        Sensitivity::Secret => 2,
    }
}
