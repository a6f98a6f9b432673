use std::time::Duration;

/// Rate limit on the start of runs: at most `runs` per duration `per`. After an idle period, `runs` runs may start at once.
///
/// Pass it to [`Profile::rate`](crate::Profile::rate). Further runs wait in the ledger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Rate {
    /// The maximum number of runs that start in the duration `per`. Must be at least 1.
    pub runs: u32,
    /// The duration in which at most `runs` runs start. Must be longer than zero.
    pub per: Duration,
}

impl Rate {
    /// Creates a rate limit of `runs` per `duration`.
    ///
    /// This function accepts every value. [`check`](Self::check) reports an invalid one.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::executor::{BadRate, Rate};
    ///
    /// assert_eq!(Rate::per(10, Duration::from_secs(1)).check(), Ok(()));
    /// assert_eq!(Rate::per(0, Duration::from_secs(1)).check(), Err(BadRate::NoRuns));
    /// ```
    #[must_use]
    pub const fn per(runs: u32, duration: Duration) -> Self {
        Self {
            runs,
            per: duration,
        }
    }

    /// Checks that the rate limit on the start of runs is valid.
    ///
    /// # Errors
    /// [`BadRate`] if the rate limit permits no run, or if its duration is zero.
    pub const fn check(self) -> Result<(), BadRate> {
        if self.runs == 0 {
            return Err(BadRate::NoRuns);
        }
        if self.per.is_zero() {
            return Err(BadRate::NoTime);
        }
        Ok(())
    }
}

/// Reason why a [`Rate`] is invalid.
///
/// It is the cause of [`InvalidExecutor::Rate`](super::InvalidExecutor::Rate) at startup.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRate {
    /// The number of runs of the rate limit is zero, so no run could start.
    #[error("a rate limit of 0 runs never lets a run start; set at least 1 run")]
    NoRuns,
    /// The duration of the rate limit is zero, so nothing would be limited.
    #[error("the duration of a rate limit is zero; set a longer duration")]
    NoTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_of_nothing_is_refused() {
        let second = Duration::from_secs(1);

        assert_eq!(Rate::per(1, second).check(), Ok(()));
        assert_eq!(Rate::per(0, second).check(), Err(BadRate::NoRuns));
        assert_eq!(Rate::per(1, Duration::ZERO).check(), Err(BadRate::NoTime));
    }
}
