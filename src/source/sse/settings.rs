use super::backfill::Backfill;
use super::token::BearerToken;
use crate::backoff::full_jitter;
use reqwest::{Client, Url};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Settings of an event source over server-sent events.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) client: Client,
    pub(super) url: Url,
    pub(super) token: BearerToken,
    pub(super) backfill: Option<Arc<dyn Backfill>>,
    pub(super) watchdog: Duration,
    pub(super) check_every: Duration,
    pub(super) grace: Duration,
    pub(super) overlap: Duration,
    pub(super) reconnect: Duration,
    pub(super) longest_pause: Duration,
    pub(super) buffer: usize,
}

impl Settings {
    /// Returns the delay before the next connection attempt or backfill query: half of the exponential delay, plus a
    /// random part of the other half.
    pub(super) fn pause(&self, attempt: u32, base: Duration) -> Duration {
        let half = |chance| full_jitter(attempt, base, self.longest_pause, chance) / 2;
        half(1.0) + half(chance())
    }

    /// Returns the reconnection delay that the event stream's server requests, clamped to 0.5 s to 60 s.
    pub(super) fn server_pause(&self, requested: Duration) -> Duration {
        requested.clamp(Duration::from_millis(500), Duration::from_secs(60))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &self.url.as_str())
            .finish_non_exhaustive()
    }
}

/// Returns a random number between 0 and 1 for the jitter of a retry delay.
fn chance() -> f64 {
    let bits = Uuid::new_v4().as_u64_pair().1 & u64::from(u32::MAX);
    u32::try_from(bits).map_or(0.0, |bits| f64::from(bits) / f64::from(u32::MAX))
}
