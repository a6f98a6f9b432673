//! The keys of requests.

use super::NAME;
use super::column::{self, Id, number};
use super::database::Job;
use super::error::Fault;
use super::place::Place;
use super::stage::create;
use super::writing::Writing;
use crate::store::Requested;
use crate::store::request::{Checked, Recorded};
use sqlx::Row as _;

/// Creates the breadcrumb of a request, unless an earlier request has its key.
pub(super) struct Request(pub(super) Checked);

impl Job for Request {
    /// The answer, and whether more breadcrumbs than were removed may be over.
    type Answer = (Requested, bool);

    async fn run(&self, writing: &mut Writing<'_>) -> Result<Self::Answer, Fault> {
        let request = &self.0;
        lock(writing).await?;
        if let Some(recorded) = find(writing, request).await? {
            return Ok((request.answer(&recorded)?, false));
        }
        let (breadcrumb, has_expired) = create(writing, request.breadcrumb.clone()).await?;
        sweep(writing).await?;
        let limits = writing.limits;
        let most = limits.open_runs.saturating_add(limits.finished_runs);
        let insert = sqlx::query(
            "INSERT INTO ux_requests (tenant, executor, request_key, trigger_id, version, digest, number, checked_at)
             SELECT $1, $2, $3, $4, $5, $6, n.last + 1, $7
             FROM (SELECT coalesce(max(number), 0) AS last, coalesce(min(number), 1) AS first FROM ux_requests
                 WHERE tenant = $1) AS n
             WHERE n.last - n.first + 1 < $8",
        );
        let insert = insert
            .bind(writing.tenant.id)
            .bind(column::name(&request.executor))
            .bind(column::name(&request.key))
            .bind(Id::from(breadcrumb.id.as_uuid()))
            .bind(breadcrumb.version.cast_signed())
            .bind(&request.digest)
            .bind(writing.now.as_micros())
            .bind(i64::try_from(most).unwrap_or(i64::MAX));
        let inserted = insert.execute(writing.tells()).await?;
        match inserted.rows_affected() {
            0 => Err(Checked::full(NAME, most).into()),
            _ => Ok((Requested::Created { breadcrumb }, has_expired)),
        }
    }

    fn settle((requested, _): &mut Self::Answer, place: &Place) {
        match requested {
            Requested::Created { breadcrumb } => place.settle(breadcrumb),
            Requested::Existing { .. } => {}
        }
    }
}

/// Waits until no other transaction of the tenant adds keys, so that each key has a unique number. The next statement sees the keys
/// that these transactions added.
async fn lock(writing: &mut Writing<'_>) -> sqlx::Result<()> {
    let lock = sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('ux_requests', $1))");
    let lock = lock.bind(writing.tenant.id);
    lock.execute(&mut *writing.connection).await.map(drop)
}

async fn find(writing: &mut Writing<'_>, request: &Checked) -> sqlx::Result<Option<Recorded>> {
    let find = sqlx::query(
        "SELECT trigger_id, version, digest FROM ux_requests WHERE tenant = $1 AND executor = $2 AND request_key = $3",
    );
    let find = find
        .bind(writing.tenant.id)
        .bind(column::name(&request.executor))
        .bind(column::name(&request.key));
    let found = find.fetch_optional(&mut *writing.connection).await?;
    let recorded = found.map(|row| {
        Ok(Recorded {
            id: column::id(&row, 0)?,
            version: number(&row, 1)?,
            digest: row.try_get(2)?,
        })
    });
    recorded.transpose()
}

/// Deletes old keys without a run. The others become the most recently checked ones.
async fn sweep(writing: &mut Writing<'_>) -> sqlx::Result<()> {
    let sweep = sqlx::query(
        "WITH old AS MATERIALIZED (SELECT o.executor, o.request_key, o.number, EXISTS (SELECT FROM ux_runs AS r
                 WHERE r.tenant = $1 AND r.trigger_id = o.trigger_id AND r.trigger_version = o.version
                     AND r.executor = o.executor) AS has_run
             FROM (SELECT * FROM ux_requests WHERE tenant = $1 ORDER BY number LIMIT $4) AS o WHERE o.checked_at <= $2),
         deleted AS (DELETE FROM ux_requests AS q USING old WHERE NOT old.has_run AND q.tenant = $1
             AND q.executor = old.executor AND q.request_key = old.request_key)
         UPDATE ux_requests AS q SET checked_at = $3, number = old.number
                 + (SELECT max(number) FROM ux_requests WHERE tenant = $1) - (SELECT min(number) FROM old) + 1
             FROM old WHERE old.has_run AND q.tenant = $1 AND q.executor = old.executor
                 AND q.request_key = old.request_key",
    );
    let sweep = sweep
        .bind(writing.tenant.id)
        .bind(Checked::checked_before(writing.now).as_micros())
        .bind(writing.now.as_micros())
        .bind(i64::try_from(Checked::SWEPT).unwrap_or(i64::MAX));
    sweep.execute(writing.tells()).await.map(drop)
}
