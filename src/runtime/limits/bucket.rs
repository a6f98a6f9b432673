use crate::clock::later;
use crate::executor::Rate;
use std::time::Duration;
use tokio::time::Instant;

/// A token bucket that limits the starts of an executor's runs. Its capacity is the number of runs of the [`Rate`]. It starts full and
/// fills evenly.
///
/// The bucket counts in integers, so that a start is possible exactly at the moment that [`next`](Self::next) returns, and
/// frequent calls lose no fractions.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct TokenBucket {
    runs: u128,
    /// The cost of one start of a run, in credits. Each nanosecond earns `runs` credits, so the period of the rate earns `runs` starts.
    cost: u128,
    credit: u128,
    /// Time at which the token bucket last added its earned credit, or `None` before the first call, while the bucket is full.
    counted_until: Option<Instant>,
}

impl TokenBucket {
    /// Creates a full token bucket for a rate of run starts. A rate of zero runs counts as one run, and a period of zero as one nanosecond.
    pub(in crate::runtime) fn new(rate: Rate) -> Self {
        let (runs, cost) = (u128::from(rate.runs.max(1)), rate.per.as_nanos().max(1));
        Self {
            runs,
            cost,
            credit: runs * cost,
            counted_until: None,
        }
    }

    /// Takes up to `requested` run starts from the token bucket, and returns the number that the bucket allowed.
    pub(in crate::runtime) fn take(&mut self, now: Instant, requested: usize) -> usize {
        let taken = self.available(now).min(requested);
        self.credit -= self.cost_of(taken);
        taken
    }

    /// Returns the number of runs that the token bucket allows to start now.
    pub(in crate::runtime) fn available(&mut self, now: Instant) -> usize {
        self.fill(now);
        usize::try_from(self.credit / self.cost).unwrap_or(usize::MAX)
    }

    /// Returns the time at which the token bucket allows the next start of a run, or `None` if a start is allowed now.
    pub(in crate::runtime) fn next(&mut self, now: Instant) -> Option<Instant> {
        self.fill(now);
        let missing = self.cost.checked_sub(self.credit).filter(|&it| it > 0)?;
        let nanos = u64::try_from(missing.div_ceil(self.runs)).unwrap_or(u64::MAX);
        Some(later(
            self.counted_until.unwrap_or(now),
            Duration::from_nanos(nanos),
        ))
    }

    /// Adds the credit that the token bucket earned since the last call. An earlier `now` adds nothing.
    fn fill(&mut self, now: Instant) {
        let counted_until = self.counted_until.unwrap_or(now);
        let earned = now.saturating_duration_since(counted_until).as_nanos() * self.runs;
        self.credit = self.full().min(self.credit + earned);
        self.counted_until = Some(counted_until.max(now));
    }

    fn full(&self) -> u128 {
        self.runs * self.cost
    }

    /// Returns the cost of a number of run starts, in credits. The cost is at most the credit of a full token bucket.
    fn cost_of(&self, starts: usize) -> u128 {
        (starts as u128).min(self.runs) * self.cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_begins_full_and_fills_evenly() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(Rate::per(10, SECOND));

        assert_eq!(bucket.take(now, 7), 7);
        assert_eq!(bucket.take(now, 7), 3);
        assert_eq!(bucket.next(now), Some(now + SECOND / 10));
        assert_eq!(bucket.take(now + SECOND / 2, 100), 5);
        assert_eq!(bucket.take(now + 60 * SECOND, 100), 10);
    }

    #[test]
    fn a_moment_before_the_last_one_earns_nothing() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(Rate::per(1, SECOND));

        assert_eq!(bucket.take(now + SECOND, 1), 1);
        assert_eq!(bucket.take(now, 1), 0);
        assert_eq!(bucket.next(now), Some(now + 2 * SECOND));
    }

    #[test]
    fn a_bucket_of_a_rate_of_nothing_still_works() {
        for rate in [Rate::per(0, SECOND), Rate::per(1, Duration::ZERO)] {
            assert_eq!(TokenBucket::new(rate).take(Instant::now(), 5), 1);
        }
    }

    #[test]
    fn the_largest_and_the_smallest_rates_do_not_overflow() {
        let now = Instant::now();
        let far = later(now, Duration::MAX);
        for rate in [
            Rate::per(u32::MAX, Duration::MAX),
            Rate::per(u32::MAX, Duration::from_nanos(1)),
            Rate::per(1, Duration::MAX),
        ] {
            let mut bucket = TokenBucket::new(rate);
            assert!(bucket.take(now, usize::MAX) >= 1);
            assert!(bucket.next(now).is_none_or(|at| at > now));
            bucket.take(far, usize::MAX);
        }
    }

    proptest! {
        #[test]
        fn starts_never_exceed_a_full_bucket_plus_the_refilled_tokens(
            runs in 1_u32..50,
            per in 1_u64..1_000_000,
            steps in prop::collection::vec((0_u64..2_000_000, 0_usize..80), 1..60),
        ) {
            let begin = Instant::now();
            let mut bucket = TokenBucket::new(Rate::per(runs, Duration::from_nanos(per)));
            let (mut nanos, mut taken) = (0, 0);

            for (passed, requested) in steps {
                nanos += passed;
                taken += bucket.take(begin + Duration::from_nanos(nanos), requested) as u64;
                prop_assert!(taken <= u64::from(runs) + nanos * u64::from(runs) / per);
            }
        }

        #[test]
        fn the_next_start_is_possible_exactly_at_the_reported_time(
            runs in 1_u32..50,
            per in 1_u64..1_000_000_000,
            wait in 0_u64..1_000_000_000,
        ) {
            let mut now = Instant::now();
            let mut bucket = TokenBucket::new(Rate::per(runs, Duration::from_nanos(per)));
            bucket.take(now, runs as usize);
            now += Duration::from_nanos(wait);
            bucket.take(now, usize::MAX);

            let next = bucket.next(now).unwrap();

            prop_assert!(next > now);
            prop_assert_eq!(bucket.clone().take(next - Duration::from_nanos(1), 1), 0);
            prop_assert_eq!(bucket.take(next, 1), 1);
        }
    }
}
