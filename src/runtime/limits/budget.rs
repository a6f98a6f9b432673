use crate::clock::later;
use std::time::Duration;
use tokio::time::Instant;

/// A budget for the retries of one executor. Without a budget, retries under load increase the load further.
///
/// Every first attempt earns a fraction of a retry, so that retries stay at that share of the traffic. Unused credit
/// accumulates up to a cap. Time earns credit too, so that a single retry without traffic does not wait forever. This is the
/// retry budget of Finagle (<https://finagle.github.io/blog/2016/02/08/retry-budgets/>), and the per-client budget of the
/// chapter "Handling Overload" of Google's SRE book (<https://sre.google/sre-book/handling-overload/>).
#[derive(Clone, Debug)]
pub(in crate::runtime) struct RetryBudget {
    /// Interval at which the retry budget adds one retry, even if the executor has no traffic. Credit is counted in time, and a retry costs
    /// one interval.
    interval: Duration,
    /// The credit that the first attempt of a run earns, in percent of a retry.
    percent: u32,
    /// Maximum number of unused retries that the retry budget accumulates.
    cap: u32,
    credit: Duration,
    counted_until: Instant,
}

impl RetryBudget {
    /// Creates a retry budget of one retry for every five first attempts, and one more retry each second. Up to 10 unused retries
    /// accumulate.
    pub(in crate::runtime) fn new(now: Instant) -> Self {
        Self::with(now, 20, 10, Duration::from_secs(1))
    }

    /// Creates a retry budget of `percent` retries for every 100 first attempts. `cap` is the number of retries at the start and the
    /// maximum of unused retries. One more retry becomes available after each `interval`.
    pub(in crate::runtime) fn with(
        now: Instant,
        percent: u32,
        cap: u32,
        interval: Duration,
    ) -> Self {
        let interval = interval.max(Duration::from_nanos(1));
        Self {
            interval,
            percent,
            cap,
            credit: interval.saturating_mul(cap),
            counted_until: now,
        }
    }

    /// Adds the credit for the first attempt of a run to the executor's retry budget.
    pub(in crate::runtime) fn record_first_attempt(&mut self) {
        self.earn(self.interval.saturating_mul(self.percent) / 100);
    }

    /// Takes the credit of one retry from the executor's retry budget, or returns `false` if the budget has not enough credit.
    pub(in crate::runtime) fn take_retry(&mut self, now: Instant) -> bool {
        self.refill(now);
        let Some(remaining) = self.credit.checked_sub(self.interval) else {
            return false;
        };
        self.credit = remaining;
        true
    }

    /// Returns the time at which the retry budget allows a retry without further traffic, or `None` if a retry is possible now. A cap of
    /// zero never allows a retry, and this time then moves with `now`.
    pub(in crate::runtime) fn next(&mut self, now: Instant) -> Option<Instant> {
        self.refill(now);
        let missing = self.interval.saturating_sub(self.credit);
        (!missing.is_zero()).then(|| later(self.counted_until, missing))
    }

    fn refill(&mut self, now: Instant) {
        self.earn(now.saturating_duration_since(self.counted_until));
        self.counted_until = self.counted_until.max(now);
    }

    fn earn(&mut self, earned: Duration) {
        let most = self.interval.saturating_mul(self.cap);
        self.credit = self.credit.saturating_add(earned).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Takes and counts the available retries, up to 100.
    fn retries(budget: &mut RetryBudget, now: Instant) -> usize {
        (0..100).take_while(|_| budget.take_retry(now)).count()
    }

    #[test]
    fn it_begins_with_ten_and_every_fifth_first_attempt_earns_one_more() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(now);

        assert_eq!(retries(&mut budget, now), 10);
        for _ in 0..14 {
            budget.record_first_attempt();
        }
        assert_eq!(retries(&mut budget, now), 2);
        budget.record_first_attempt();
        assert_eq!(retries(&mut budget, now), 1);
    }

    #[test]
    fn unused_retries_accumulate_up_to_the_cap() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(now);

        for _ in 0..1_000 {
            budget.record_first_attempt();
        }

        assert_eq!(retries(&mut budget, now), 10);
        assert_eq!(retries(&mut budget, now + 3_600 * SECOND), 10);
    }

    #[test]
    fn a_lone_retry_is_not_starved_by_a_lack_of_traffic() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(now);
        retries(&mut budget, now);

        assert_eq!(budget.next(now), Some(now + SECOND));
        assert!(!budget.take_retry(now + SECOND / 2));
        assert!(budget.take_retry(now + SECOND));
        assert!(!budget.take_retry(now + SECOND));
    }

    #[test]
    fn asking_often_loses_nothing_and_asking_about_the_past_earns_nothing() {
        let now = Instant::now();
        let mut budget = RetryBudget::with(now, 0, 1, SECOND);
        assert!(budget.take_retry(now));

        for nanos in 0..1_000 {
            let moment = now + Duration::from_nanos(nanos);
            assert_eq!(budget.next(moment), Some(now + SECOND));
        }

        assert!(!budget.take_retry(now - SECOND));
        assert_eq!(budget.next(now), Some(now + SECOND));
    }

    #[test]
    fn a_budget_of_nothing_allows_nothing_and_one_of_everything_does_not_overflow() {
        let now = Instant::now();
        let mut nothing = RetryBudget::with(now, 100, 0, SECOND);
        let mut everything = RetryBudget::with(now, u32::MAX, u32::MAX, Duration::MAX);

        nothing.record_first_attempt();
        everything.record_first_attempt();

        assert!(!nothing.take_retry(now + 3_600 * SECOND));
        assert!(everything.take_retry(now));
    }

    proptest! {
        #[test]
        fn retries_never_exceed_the_cap_the_share_of_the_traffic_and_the_trickle(
            percent in 0_u32..100,
            cap in 0_u32..20,
            steps in prop::collection::vec((0_u64..3_000, any::<bool>()), 1..200),
        ) {
            let begin = Instant::now();
            let mut budget = RetryBudget::with(begin, percent, cap, SECOND);
            let (mut millis, mut firsts, mut retries) = (0, 0, 0);

            for (passed, first) in steps {
                millis += passed;
                if first {
                    budget.record_first_attempt();
                    firsts += u64::from(percent);
                } else if budget.take_retry(begin + Duration::from_millis(millis)) {
                    retries += 1;
                }
                prop_assert!(retries * 1_000 <= u64::from(cap) * 1_000 + firsts * 10 + millis);
            }
        }
    }
}
