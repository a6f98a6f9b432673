//! Estimate of the round-trip time to the PostgreSQL server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Estimate of the round-trip time to the PostgreSQL server, from the durations of short statements.
#[derive(Debug, Default)]
pub(super) struct RoundTrip(
    /// Estimated round-trip time in microseconds. 0 before the first statement.
    AtomicU64,
);

impl RoundTrip {
    /// Updates the round-trip estimate with the duration of an SQL statement. A shorter duration replaces the estimate, because the server
    /// was busy during the longer ones. Longer durations raise the estimate slowly.
    pub(super) fn add(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let before = self.0.load(Ordering::Relaxed);
        let after = match took <= before || before == 0 {
            true => took,
            false => before + (took - before).div_ceil(16),
        };
        self.0.store(after, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_short_time_replaces_the_estimate_and_long_times_raise_it_slowly() {
        let round_trip = RoundTrip::default();
        let mut estimates = Vec::new();
        for took in [10_000, 2_000, 18_000, 18_000, 0] {
            round_trip.add(Duration::from_micros(took));
            estimates.push(round_trip.get().as_micros());
        }

        assert_eq!(estimates, [10_000, 2_000, 3_000, 3_938, 1]);
    }
}
