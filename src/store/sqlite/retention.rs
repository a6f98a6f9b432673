//! Retention: deletion of a tenant's oldest events, tombstones and ended runs beyond the limits. A commit that exceeds a limit deletes a
//! batch in its own transaction.

use super::error::Fault;
use super::tenant::TenantTransaction;

/// Maximum number of expired breadcrumbs that a search can encounter without starting the sweep that deletes them.
pub(super) const MANY_EXPIRED: usize = 64;

/// Maximum number of events, tombstones or ended runs that one commit deletes.
const MOST: i64 = 1_024;

/// SQL that deletes a tenant's old events, except the last event that each consumer acknowledged. The time of that event bounds the events
/// that the consumer misses.
pub(super) const EVENTS: &str = "
    DELETE FROM ux_events WHERE tenant = ?1 AND position < ?2
        AND position NOT IN (SELECT position FROM ux_consumers WHERE tenant = ?1)";

pub(super) const TOMBSTONES: &str = "
    DELETE FROM ux_breadcrumbs WHERE serial IN (SELECT serial FROM ux_breadcrumbs
        WHERE tenant = ?1 AND deleted = 1 ORDER BY updated_at LIMIT ?2)";

pub(super) const RUNS: &str = "
    DELETE FROM ux_runs WHERE serial IN (SELECT serial FROM ux_runs
        WHERE tenant = ?1 AND over IS NOT NULL ORDER BY over LIMIT ?2)";

/// Deletes a tenant's oldest events, tombstones or ended runs if their number exceeds the limit for this kind of row by more than
/// one deletion batch. A batch is a sixteenth of the limit, at most 256 rows.
pub(super) fn delete_excess(transaction: &mut TenantTransaction<'_>) -> Result<(), Fault> {
    let limits = transaction.limits;
    let tenant = &transaction.tenant;
    let events = excess(tenant.position - tenant.first_event + 1, limits.events);
    if events > 0 {
        let first = transaction.tenant.first_event + events;
        transaction
            .sql(EVENTS)?
            .execute((transaction.tenant.id, first))?;
        transaction.tenant.first_event = first;
    }
    let tombstones = excess(transaction.tenant.tombstones, limits.tombstones);
    if tombstones > 0 {
        let removed = transaction
            .sql(TOMBSTONES)?
            .execute((transaction.tenant.id, tombstones))?;
        transaction.tenant.tombstones -= removed.cast_signed() as i64;
    }
    let runs = excess(transaction.tenant.finished_runs, limits.finished_runs);
    if runs > 0 {
        let removed = transaction
            .sql(RUNS)?
            .execute((transaction.tenant.id, runs))?;
        transaction.tenant.finished_runs -= removed.cast_signed() as i64;
    }
    Ok(())
}

/// Returns the number of excess events, tombstones or ended runs that retention deletes, at most [`MOST`]. Returns 0 unless the excess over
/// the limit is larger than a batch. A batch is a sixteenth of the limit, at most 256 rows.
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
