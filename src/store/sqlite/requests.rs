//! Requests that start runs, in the SQLite store, where an idempotency key ensures that a repeated request creates no second run.

use super::builder::SqliteLimits;
use super::column::{blob, id, number};
use super::error::Fault;
use super::tenant::TenantTransaction;
use super::{NAME, stage};
use crate::model::BreadcrumbId;
use crate::store::request::{RecordedKey, ValidRequest};
use crate::store::{Requested, StoreError, Write};
use rusqlite::OptionalExtension as _;

/// SQL query for the tenant's idempotency keys (of requests for runs) whose last check is longest ago. A column is 1 if the run
/// of the key exists.
pub(super) const OLD: &str = "
    SELECT q.executor, q.request_key, EXISTS (SELECT 1 FROM ux_runs AS r WHERE r.tenant = ?1
            AND r.executor = q.executor AND r.trigger_id = q.trigger_id AND r.trigger_version = q.version)
    FROM ux_requests AS q WHERE q.tenant = ?1 AND q.checked_at <= ?2 ORDER BY q.checked_at LIMIT ?3";

const DELETE: &str =
    "DELETE FROM ux_requests WHERE tenant = ?1 AND executor = ?2 AND request_key = ?3";

const RENEW: &str = "
    UPDATE ux_requests SET checked_at = ?4 WHERE tenant = ?1 AND executor = ?2 AND request_key = ?3";

/// Maximum number of old idempotency keys that one request for a run checks for deletion, unless the tenant has reached its limit
/// of keys. At the limit, a request checks up to [`ValidRequest::SWEPT_IF_FULL`] keys.
const SWEPT: usize = 64;

/// Answer to a caller that requested a run, or the error that the tenant has too many idempotency keys. The second value is
/// `true` if further expired breadcrumbs may remain in the store. The error is part of the result, because the transaction must
/// keep the checks of old keys.
pub(super) type RequestOutcome = (Result<Requested, StoreError>, bool);

/// Creates the breadcrumb that triggers a requested run, unless an earlier request has the same idempotency key.
pub(super) fn request(
    transaction: &mut TenantTransaction<'_>,
    request: &ValidRequest,
) -> Result<RequestOutcome, Fault> {
    if let Some(recorded) = find(transaction, request)? {
        return Ok((Ok(request.answer(&recorded)?), false));
    }
    let limit = limit(transaction.limits);
    let is_full = |transaction: &TenantTransaction<'_>| {
        usize::try_from(transaction.tenant.requests).unwrap_or_default() >= limit
    };
    let most = match is_full(transaction) {
        true => ValidRequest::SWEPT_IF_FULL,
        false => SWEPT,
    };
    sweep(transaction, most)?;
    if is_full(transaction) {
        return Ok((Err(ValidRequest::full(NAME, limit)), false));
    }
    let writes = vec![Write::Create(request.breadcrumb.clone())];
    let (committed, has_expired) = stage::commit(transaction, writes, None)?;
    let breadcrumb = committed.written.into_iter().next();
    let breadcrumb = breadcrumb.ok_or(StoreError::NotFound {
        id: BreadcrumbId::NIL,
        tombstone: None,
    })?;
    insert(transaction, request, &request.recorded(&breadcrumb))?;
    Ok((Ok(Requested::Created { breadcrumb }), has_expired))
}

/// Returns the maximum number of idempotency keys that the ledger stores for one tenant's requests.
fn limit(limits: &SqliteLimits) -> usize {
    limits.open_runs.saturating_add(limits.finished_runs)
}

fn find(
    transaction: &TenantTransaction<'_>,
    request: &ValidRequest,
) -> rusqlite::Result<Option<RecordedKey>> {
    let mut find = transaction.sql(
        "SELECT trigger_id, version, digest FROM ux_requests WHERE tenant = ?1 AND executor = ?2 AND request_key = ?3",
    )?;
    let values = (transaction.tenant.id, &*request.executor, &*request.key);
    let recorded = find.query_row(values, |row| {
        Ok(RecordedKey {
            id: id(row, 0)?,
            version: number(row, 1)?,
            digest: row.get(2)?,
        })
    });
    recorded.optional()
}

fn insert(
    transaction: &mut TenantTransaction<'_>,
    request: &ValidRequest,
    recorded: &RecordedKey,
) -> rusqlite::Result<()> {
    let mut insert = transaction.sql(
        "INSERT INTO ux_requests (tenant, executor, request_key, trigger_id, version, digest, checked_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    insert.execute((
        transaction.tenant.id,
        &*request.executor,
        &*request.key,
        blob(recorded.id),
        recorded.version.cast_signed(),
        &recorded.digest,
        transaction.now.as_micros(),
    ))?;
    transaction.tenant.requests += 1;
    Ok(())
}

/// Deletes the tenant's old idempotency keys of requests whose runs no longer exist. Postpones the next check of an old key whose
/// run exists. Checks up to `most` keys.
fn sweep(transaction: &mut TenantTransaction<'_>, most: usize) -> rusqlite::Result<()> {
    let tenant = transaction.tenant.id;
    let renewed_at = ValidRequest::renewed_at(transaction.now).as_micros();
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let until = ValidRequest::from_validated_text(transaction.now).as_micros();
    let mut old = transaction.sql(OLD)?;
    let old = old.query_map((tenant, until, most), |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let old: Vec<(String, String, bool)> = old.collect::<Result<_, _>>()?;
    for (executor, key, has_run) in old {
        if has_run {
            let renewed = (tenant, executor, key, renewed_at);
            transaction.sql(RENEW)?.execute(renewed)?;
        } else {
            transaction.sql(DELETE)?.execute((tenant, executor, key))?;
            transaction.tenant.requests -= 1;
        }
    }
    Ok(())
}
