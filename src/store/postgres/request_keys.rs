//! Idempotency keys of requests for runs, as rows of the PostgreSQL table `ux_requests`.

use super::builder::PostgresLimits;
use super::column::{Id, id, name_of, number};
use super::prepared;
use super::statement::Statement;
use crate::store::request::RecordedKey;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An executor ID, and the key that makes a request to the executor idempotent.
pub(super) type RequestKey = (Arc<str>, Arc<str>);

/// SQL that each connection prepares to look up the idempotency keys of requests.
pub(super) const FIND: &str = "
    PREPARE ux_requested (bigint, text[], text[]) AS
    SELECT u.place, r.trigger_id, r.version, r.digest
    FROM unnest($2, $3) WITH ORDINALITY AS u (executor, request_key, place) CROSS JOIN LATERAL (
        SELECT * FROM ux_requests AS r WHERE r.tenant = $1 AND r.executor = u.executor AND r.request_key = u.request_key
        LIMIT 1) AS r";

/// SQL that each connection prepares to read the earliest time at which one of the tenant's idempotency keys was added or last
/// checked for deletion.
pub(super) const OLDEST: &str = "
    PREPARE ux_oldest_key (bigint) AS
    SELECT checked_at FROM ux_requests WHERE tenant = $1 AND checked_at > 0 ORDER BY checked_at LIMIT 1";

/// Returns the maximum number of idempotency keys that the ledger stores for one tenant's requests.
pub(super) fn limit(limits: &PostgresLimits) -> usize {
    limits.open_runs.saturating_add(limits.finished_runs)
}

/// Returns the SQL statement that looks up the idempotency keys of requests.
pub(super) fn read(tenant: i64, keys: &BTreeSet<RequestKey>) -> String {
    format!(
        "EXECUTE ux_requested ({tenant}, {}, {})",
        prepared::names(keys.iter().map(|(executor, _)| &**executor)),
        prepared::names(keys.iter().map(|(_, key)| &**key))
    )
}

/// Sets the ledger record of each idempotency key in `keys` from `rows`, the SQL rows that the lookup of the keys returned.
pub(super) fn add(
    keys: &mut BTreeMap<RequestKey, Option<RecordedKey>>,
    rows: &[PgRow],
) -> sqlx::Result<()> {
    let mut matches = BTreeMap::new();
    for row in rows {
        let recorded = RecordedKey {
            id: id(row, 1)?,
            version: number(row, 2)?,
            digest: row.try_get(3)?,
        };
        matches.insert(number(row, 0)?, recorded);
    }
    for (number, recorded) in (1..).zip(keys.values_mut()) {
        *recorded = matches.remove(&number);
    }
    Ok(())
}

/// Adds the insertion of new idempotency keys of requests to an SQL statement. The statement fails if another transaction has
/// recorded one of the keys.
pub(super) fn insert(statement: &mut Statement, keys: &BTreeMap<RequestKey, RecordedKey>) {
    if keys.is_empty() {
        return;
    }
    statement.push(
        ", recorded AS (INSERT INTO ux_requests (executor, request_key, trigger_id, version, digest, checked_at, tenant)
             SELECT u.executor, u.request_key, u.trigger_id, u.version, u.digest, t.base, t.id FROM t CROSS JOIN ",
    );
    fn all<T>(
        keys: &BTreeMap<RequestKey, RecordedKey>,
        of: impl Fn((&RequestKey, &RecordedKey)) -> T,
    ) -> Vec<T> {
        keys.iter().map(of).collect()
    }
    let columns = vec![
        all(keys, |((executor, _), _)| name_of(executor)).into(),
        all(keys, |((_, key), _)| name_of(key)).into(),
        all(keys, |(_, recorded)| Id::from(recorded.id)).into(),
        all(keys, |(_, recorded)| recorded.version.cast_signed()).into(),
        all(keys, |(_, recorded)| recorded.digest.clone()).into(),
    ];
    statement.push_rows(keys.len(), columns, false);
    statement.push(" AS u (executor, request_key, trigger_id, version, digest))");
}
