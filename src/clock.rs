//! Timestamps from the wall clock, and timeouts on tokio's clock. No other module reads the wall clock.

use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, timeout};

/// A clock that starts at the current wall time and then advances with tokio's clock. It is monotonic, and stops while a test has paused
/// time.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: i64,
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            origin: wall_micros(),
            started: Instant::now(),
        }
    }

    /// Returns this clock's time in microseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn micros(&self) -> i64 {
        self.origin.saturating_add(micros(self.started.elapsed()))
    }
}

/// Returns the wall time in microseconds since 1970-01-01T00:00:00Z, or 0 if the machine's clock is before that time.
#[expect(
    clippy::disallowed_methods,
    reason = "this module is the only reader of wall time"
)]
pub(crate) fn wall_micros() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, micros)
}

/// Returns the instant after a delay, or an instant in thirty years if the clock cannot represent the sum.
pub(crate) fn later(from: Instant, delay: Duration) -> Instant {
    const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    from.checked_add(delay).unwrap_or(from + THIRTY_YEARS)
}

/// Returns the output of a future, or `None` if it takes longer than `limit`. Creates no timer for a future that is
/// ready at once.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    if let Poll::Ready(done) = futures::poll!(future.as_mut()) {
        return Some(done);
    }
    timeout(limit, future).await.ok()
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_beyond_the_clock_is_a_far_future() {
        let now = Instant::now();

        assert!(later(now, Duration::MAX) > now);
        assert_eq!(later(now, Duration::ZERO), now);
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_is_given_its_time_and_no_more() {
        let second = Duration::from_secs(1);
        let takes = |seconds: u32| tokio::time::sleep(second * seconds);

        assert_eq!(within(second, async { 1 }).await, Some(1));
        assert_eq!(within(3 * second, takes(2)).await, Some(()));
        assert_eq!(within(3 * second, takes(4)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time() {
        let clock = Clock::start();
        let before = clock.micros();

        tokio::time::advance(Duration::from_secs(30)).await;

        assert_eq!(clock.micros() - before, 30_000_000);
    }
}
