//! Size of the pages in which a sweep reads the store for triggers. Pure.

use std::time::Duration;

/// Limit on the expected read time of the next sweep page if the page size is doubled. A sweep doubles its page size only below this limit.
const QUICK: Duration = Duration::from_secs(20);

/// Read time of a page above which the sweep halves its page size.
const SLOW: Duration = Duration::from_secs(60);

/// The size of the next page of a sweep, adapted to the speed of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(usize);

impl Default for Pace {
    fn default() -> Self {
        Self(50)
    }
}

impl Pace {
    /// Maximum number of breadcrumbs in a page of a sweep.
    const MOST: usize = 200;

    pub(super) fn size(self) -> usize {
        self.0
    }

    /// Adapts the page size of a sweep to the time that a page took. A store that needs one second for each request still gets pages of at
    /// least the size that one request returns.
    pub(super) fn took(&mut self, time: Duration) {
        if time.saturating_mul(2) < QUICK {
            self.0 = (self.0 * 2).min(Self::MOST);
        } else if time > SLOW {
            self.0 = (self.0 / 2).max(1);
        }
    }

    /// Reduces the page size of a sweep after the store failed to read a page.
    pub(super) fn failed(&mut self) {
        self.0 = (self.0 / 8).max(1);
    }

    /// Sets the page size of a sweep to one breadcrumb, until [`took`](Self::took) increases it.
    pub(super) fn set_to_one(&mut self) {
        self.0 = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of a page on a store that lists a hundred rows, and returns eight breadcrumbs, with one request each.
    fn time_of(size: usize, request: Duration) -> Duration {
        let requests = size.div_ceil(100) + size.div_ceil(8);
        request * u32::try_from(requests).unwrap()
    }

    #[test]
    fn pages_grow_on_a_quick_store_and_shrink_on_a_slow_one() {
        let mut pace = Pace::default();
        for _ in 0..5 {
            pace.took(Duration::from_millis(20));
        }
        assert_eq!(pace.size(), Pace::MOST);
        pace.took(Duration::from_secs(30));
        assert_eq!(pace.size(), Pace::MOST);
        for _ in 0..10 {
            pace.took(Duration::from_secs(61));
        }
        assert_eq!(pace.size(), 1);
    }

    #[test]
    fn pages_of_one_grow_again_when_each_request_takes_a_second() {
        let mut pace = Pace::default();
        pace.set_to_one();

        for _ in 0..10 {
            pace.took(time_of(pace.size(), Duration::from_secs(1)));
        }

        assert!(pace.size() >= 50, "{pace:?}");
    }
}
