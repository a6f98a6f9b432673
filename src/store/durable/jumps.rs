//! Detection of jumps of a store's wall clock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Minimum difference between wall time and monotonic time that counts as a jump of the wall clock. Smaller differences are corrections of
/// the clock, or readings that waited for a lock.
const SHORTEST_JUMP: Duration = Duration::from_secs(60);

/// Detector of jumps of a store's wall clock. Compares the wall clock with the monotonic clock of this process.
#[derive(Debug, Default)]
pub(in crate::store) struct JumpDetector(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Reading>,
    /// Monotonic time since which the wall clock has not jumped: the time of the first reading after the last jump, or of the
    /// first reading at all. `None` before the first reading.
    steady_since: Option<Instant>,
    /// Time that a test has added to the wall clock. The monotonic clock is moved by the same time, so that the addition is not logged as a
    /// clock jump.
    advanced_by: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Time that the wall clock showed, in microseconds since 1970.
    wall: i64,
    at: Instant,
}

impl JumpDetector {
    /// Records a new reading of the wall clock, and logs a jump since the previous reading. `wall` is the wall time in microseconds since
    /// 1970.
    pub(in crate::store) fn record(&self, store: &'static str, wall: i64) {
        let jump = {
            let mut state = self.state();
            let at = state.now();
            let reading = Reading { wall, at };
            let before = state.last.replace(reading);
            let jump = before.and_then(|before| jump(before, reading));
            if jump.is_some() || before.is_none() {
                state.steady_since = Some(at);
            }
            jump
        };
        let Some(jump) = jump else {
            return;
        };
        let seconds = jump / 1_000_000;
        if jump < 0 {
            tracing::warn!(
                store,
                seconds,
                "the clock of the store was set back; ready work continues, and delayed runs and expired leases wait until the clock \
                 reaches its previous time again"
            );
        } else {
            tracing::warn!(
                store,
                seconds,
                "the clock of the store jumped ahead, or this machine was suspended; after a jump, delayed runs start, and leases expire, before their time"
            );
        }
    }

    /// Returns `true` if the wall clock has not jumped for at least `time`. The time before the first reading of the wall clock does not
    /// count.
    pub(in crate::store) fn is_steady_for(&self, time: Duration) -> bool {
        let state = self.state();
        let since = state.steady_since;
        since.is_some_and(|since| state.now().saturating_duration_since(since) >= time)
    }

    /// Advances the monotonic clock of the detector by as much as a test has advanced the wall clock.
    #[cfg(feature = "conformance")]
    pub(in crate::store) fn advance_clock(&self, time: Duration) {
        let mut state = self.state();
        state.advanced_by = state.advanced_by.saturating_add(time);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn now(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.advanced_by).unwrap_or(now)
    }
}

/// Returns the size of a wall clock jump between two readings, in microseconds. The size is the elapsed wall time minus the elapsed
/// monotonic time. Returns `None` for a small difference.
fn jump(before: Reading, after: Reading) -> Option<i64> {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    let elapsed = micros(after.at.saturating_duration_since(before.at));
    let jump = after
        .wall
        .saturating_sub(before.wall)
        .saturating_sub(elapsed);
    (jump.unsigned_abs() >= micros(SHORTEST_JUMP).unsigned_abs()).then_some(jump)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_the_wall_time_that_passed_without_the_time_that_passed() {
        const SECOND: i64 = 1_000_000;
        let start = Instant::now();
        let after = |wall: i64, seconds: u64| {
            let before = Reading {
                wall: 1_000 * SECOND,
                at: start,
            };
            let after = Reading {
                wall: (1_000 + wall) * SECOND,
                at: start + Duration::from_secs(seconds),
            };
            jump(before, after).map(|jump| jump / SECOND)
        };

        assert_eq!(after(3_600, 3_600), None);
        assert_eq!(after(3_659, 3_600), None);
        assert_eq!(after(3_660, 3_600), Some(60));
        assert_eq!(after(-3_600, 0), Some(-3_600));
        assert_eq!(after(0, 86_400), Some(-86_400));
    }
}
