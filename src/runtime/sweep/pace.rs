//! Size of the pages of a sweep. Pure.

use std::time::Duration;

/// A page that takes less time is followed by a larger one.
const QUICK: Duration = Duration::from_secs(2);

/// A page that takes more time is followed by a smaller one.
const SLOW: Duration = Duration::from_secs(10);

/// The size of the next page, which follows the speed of the store.
#[derive(Debug)]
pub(super) struct Pace(usize);

impl Default for Pace {
    fn default() -> Self {
        Self(50)
    }
}

impl Pace {
    /// Maximum size of a page.
    pub(super) const MOST: usize = 200;

    pub(super) fn size(&self) -> usize {
        self.0
    }

    /// Notes how long a page took.
    pub(super) fn took(&mut self, time: Duration) {
        if time < QUICK {
            self.0 = (self.0 * 2).min(Self::MOST);
        } else if time > SLOW {
            self.0 = (self.0 / 2).max(1);
        }
    }

    /// Notes that the store did not read a page of this size. Returns `false` if there is no smaller one.
    pub(super) fn failed(&mut self) -> bool {
        let was_one = self.0 == 1;
        self.0 = (self.0 / 8).max(1);
        !was_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_on_a_quick_store_and_shrink_on_a_slow_one() {
        let mut pace = Pace::default();
        for _ in 0..5 {
            pace.took(Duration::from_millis(20));
        }
        assert_eq!(pace.size(), Pace::MOST);
        pace.took(Duration::from_secs(5));
        assert_eq!(pace.size(), Pace::MOST);
        for _ in 0..10 {
            pace.took(Duration::from_secs(11));
        }
        assert_eq!((pace.size(), pace.failed()), (1, false));
    }
}
