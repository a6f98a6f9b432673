//! Retry delays: exponential backoff with a cap and full jitter.

use std::time::Duration;

/// Returns a retry delay between zero and a maximum that doubles with each attempt up to `cap`:
/// `min(cap, base * 2^(attempt - 1))`.
///
/// `chance` between 0 and 1 selects the delay within this range ("full jitter"). Delays over the whole range spread the
/// retries of many runs, which loads a recovering service least
/// (<https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/>).
pub(crate) fn full_jitter(attempt: u32, base: Duration, cap: Duration, chance: f64) -> Duration {
    let doublings = attempt.saturating_sub(1).min(31);
    let most = base.saturating_mul(1 << doublings).min(cap);
    most.mul_f64(chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_range_doubles_with_each_attempt_up_to_the_cap() {
        let longest: Vec<u64> = [1, 2, 3, 6, 7, u32::MAX]
            .into_iter()
            .map(|attempt| full_jitter(attempt, SECOND, MINUTE, 1.0).as_secs())
            .collect();

        assert_eq!(longest, [1, 2, 4, 32, 60, 60]);
    }

    #[test]
    fn chance_picks_the_place_in_the_range() {
        assert_eq!(full_jitter(3, SECOND, MINUTE, 0.0), Duration::ZERO);
        assert_eq!(full_jitter(3, SECOND, MINUTE, 0.5), 2 * SECOND);
    }
}
