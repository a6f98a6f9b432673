//! SQL that marks the first run of each ordering key as claimable, and SQL that extends leases.

use super::column::{self, Id};
use super::prepared;
use super::row::{self, OrderingKey, RunIdentity};
use super::tenant::clock;
use crate::store::durable::tenant::StoreClock;
use crate::store::row::out_of_order_bit;
use crate::store::{Lease, RunState};
use sqlx::{PgConnection, Row as _};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Returns the SQL that each connection prepares to mark the first run of each ordering key as claimable, see [`promote`].
pub(super) fn statement() -> &'static str {
    concat!(
        "PREPARE ux_promote (bigint, text[], text[]) AS
         UPDATE ux_runs SET head = TRUE WHERE NOT head AND serial IN (SELECT (SELECT r.serial FROM ux_runs AS r
             WHERE r.tenant = $1 AND r.executor = u.executor AND r.line = u.line AND r.line IS NOT NULL
                 AND r.over IS NULL AND r.sequence < ",
        out_of_order_bit!(),
        " ORDER BY r.sequence LIMIT 1) FROM unnest($2, $3) AS u (executor, line))"
    )
}

/// Returns the SQL statement that marks the first run of each ordering key as claimable, in the column `head`.
pub(super) fn promote(tenant: i64, ordering_keys: &BTreeSet<OrderingKey>) -> String {
    let executors = prepared::names(ordering_keys.iter().map(|(executor, _)| &**executor));
    let names = prepared::names(
        ordering_keys
            .iter()
            .map(|(_, ordering_key)| &**ordering_key),
    );
    format!("EXECUTE ux_promote ({tenant}, {executors}, {names})")
}

/// A lease of a run, identified by its run, token and epoch.
pub(super) type LeaseKey = (RunIdentity, u64, u32);

pub(super) fn lease_key(lease: &Lease) -> LeaseKey {
    (row::identity(&lease.run), lease.token, lease.epoch)
}

/// Calls `of` with the run, token and epoch of each lease, and returns the results as an array for an SQL parameter.
fn all<T>(leases: &BTreeMap<LeaseKey, i64>, of: impl Fn(&LeaseKey) -> T) -> Vec<T> {
    leases.keys().map(of).collect()
}

/// Records in the ledger rows of lost leases that the workers that had them are alive, so that these leases do not count as
/// abandoned. [`RunRow::record_live_owner`](crate::store::row::RunRow::record_live_owner) does the same for one ledger row.
pub(super) async fn record_live_owners(
    connection: &mut PgConnection,
    tenant: i64,
    lost: &[Lease],
) -> sqlx::Result<()> {
    let lost: BTreeMap<LeaseKey, i64> = lost.iter().map(|lease| (lease_key(lease), 0)).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let update = sqlx::query(
        "UPDATE ux_runs AS r SET abandoned = r.token - u.token - 1
         FROM (SELECT k.serial, l.epoch, max(l.token) AS token
             FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[])
                 AS l (trigger_id, trigger_version, executor, token, epoch)
             CROSS JOIN LATERAL (SELECT s.serial FROM ux_runs AS s WHERE s.tenant = $1
                 AND s.trigger_id = l.trigger_id AND s.trigger_version = l.trigger_version
                 AND s.executor = l.executor LIMIT 1) AS k GROUP BY k.serial, l.epoch) AS u
         WHERE r.serial = u.serial AND r.epoch = u.epoch AND r.token > u.token AND r.abandoned >= r.token - u.token",
    );
    let update = update
        .bind(tenant)
        .bind(all(&lost, |((_, trigger, _), ..)| Id::from(*trigger)))
        .bind(all(&lost, |((.., version), ..)| version.cast_signed()))
        .bind(all(&lost, |((executor, ..), ..)| {
            column::name(executor).into_owned()
        }))
        .bind(all(&lost, |(_, token, _)| token.cast_signed()))
        .bind(all(&lost, |(.., epoch)| i64::from(*epoch)));
    update.execute(connection).await.map(drop)
}

/// Extends leases of runs, so that each lease ends one lease duration after now. Returns the leases that are still the newest of their
/// rows.
pub(super) async fn extend(
    connection: &mut PgConnection,
    tenant: i64,
    time: &StoreClock,
    leases: &[Lease],
) -> sqlx::Result<HashSet<LeaseKey>> {
    // One statement can change a row only once, so duplicates are removed; the last length applies. Sorted rows prevent deadlocks.
    let leases = leases
        .iter()
        .map(|lease| (lease_key(lease), row::micros(lease.run.lease)));
    let leases: BTreeMap<LeaseKey, i64> = leases.collect();
    let extend = sqlx::query(concat!(
        "UPDATE ux_runs AS r SET due = ",
        clock!(),
        " + u.lease
         FROM unnest($5::uuid[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[])
             AS u (trigger_id, trigger_version, executor, token, epoch, lease)
         CROSS JOIN LATERAL (SELECT k.serial FROM ux_runs AS k WHERE k.tenant = $1 AND k.trigger_id = u.trigger_id
             AND k.trigger_version = u.trigger_version AND k.executor = u.executor LIMIT 1) AS k
         WHERE r.serial = k.serial AND r.state = $4 AND r.token = u.token AND r.epoch = u.epoch
         RETURNING r.executor, r.trigger_id, r.trigger_version, r.token, r.epoch",
    ));
    let extend = extend
        .bind(tenant)
        .bind(time.stopped_at())
        .bind(time.shift())
        .bind(RunState::Running.number())
        .bind(all(&leases, |((_, trigger, _), ..)| Id::from(*trigger)))
        .bind(all(&leases, |((.., version), ..)| version.cast_signed()))
        .bind(all(&leases, |((executor, ..), ..)| {
            column::name(executor).into_owned()
        }))
        .bind(all(&leases, |(_, token, _)| token.cast_signed()))
        .bind(all(&leases, |(.., epoch)| i64::from(*epoch)))
        .bind(leases.values().copied().collect::<Vec<i64>>());
    let mut extended = HashSet::new();
    for row in extend.fetch_all(connection).await? {
        let executor = column::of_name(row.try_get(0)?);
        let identity = (
            executor.into(),
            column::id(&row, 1)?,
            column::number(&row, 2)?,
        );
        extended.insert((identity, column::number(&row, 3)?, column::count(&row, 4)?));
    }
    Ok(extended)
}
