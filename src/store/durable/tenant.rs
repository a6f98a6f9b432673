use super::jumps::Jumps;
use crate::bugs::planted;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// What is done to the clock of a store: nothing, but in tests.
#[derive(Debug, Default)]
pub(in crate::store) struct Time {
    /// How far tests have moved it ahead, in microseconds.
    shift: AtomicI64,
    /// Where tests have stopped it, if they have.
    held: OnceLock<i64>,
    pub(in crate::store) jumps: Jumps,
}

impl Time {
    pub(in crate::store) fn held(&self) -> Option<i64> {
        self.held.get().copied()
    }

    pub(in crate::store) fn shift(&self) -> i64 {
        let mut shift = self.shift.load(Ordering::Relaxed);
        if planted("own-clock") {
            // The clocks of two workers are never the same.
            shift += i64::from(std::process::id() % 2) * 5_000_000;
        }
        shift
    }

    /// The wall time of this machine, but for what tests do to it.
    #[cfg(feature = "sqlite")]
    pub(in crate::store) fn now(&self) -> crate::model::Timestamp {
        let wall = self.held().unwrap_or_else(crate::clock::wall_micros);
        crate::model::Timestamp::from_micros(wall.saturating_add(self.shift()))
    }

    #[cfg(feature = "conformance")]
    pub(in crate::store) fn advance_clock(&self, duration: std::time::Duration) {
        self.jump(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX));
        self.jumps.advance_clock(duration);
    }

    /// Moves the clock by that many microseconds, so that tests see the effect of a wall clock that jumps.
    #[cfg(feature = "conformance")]
    pub(in crate::store) fn jump(&self, micros: i64) {
        self.shift.fetch_add(micros, Ordering::Relaxed);
    }

    #[cfg(feature = "conformance")]
    pub(in crate::store) fn hold(&self) {
        self.held.get_or_init(crate::clock::wall_micros);
    }
}

/// Maximum number of microseconds by which a wall clock may be behind the last commit without counting as set back. Commits of one
/// microsecond are a microsecond apart each, so the last of them can be ahead.
#[cfg(feature = "sqlite")]
const AHEAD: i64 = 1_000;

/// Maximum number of microseconds that the clock is ahead of the wall clock: 7 days. A wall clock that was years ahead for a moment must not
/// stop all delays for years.
#[cfg(feature = "sqlite")]
const STANDS: i64 = 7 * 24 * 60 * 60 * 1_000_000;

/// Time of a store's clock, by the wall clock and [`Tenant::latest`]: the wall clock, unless it was set back. Then the clock stands still
/// until the wall clock has reached the old time again. All in microseconds.
///
/// A clock that was set back by more than twice [`STANDS`] follows the wall clock. In between, it runs twice as fast as the wall clock until
/// it is at the old time, so that it never leaps while the wall clock advances.
#[cfg(feature = "sqlite")]
pub(in crate::store) fn shown(wall: i64, latest: i64) -> i64 {
    let behind = latest.saturating_sub(wall);
    if behind <= AHEAD {
        return wall;
    }
    match behind <= STANDS {
        true => latest.saturating_add(1),
        false => wall.saturating_add((2 * STANDS).saturating_sub(behind).max(0)),
    }
}

/// The row of a tenant: its clock and its counters.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(in crate::store) struct Tenant {
    pub(in crate::store) id: i64,
    /// The time of the last commit of a breadcrumb. At least the time at which a row became due at once, less one microsecond.
    pub(in crate::store) latest: i64,
    /// The last run that was added or came to its end.
    pub(in crate::store) sequence: i64,
    /// The position of the last event.
    pub(in crate::store) position: i64,
    /// The position of the oldest event that is still there.
    pub(in crate::store) first_event: i64,
    pub(in crate::store) breadcrumbs: i64,
    pub(in crate::store) tombstones: i64,
    pub(in crate::store) open_runs: i64,
    pub(in crate::store) finished_runs: i64,
    /// Number of keys of requests.
    pub(in crate::store) requests: i64,
}

impl Tenant {
    /// Returns the counters of a tenant without breadcrumbs and runs.
    #[cfg(feature = "sqlite")]
    pub(in crate::store) fn new(id: i64) -> Self {
        Self {
            id,
            first_event: 1,
            ..Self::default()
        }
    }

    /// How many events there are.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn events(&self) -> i64 {
        self.position - self.first_event + 1
    }

    /// Returns the value of each column, in the order of the table.
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

    /// Reads the id and each column, in the order of the table.
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

        let times: Vec<i64> = walls.map(|wall| shown(wall, latest)).collect();

        for (hour, pair) in times.windows(2).enumerate() {
            let step = pair[1] - pair[0];
            // The clock may be behind the last commit by a little.
            assert!((-AHEAD..=2 * HOUR + 1).contains(&step), "{step} at {hour}");
        }
        assert_eq!(times[0], 0);
        assert_eq!(times[16 * 24], latest - 14 * 24 * HOUR);
        assert_eq!(times[23 * 24], latest + 1);
        assert_eq!(times[30 * 24 + 1], latest + HOUR);
    }
}
