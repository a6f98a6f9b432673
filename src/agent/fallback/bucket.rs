use crate::clock::later;
use std::time::Duration;
use tokio::time::Instant;

/// A token bucket that limits the requests or the tokens of one model per minute. It starts full and fills evenly.
///
/// The credit can be negative, because the number of tokens is known only after an answer. The bucket counts in integers, so that
/// frequent calls lose no fractions.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    limit: u32,
    /// The available units, in credits. One unit costs [`COST`](Self::COST) credits, and each nanosecond earns `limit` credits.
    credit: i128,
    counted_until: Instant,
}

impl Bucket {
    /// The cost of one request or token, in credits: the number of nanoseconds of a minute.
    const COST: i128 = 60_000_000_000;
    /// The longest time, in minutes, for which spent units can block the model.
    const DEBT_MINUTES: i128 = 60;

    /// Creates a full bucket with a limit of at least 1 unit per minute.
    pub(super) fn new(limit: u32, now: Instant) -> Self {
        let limit = limit.max(1);
        Self {
            limit,
            credit: i128::from(limit) * Self::COST,
            counted_until: now,
        }
    }

    /// Returns the time at which a unit is available, or `None` if one is available now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Instant> {
        self.fill(now);
        let missing = Self::COST - self.credit;
        if missing <= 0 {
            return None;
        }
        let nanos = missing.unsigned_abs().div_ceil(self.limit.into());
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        Some(later(self.counted_until, Duration::from_nanos(nanos)))
    }

    /// Subtracts used units, down to a debt of one hour.
    pub(super) fn spend(&mut self, units: u64, now: Instant) {
        self.fill(now);
        let lowest = -self.full().saturating_mul(Self::DEBT_MINUTES);
        let cost = i128::from(units).saturating_mul(Self::COST);
        self.credit = self.credit.saturating_sub(cost).max(lowest);
    }

    /// Adds the credit that was earned since the last call. An earlier `now` adds nothing.
    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.counted_until);
        let nanos = i128::try_from(passed.as_nanos()).unwrap_or(i128::MAX);
        let earned = nanos.saturating_mul(self.limit.into());
        self.credit = self.credit.saturating_add(earned).min(self.full());
        self.counted_until = self.counted_until.max(now);
    }

    fn full(&self) -> i128 {
        i128::from(self.limit) * Self::COST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_bucket_starts_full_and_refills_evenly() {
        let now = Instant::now();
        let mut bucket = Bucket::new(2, now);

        bucket.spend(1, now);
        assert_eq!(bucket.next(now), None);
        bucket.spend(1, now);

        assert_eq!(bucket.next(now), Some(now + 30 * SECOND));
        assert_eq!(bucket.next(now + 30 * SECOND), None);
    }

    #[test]
    fn an_answer_over_the_limit_blocks_the_following_minutes_up_to_an_hour() {
        let now = Instant::now();
        let mut bucket = Bucket::new(60, now);

        bucket.spend(180, now);
        assert_eq!(bucket.next(now), Some(now + 121 * SECOND));
        bucket.spend(u64::MAX, now);

        assert_eq!(bucket.next(now), Some(now + 3_601 * SECOND));
    }

    proptest! {
        #[test]
        fn requests_never_exceed_a_full_bucket_plus_the_refilled_units(
            limit in 1_u32..200,
            steps in prop::collection::vec(0_u64..20_000_000_000, 1..200),
        ) {
            let begin = Instant::now();
            let mut bucket = Bucket::new(limit, begin);
            let (mut nanos, mut taken) = (0, 0);

            for passed in steps {
                nanos += passed;
                let now = begin + Duration::from_nanos(nanos);
                if bucket.next(now).is_none() {
                    bucket.spend(1, now);
                    taken += 1;
                }
                let refilled = nanos * u64::from(limit) / 60_000_000_000;
                prop_assert!(taken <= u64::from(limit) + refilled);
            }
        }

        #[test]
        fn a_unit_is_available_exactly_at_the_reported_time(
            limit in 1_u32..1_000_000,
            spent in 0_u64..10_000_000,
            wait in 0_u64..100_000_000_000,
        ) {
            let begin = Instant::now();
            let mut bucket = Bucket::new(limit, begin);
            bucket.spend(spent, begin);
            let now = begin + Duration::from_nanos(wait);

            if let Some(next) = bucket.next(now) {
                prop_assert!(next > now);
                prop_assert!(bucket.clone().next(next - Duration::from_nanos(1)).is_some());
                prop_assert_eq!(bucket.next(next), None);
            }
        }
    }
}
