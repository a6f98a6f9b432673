use super::backfill::Backfill;
use super::token::BearerToken;
use crate::backoff::full_jitter;
use reqwest::{Client, Url};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How a stream is followed.
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
    /// How long to wait before the next connection: at least half of what the attempt comes to, and the rest by chance.
    pub(super) fn pause(&self, attempt: u32, base: Duration) -> Duration {
        let half = |chance| full_jitter(attempt, base, self.longest_pause, chance) / 2;
        half(1.0) + half(chance())
    }

    /// The pause that a server asks for, as far as it is one.
    pub(super) fn asked_pause(&self, asked: Duration) -> Duration {
        asked.clamp(Duration::from_millis(500), Duration::from_secs(60))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &self.url.as_str())
            .finish_non_exhaustive()
    }
}

/// A number from 0 to 1, by chance.
fn chance() -> f64 {
    let bits = Uuid::new_v4().as_u64_pair().1 & u64::from(u32::MAX);
    u32::try_from(bits).map_or(0.0, |bits| f64::from(bits) / f64::from(u32::MAX))
}
