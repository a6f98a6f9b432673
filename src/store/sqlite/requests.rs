//! The keys of requests.

use super::column::{blob, id, number};
use super::error::Fault;
use super::tenant::Writing;
use super::{NAME, stage};
use crate::model::BreadcrumbId;
use crate::store::request::{Checked, Recorded};
use crate::store::{Requested, StoreError, Write};
use rusqlite::OptionalExtension as _;

/// The oldest keys, by the times of their last checks.
pub(super) const OLDEST: &str = "
    SELECT number, checked_at FROM ux_requests WHERE tenant = ?1 ORDER BY number LIMIT ?2";

/// Deletes the keys up to a number that have no run.
pub(super) const DELETE: &str = "
    DELETE FROM ux_requests WHERE tenant = ?1 AND number <= ?2 AND NOT EXISTS (SELECT 1 FROM ux_runs AS r
        WHERE r.tenant = ?1 AND r.executor = ux_requests.executor AND r.trigger_id = ux_requests.trigger_id
            AND r.trigger_version = ux_requests.version)";

/// Makes the keys up to a number the most recently checked ones.
pub(super) const RENEW: &str = "
    UPDATE ux_requests SET checked_at = ?3, number = number + ?4 WHERE tenant = ?1 AND number <= ?2";

/// Creates the breadcrumb of a request, unless an earlier request has its key. Says too whether more breadcrumbs than were removed
/// may be over.
pub(super) fn request(
    writing: &mut Writing<'_>,
    request: Checked,
) -> Result<(Requested, bool), Fault> {
    if let Some(recorded) = find(writing, &request)? {
        return Ok((request.answer(&recorded)?, false));
    }
    sweep(writing)?;
    let limits = writing.limits;
    let most = limits.open_runs.saturating_add(limits.finished_runs);
    let (first, last) = range(writing)?;
    if usize::try_from(last - first).unwrap_or(usize::MAX) >= most {
        return Err(Checked::full(NAME, most).into());
    }
    let writes = vec![Write::Create(request.breadcrumb.clone())];
    let (committed, has_expired) = stage::commit(writing, writes, None)?;
    let breadcrumb = committed.written.into_iter().next();
    let breadcrumb = breadcrumb.ok_or(StoreError::NotFound {
        id: BreadcrumbId::NIL,
        tombstone: None,
    })?;
    let mut insert = writing.sql(
        "INSERT INTO ux_requests (tenant, executor, request_key, trigger_id, version, digest, number, checked_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    insert.execute((
        writing.tenant.id,
        &*request.executor,
        &*request.key,
        blob(breadcrumb.id),
        breadcrumb.version.cast_signed(),
        request.digest,
        last + 1,
        writing.now.as_micros(),
    ))?;
    Ok((Requested::Created { breadcrumb }, has_expired))
}

fn find(writing: &Writing<'_>, request: &Checked) -> rusqlite::Result<Option<Recorded>> {
    let mut find = writing.sql(
        "SELECT trigger_id, version, digest FROM ux_requests WHERE tenant = ?1 AND executor = ?2 AND request_key = ?3",
    )?;
    let values = (writing.tenant.id, &*request.executor, &*request.key);
    let found = find.query_row(values, |row| {
        Ok(Recorded {
            id: id(row, 0)?,
            version: number(row, 1)?,
            digest: row.get(2)?,
        })
    });
    found.optional()
}

/// The number before the first key, and the number of the last key. Their difference is at least the number of keys.
fn range(writing: &Writing<'_>) -> rusqlite::Result<(i64, i64)> {
    let one = |sql| -> rusqlite::Result<Option<i64>> {
        let mut one = writing.sql(sql)?;
        one.query_row([writing.tenant.id], |row| row.get(0))
    };
    let first = one("SELECT min(number) FROM ux_requests WHERE tenant = ?1")?;
    let last = one("SELECT max(number) FROM ux_requests WHERE tenant = ?1")?;
    Ok((first.map_or(0, |first| first - 1), last.unwrap_or(0)))
}

/// Deletes old keys without a run.
fn sweep(writing: &Writing<'_>) -> rusqlite::Result<()> {
    let (tenant, now) = (writing.tenant.id, writing.now.as_micros());
    let until = Checked::checked_before(writing.now).as_micros();
    let most = i64::try_from(Checked::SWEPT).unwrap_or(i64::MAX);
    let mut oldest = writing.sql(OLDEST)?;
    let oldest = oldest.query_map((tenant, most), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut old = None;
    for key in oldest {
        let (number, checked_at): (i64, i64) = key?;
        if checked_at > until {
            break;
        }
        old = Some(number);
    }
    if let Some(old) = old {
        writing.sql(DELETE)?.execute((tenant, old))?;
        let (before, last) = range(writing)?;
        let renewed = (tenant, old, now, last - before);
        writing.sql(RENEW)?.execute(renewed)?;
    }
    Ok(())
}
