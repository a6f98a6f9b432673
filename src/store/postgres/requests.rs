//! Requests for runs in PostgreSQL, with idempotency keys so that a repeated request creates no second run. Keys are read with the other
//! rows that a transaction needs, and written with its changes. If another transaction records a key first, the transaction is repeated and
//! finds the key.

use super::NAME;
use super::commit_position::CommitPosition;
use super::error::Fault;
use super::facts::FactQuery;
use super::job::Job;
use super::request_keys::{RequestKey, limit};
use super::stage::create;
use super::transaction::{Counters, TenantTransaction};
use crate::store::request::{RecordedKey, ValidRequest};
use crate::store::{Requested, StoreError};
use sqlx::Row as _;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// SQL that deletes the tenant's oldest idempotency keys whose runs are no longer in the ledger. It postpones the next
/// check of each remaining key. `LATERAL` looks up each row separately, independent of the server's statistics. A transaction
/// that changes keys holds the lock on the tenant's row, so `ctid` values are stable.
const SWEEP: &str = "
    WITH old AS MATERIALIZED (SELECT o.row, r.has_run FROM (SELECT ctid AS row, executor, trigger_id, version
            FROM ux_requests WHERE tenant = $1 AND checked_at > 0 AND checked_at <= $2 ORDER BY checked_at LIMIT $4) AS o
        LEFT JOIN LATERAL (SELECT TRUE AS has_run FROM ux_runs AS r WHERE r.tenant = $1
            AND r.trigger_id = o.trigger_id AND r.trigger_version = o.version AND r.executor = o.executor LIMIT 1)
            AS r ON TRUE),
    deleted AS (DELETE FROM ux_requests WHERE ctid = ANY (ARRAY(SELECT o.row FROM old AS o WHERE o.has_run IS NULL))
        RETURNING 1),
    renewed AS (UPDATE ux_requests SET checked_at = $3 WHERE ctid = ANY (ARRAY(SELECT o.row FROM old AS o
        WHERE o.has_run)) RETURNING 1)
    SELECT (SELECT count(*) FROM deleted), (SELECT count(*) FROM renewed)";

/// Maximum number of old idempotency keys that one transaction checks for deletion.
pub(super) const SWEPT: usize = 1_024;

/// Store operation that creates the breadcrumb of a request for a run, unless an earlier request has the same idempotency key.
pub(super) struct Request(pub(super) ValidRequest);

impl Job for Request {
    /// Answer to the caller that requested a run, and a flag that is `true` if the tenant may have more expired breadcrumbs. The
    /// answer is an error if the tenant has too many idempotency keys. This error does not fail the job, because the transaction
    /// must still commit the checks of old keys.
    type Answer = (Result<Requested, StoreError>, bool);

    fn request_facts(&self, fact_query: &mut FactQuery) {
        fact_query.requests.insert(self.0.name());
    }

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<Self::Answer, Fault> {
        let request = &self.0;
        let name = request.name();
        if let Some(recorded) = transaction.requested(&name).await? {
            return Ok((Ok(request.answer(&recorded)?), false));
        }
        if is_full(transaction) {
            let limit = limit(transaction.limits);
            let full = transaction.limit_error(ValidRequest::full(NAME, limit));
            if transaction.counters == Counters::Exceeded {
                return Err(full.into());
            }
            delete_old_keys(transaction).await?;
            if is_full(transaction) {
                return Ok((Err(full), false));
            }
        }
        let (breadcrumb, has_expired) =
            match create(transaction, None, request.breadcrumb.clone()).await {
                // The transaction must keep the checks of old keys.
                Err(Fault::Refused(error))
                    if transaction.has_swept_keys && transaction.discard_job() =>
                {
                    return Ok((Err(error), false));
                }
                created => created?,
            };
        transaction.record(name, request.recorded(&breadcrumb));
        Ok((Ok(Requested::Created { breadcrumb }), has_expired))
    }

    fn finalize_times((requested, _): &mut Self::Answer, commit_position: &CommitPosition) {
        if let Ok(Requested::Created { breadcrumb }) = requested {
            commit_position.finalize_times(breadcrumb);
        }
    }
}

fn is_full(transaction: &TenantTransaction<'_>) -> bool {
    let keys = usize::try_from(transaction.tenant.requests).unwrap_or_default();
    keys >= limit(transaction.limits)
}

impl TenantTransaction<'_> {
    /// Returns the ledger record of an earlier request with the idempotency key `key`, or `None` for a new key. The function also
    /// finds the keys that this transaction adds.
    async fn requested(&mut self, key: &RequestKey) -> sqlx::Result<Option<RecordedKey>> {
        let job_changes = self.job_changes.requests.get(key);
        if let Some(recorded) = job_changes.or_else(|| self.earlier_changes.requests.get(key)) {
            return Ok(Some(recorded.clone()));
        }
        if !self.requests.contains_key(key) {
            let requests = BTreeSet::from([key.clone()]);
            let fact_query = FactQuery {
                requests,
                ..FactQuery::default()
            };
            self.read(fact_query).await?;
        }
        Ok(self.requests.get(key).cloned().flatten())
    }

    fn record(&mut self, key: RequestKey, recorded: RecordedKey) {
        self.job_changes.requests.insert(key, recorded);
        self.tenant.requests += 1;
    }
}

/// Deletes the tenant's old idempotency keys whose runs are no longer in the ledger, until the number of keys is below the limit.
/// Runs at most once in a transaction. Stops after two seconds, because other transactions wait for the tenant's row.
async fn delete_old_keys(transaction: &mut TenantTransaction<'_>) -> sqlx::Result<()> {
    const LONG: Duration = Duration::from_secs(2);
    if std::mem::replace(&mut transaction.has_swept_keys, true) {
        return Ok(());
    }
    // The tables must contain the runs that earlier jobs have added.
    transaction.flush().await?;
    let start = Instant::now();
    let mut checked = 0;
    while checked < ValidRequest::SWEPT_IF_FULL && is_full(transaction) && start.elapsed() < LONG {
        if !sweep(transaction, SWEPT).await? {
            break;
        }
        checked += SWEPT;
    }
    // The job can still fail without undoing these changes.
    transaction.accept_job();
    Ok(())
}

/// Checks the tenant's oldest idempotency keys, at most `most`, and deletes those whose runs are no longer in the ledger. Needs
/// the lock on the tenant's row. Returns `true` if there may be more old keys.
pub(super) async fn sweep(
    transaction: &mut TenantTransaction<'_>,
    most: usize,
) -> sqlx::Result<bool> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    transaction.requests.clear();
    let sweep = sqlx::query(SWEEP)
        .bind(transaction.tenant.id)
        .bind(ValidRequest::from_validated_text(transaction.now).as_micros())
        .bind(ValidRequest::renewed_at(transaction.now).as_micros())
        .bind(most);
    let swept = sweep
        .fetch_one(transaction.connection_for_changes())
        .await?;
    let (deleted, renewed): (i64, i64) = (swept.try_get(0)?, swept.try_get(1)?);
    transaction.tenant.requests -= deleted;
    Ok(deleted + renewed >= most)
}
