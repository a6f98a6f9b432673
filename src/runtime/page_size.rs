//! Size of the pages in which a sweep reads the store for triggers. Pure.

use std::time::Duration;

/// Time limit for doubling the page size of a sweep: the size is doubled only if a page of twice the size is expected to be read
/// faster. The expected time is twice the read time of the last page.
const QUICK: Duration = Duration::from_secs(20);

/// Read time of a page above which a sweep of the store halves its page size.
const SLOW: Duration = Duration::from_secs(60);

/// The size of the next page that a sweep reads from the store, adapted to the speed of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageSize(usize);

impl Default for PageSize {
    fn default() -> Self {
        Self(50)
    }
}

impl PageSize {
    /// Maximum number of breadcrumbs in a page that a sweep reads from the store.
    const MAX_SIZE: usize = 200;

    pub(super) fn get(self) -> usize {
        self.0
    }

    /// Adapts the page size of a sweep of the store to the time that the store needed for the last page. A store that needs one
    /// second for each request still gets pages of at least the size that one request returns.
    pub(super) fn adapt_to(&mut self, time: Duration) {
        if time.saturating_mul(2) < QUICK {
            self.0 = (self.0 * 2).min(Self::MAX_SIZE);
        } else if time > SLOW {
            self.0 = (self.0 / 2).max(1);
        }
    }

    /// Reduces the page size of a sweep of the store after the store failed to read a page.
    pub(super) fn note_failure(&mut self) {
        self.0 = (self.0 / 8).max(1);
    }

    /// Sets the page size of a sweep of the store to one breadcrumb, until [`adapt_to`](Self::adapt_to) increases it.
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
        let mut page_size = PageSize::default();
        for _ in 0..5 {
            page_size.adapt_to(Duration::from_millis(20));
        }
        assert_eq!(page_size.get(), PageSize::MAX_SIZE);
        page_size.adapt_to(Duration::from_secs(30));
        assert_eq!(page_size.get(), PageSize::MAX_SIZE);
        for _ in 0..10 {
            page_size.adapt_to(Duration::from_secs(61));
        }
        assert_eq!(page_size.get(), 1);
    }

    #[test]
    fn pages_of_one_grow_again_when_each_request_takes_a_second() {
        let mut page_size = PageSize::default();
        page_size.set_to_one();

        for _ in 0..10 {
            page_size.adapt_to(time_of(page_size.get(), Duration::from_secs(1)));
        }

        assert!(page_size.get() >= 50, "{page_size:?}");
    }
}
