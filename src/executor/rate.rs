use std::time::Duration;

/// How often runs may start: so many in so much time. That many may also start at once, after a time without any.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Rate {
    /// How many runs.
    pub runs: u32,
    /// In how much time.
    pub per: Duration,
}

impl Rate {
    /// So many runs in so much time.
    #[must_use]
    pub const fn per(runs: u32, duration: Duration) -> Self {
        Self {
            runs,
            per: duration,
        }
    }

    /// Whether it is a rate at all.
    ///
    /// # Errors
    /// [`BadRate`] if it allows no run, or its time is zero.
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

/// Why a [`Rate`] is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRate {
    /// Nothing could ever start.
    #[error("a rate of no runs at all would never let one start")]
    NoRuns,
    /// It would limit nothing.
    #[error("a rate needs a time longer than zero in which its runs may start")]
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
