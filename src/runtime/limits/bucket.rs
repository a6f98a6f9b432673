use crate::clock::later;
use crate::executor::Rate;
use std::time::Duration;
use tokio::time::Instant;

/// A token bucket for the starts of runs: it holds as many as the [`Rate`] has runs, begins full, and fills evenly.
///
/// It counts in whole numbers, so that a start is possible exactly at the moment that [`next`](Self::next) names and
/// no fraction gets lost however often it is asked.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct Bucket {
    runs: u128,
    /// What one start costs. A nanosecond earns `runs`, so the time of the rate earns all of them.
    cost: u128,
    credit: u128,
    /// Up to when the credit is counted; none before the first question, when the bucket is full.
    counted: Option<Instant>,
}

impl Bucket {
    /// A full bucket. A rate that fails its check counts as the nearest that passes.
    pub(in crate::runtime) fn new(rate: Rate) -> Self {
        let (runs, cost) = (u128::from(rate.runs.max(1)), rate.per.as_nanos().max(1));
        Self {
            runs,
            cost,
            credit: runs * cost,
            counted: None,
        }
    }

    /// Takes as many starts as there are, at most those wanted; says how many.
    pub(in crate::runtime) fn take(&mut self, now: Instant, wanted: usize) -> usize {
        let taken = self.available(now).min(wanted);
        self.credit -= self.worth(taken);
        taken
    }

    /// How many starts there are.
    pub(in crate::runtime) fn available(&mut self, now: Instant) -> usize {
        self.fill(now);
        usize::try_from(self.credit / self.cost).unwrap_or(usize::MAX)
    }

    /// When there is a start again, or none if there is one already.
    pub(in crate::runtime) fn next(&mut self, now: Instant) -> Option<Instant> {
        self.fill(now);
        let missing = self.cost.checked_sub(self.credit).filter(|&it| it > 0)?;
        let nanos = u64::try_from(missing.div_ceil(self.runs)).unwrap_or(u64::MAX);
        Some(later(
            self.counted.unwrap_or(now),
            Duration::from_nanos(nanos),
        ))
    }

    /// Earns for the time since it was counted last. A moment before that earns nothing.
    fn fill(&mut self, now: Instant) {
        let counted = self.counted.unwrap_or(now);
        let earned = now.saturating_duration_since(counted).as_nanos() * self.runs;
        self.credit = self.full().min(self.credit + earned);
        self.counted = Some(counted.max(now));
    }

    fn full(&self) -> u128 {
        self.runs * self.cost
    }

    /// What starts cost together, at most a full bucket.
    fn worth(&self, starts: usize) -> u128 {
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
        let mut bucket = Bucket::new(Rate::per(10, SECOND));

        assert_eq!(bucket.take(now, 7), 7);
        assert_eq!(bucket.take(now, 7), 3);
        assert_eq!(bucket.next(now), Some(now + SECOND / 10));
        assert_eq!(bucket.take(now + SECOND / 2, 100), 5);
        assert_eq!(bucket.take(now + 60 * SECOND, 100), 10);
    }

    #[test]
    fn a_moment_before_the_last_one_earns_nothing() {
        let now = Instant::now();
        let mut bucket = Bucket::new(Rate::per(1, SECOND));

        assert_eq!(bucket.take(now + SECOND, 1), 1);
        assert_eq!(bucket.take(now, 1), 0);
        assert_eq!(bucket.next(now), Some(now + 2 * SECOND));
    }

    #[test]
    fn a_bucket_of_a_rate_of_nothing_still_works() {
        for rate in [Rate::per(0, SECOND), Rate::per(1, Duration::ZERO)] {
            assert_eq!(Bucket::new(rate).take(Instant::now(), 5), 1);
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
            let mut bucket = Bucket::new(rate);
            assert!(bucket.take(now, usize::MAX) >= 1);
            assert!(bucket.next(now).is_none_or(|at| at > now));
            bucket.take(far, usize::MAX);
        }
    }

    proptest! {
        #[test]
        fn no_span_of_time_starts_more_than_a_full_bucket_and_what_it_earned(
            runs in 1_u32..50,
            per in 1_u64..1_000_000,
            steps in prop::collection::vec((0_u64..2_000_000, 0_usize..80), 1..60),
        ) {
            let begin = Instant::now();
            let mut bucket = Bucket::new(Rate::per(runs, Duration::from_nanos(per)));
            let (mut nanos, mut taken) = (0, 0);

            for (passed, wanted) in steps {
                nanos += passed;
                taken += bucket.take(begin + Duration::from_nanos(nanos), wanted) as u64;
                prop_assert!(taken <= u64::from(runs) + nanos * u64::from(runs) / per);
            }
        }

        #[test]
        fn the_next_start_is_possible_at_the_moment_it_says_and_no_nanosecond_before(
            runs in 1_u32..50,
            per in 1_u64..1_000_000_000,
            wait in 0_u64..1_000_000_000,
        ) {
            let mut now = Instant::now();
            let mut bucket = Bucket::new(Rate::per(runs, Duration::from_nanos(per)));
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
