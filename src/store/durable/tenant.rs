//! Row of a tenant in SQLite or PostgreSQL, and the calculation of the store's clock from the wall clock.

use super::jumps::JumpDetector;
use crate::bugs::planted;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// Test control of a store's clock: a time offset, and a time at which the clock is stopped. Without tests, the clock is unchanged.
#[derive(Debug, Default)]
pub(in crate::store) struct StoreClock {
    /// Time that tests have added to the store's clock, in microseconds.
    shift: AtomicI64,
    /// Time at which tests have stopped the store's clock, in microseconds since 1970.
    stopped_at: OnceLock<i64>,
    pub(in crate::store) jumps: JumpDetector,
}

impl StoreClock {
    pub(in crate::store) fn stopped_at(&self) -> Option<i64> {
        self.stopped_at.get().copied()
    }

    pub(in crate::store) fn shift(&self) -> i64 {
        let mut shift = self.shift.load(Ordering::Relaxed);
        if planted("own-clock") {
            // Planted bug: every worker has its own clock, which differs from the others.
            shift += i64::from(std::process::id() % 2) * 5_000_000;
        }
        shift
    }

    /// Returns the wall time of this machine. A test can have stopped this clock or added time to it.
    #[cfg(feature = "sqlite")]
    pub(in crate::store) fn now(&self) -> crate::model::Timestamp {
        let wall = self.stopped_at().unwrap_or_else(crate::clock::wall_micros);
        crate::model::Timestamp::from_micros(wall.saturating_add(self.shift()))
    }

    #[cfg(feature = "conformance")]
    pub(in crate::store) fn advance_clock(&self, duration: std::time::Duration) {
        self.jump(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX));
        self.jumps.advance_clock(duration);
    }

    /// Moves the store's clock by a number of microseconds, so that tests see the effect of a wall clock that jumps.
    #[cfg(feature = "conformance")]
    pub(in crate::store) fn jump(&self, micros: i64) {
        self.shift.fetch_add(micros, Ordering::Relaxed);
    }

    #[cfg(feature = "conformance")]
    pub(in crate::store) fn hold(&self) {
        self.stopped_at.get_or_init(crate::clock::wall_micros);
    }
}

/// Lag of the wall clock behind the last commit, in microseconds, above which the wall clock counts as set back. Commits within one
/// microsecond get times that are one microsecond apart each, so the last commit's time can be ahead of the wall clock.
#[cfg(feature = "sqlite")]
const TOLERATED_LAG: i64 = 1_000;

/// Maximum time by which the store's clock stays ahead of a wall clock that was set back, in microseconds (7 days). A wall clock
/// that was years ahead for a moment must not stop all delays for years.
#[cfg(feature = "sqlite")]
const GREATEST_LEAD: i64 = 7 * 24 * 60 * 60 * 1_000_000;

/// Returns the time of a store's clock, calculated from the wall clock and [`Tenant::latest`]. The store's clock equals the wall clock
/// unless the wall clock was set back. Then the store's clock stands still until the wall clock has reached the old time again. All values
/// are in microseconds.
///
/// If the wall clock was set back by more than twice [`GREATEST_LEAD`], the store's clock follows it. In between, the store's clock runs
/// twice as fast as the wall clock until it has reached the old time, so it never leaps while the wall clock advances.
#[cfg(feature = "sqlite")]
pub(in crate::store) fn store_time(wall: i64, latest: i64) -> i64 {
    let behind = latest.saturating_sub(wall);
    if behind <= TOLERATED_LAG {
        return wall;
    }
    match behind <= GREATEST_LEAD {
        true => latest.saturating_add(1),
        false => wall.saturating_add((2 * GREATEST_LEAD).saturating_sub(behind).max(0)),
    }
}

/// Row of a tenant in SQLite or PostgreSQL: its clock, its event positions and its counters.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(in crate::store) struct Tenant {
    pub(in crate::store) id: i64,
    /// Time of the tenant's last commit that wrote a breadcrumb, in microseconds since 1970. At least the time at which a row
    /// became due at once, less one microsecond.
    pub(in crate::store) latest: i64,
    /// Highest sequence number that the tenant's ledger has given to a run. A run takes a number when it is added, accepted,
    /// repeated or ended.
    pub(in crate::store) sequence: i64,
    /// Position of the tenant's newest event.
    pub(in crate::store) position: i64,
    /// Position of the tenant's oldest retained event.
    pub(in crate::store) first_event: i64,
    pub(in crate::store) breadcrumbs: i64,
    pub(in crate::store) tombstones: i64,
    pub(in crate::store) open_runs: i64,
    pub(in crate::store) finished_runs: i64,
    /// Number of the tenant's idempotency keys, which make requests for runs idempotent.
    pub(in crate::store) requests: i64,
}

impl Tenant {
    /// Returns the initial counters and event positions of a tenant that was just added to the table `ux_tenants`.
    #[cfg(feature = "sqlite")]
    pub(in crate::store) fn new(id: i64) -> Self {
        Self {
            id,
            first_event: 1,
            ..Self::default()
        }
    }

    /// Returns the number of the tenant's retained events.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn events(&self) -> i64 {
        self.position - self.first_event + 1
    }

    /// Returns the name and value of each column of the tenant's row except ID and name, in the order of the table's columns.
    #[cfg(feature = "sqlite")]
    pub(in crate::store) fn columns(&self) -> [(&'static str, i64); 9] {
        [
            ("latest", self.latest),
            ("sequence", self.sequence),
            ("position", self.position),
            ("first_event", self.first_event),
            ("breadcrumbs", self.breadcrumbs),
            ("tombstones", self.tombstones),
            ("open_runs", self.open_runs),
            ("finished_runs", self.finished_runs),
            ("requests", self.requests),
        ]
    }

    /// Reads a tenant's row from its column values, which `column` returns by their number in the order of the struct's fields.
    pub(in crate::store) fn read<E>(
        mut column: impl FnMut(usize) -> Result<i64, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            id: column(0)?,
            latest: column(1)?,
            sequence: column(2)?,
            position: column(3)?,
            first_event: column(4)?,
            breadcrumbs: column(5)?,
            tombstones: column(6)?,
            open_runs: column(7)?,
            finished_runs: column(8)?,
            requests: column(9)?,
        })
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_leaps_while_the_wall_clock_advances() {
        const HOUR: i64 = 60 * 60 * 1_000_000;
        let latest = 30 * 24 * HOUR;
        let walls = (0..=latest + HOUR).step_by(usize::try_from(HOUR).unwrap());

        let times: Vec<i64> = walls.map(|wall| store_time(wall, latest)).collect();

        for (hour, pair) in times.windows(2).enumerate() {
            let step = pair[1] - pair[0];
            // The clock may be slightly behind the last commit.
            assert!(
                (-TOLERATED_LAG..=2 * HOUR + 1).contains(&step),
                "{step} at {hour}"
            );
        }
        assert_eq!(times[0], 0);
        assert_eq!(times[16 * 24], latest - 14 * 24 * HOUR);
        assert_eq!(times[23 * 24], latest + 1);
        assert_eq!(times[30 * 24 + 1], latest + HOUR);
    }
}
