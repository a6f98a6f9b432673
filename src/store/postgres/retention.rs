//! Retention: deletion of a tenant's oldest events, tombstones and ended runs beyond the limits. The deletion follows a commit that
//! exceeds a limit, and runs in batches.

use super::builder::PostgresLimits;
use super::error::Fault;
use super::job::Job;
use super::requests;
use super::transaction::TenantTransaction;
use crate::store::durable::tenant::Tenant;

/// Maximum number of expired breadcrumbs that a search can encounter without starting the sweep that deletes them.
pub(super) const MANY_EXPIRED: usize = 64;

/// Maximum number of events, tombstones or ended runs that one retention transaction deletes. The number is large, because a transaction
/// with many jobs adds many rows.
const MOST: i64 = 16_384;

/// SQL that deletes a tenant's old events, except the last event that each consumer acknowledged. The time of that event bounds the events
/// that the consumer misses.
const EVENTS: &str = "
    DELETE FROM ux_events WHERE tenant = $1 AND position < $2
        AND position NOT IN (SELECT position FROM ux_consumers WHERE tenant = $1)";

const TOMBSTONES: &str = "
    DELETE FROM ux_breadcrumbs WHERE serial IN (SELECT serial FROM ux_breadcrumbs
        WHERE tenant = $1 AND deleted ORDER BY updated_at LIMIT $2 FOR UPDATE SKIP LOCKED)";

const RUNS: &str = "
    DELETE FROM ux_runs WHERE serial IN (SELECT serial FROM ux_runs
        WHERE tenant = $1 AND over IS NOT NULL ORDER BY over LIMIT $2 FOR UPDATE SKIP LOCKED)";

/// Returns `true` if the tenant's events, tombstones or ended runs exceed their limit by so many rows that the store should
/// delete the [`excess`].
pub(super) fn has_excess(tenant: &Tenant, limits: &PostgresLimits) -> bool {
    excess(tenant.events(), limits.events) > 0
        || excess(tenant.tombstones, limits.tombstones) > 0
        || excess(tenant.finished_runs, limits.finished_runs) > 0
}

/// Store operation that deletes the tenant's oldest events, tombstones and ended runs beyond the limits, and old idempotency keys
/// without a run.
pub(super) struct DeleteExcess {
    /// If `true`, the store operation also deletes old idempotency keys whose runs are no longer in the ledger.
    pub(super) checks_keys: bool,
}

impl Job for DeleteExcess {
    type Answer = ();

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<(), Fault> {
        let limits = transaction.limits;
        let events = excess(transaction.tenant.events(), limits.events);
        if events > 0 {
            let first = transaction.tenant.first_event + events;
            remove(transaction, EVENTS, first).await?;
            transaction.tenant.first_event = first;
        }
        let tombstones = excess(transaction.tenant.tombstones, limits.tombstones);
        if tombstones > 0 {
            transaction.tenant.tombstones -= remove(transaction, TOMBSTONES, tombstones).await?;
        }
        let runs = excess(transaction.tenant.finished_runs, limits.finished_runs);
        if runs > 0 {
            transaction.tenant.finished_runs -= remove(transaction, RUNS, runs).await?;
        }
        if self.checks_keys {
            requests::sweep(transaction, requests::SWEPT).await?;
        }
        Ok(())
    }
}

async fn remove(
    transaction: &mut TenantTransaction<'_>,
    sql: &'static str,
    bound: i64,
) -> sqlx::Result<i64> {
    let delete = sqlx::query(sql).bind(transaction.tenant.id).bind(bound);
    let removed = delete.execute(transaction.connection_for_changes()).await?;
    Ok(removed.rows_affected().cast_signed())
}

/// Returns the number of events, tombstones or ended runs to delete if a tenant has `count` of them and the limit is `limit`, or
/// 0 while the excess is small. A small excess is at most a batch: a sixteenth of the limit, at most 256 rows. Otherwise the
/// number is the excess, at most [`MOST`].
fn excess(count: i64, limit: usize) -> i64 {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let over = count.saturating_sub(limit);
    if over > (limit / 16).min(256) {
        over.min(MOST)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_limits_are_exact_and_large_limits_are_enforced_in_batches() {
        assert_eq!((excess(3, 3), excess(4, 3), excess(1, 0)), (0, 1, 1));
        assert_eq!(
            (excess(100_256, 100_000), excess(100_257, 100_000)),
            (0, 257)
        );
        assert_eq!((excess(1_000_000, 10), excess(5, usize::MAX)), (MOST, 0));
    }
}
