use super::backfill::Backfill;
use super::settings::Settings;
use super::source::SseSource;
use super::token::BearerToken;
use crate::error::{BoxError, Retry};
use crate::http;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Makes an [`SseSource`].
#[must_use]
pub struct SseSourceBuilder {
    url: String,
    token: BearerToken,
    backfill: Option<Arc<dyn Backfill>>,
    connect_timeout: Duration,
    watchdog: Duration,
    check_every: Duration,
    grace: Duration,
    overlap: Duration,
    reconnect: Duration,
    longest_pause: Duration,
    buffer: usize,
}

/// An [`SseSource`] cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// The URL is none.
    #[error("the URL of the stream {problem}; use one like http://localhost:8080/events/stream")]
    BadUrl {
        /// What is wrong with it. The URL is not repeated, as there may be credentials in it.
        problem: &'static str,
    },
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made")]
    Http(#[source] BoxError),
}

impl SseError {
    /// Never: the configuration has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::BadUrl { .. } | Self::Http(_) => Retry::Never,
        }
    }
}

impl SseSourceBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            token: BearerToken::none(),
            backfill: None,
            connect_timeout: Duration::from_secs(10),
            watchdog: Duration::from_secs(15),
            check_every: Duration::from_secs(60),
            grace: Duration::from_secs(2),
            overlap: Duration::from_secs(60),
            reconnect: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            buffer: 1_024,
        }
    }

    /// Sends a token when it connects; none by default.
    pub fn token(mut self, token: BearerToken) -> Self {
        self.token = token;
        self
    }

    /// Reads missing events from a list, after each connect and from time to time. By default, the source does not deliver events that
    /// were written while it had no connection.
    pub fn backfill(mut self, backfill: Arc<dyn Backfill>) -> Self {
        self.backfill = Some(backfill);
        self
    }

    /// Sets how long a connection may take to be made; ten seconds by default.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets after how long without a complete frame a connection counts as dead; 15 s by default, three pings of an RCRT
    /// server. Bytes that complete no frame do not count.
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.watchdog = limit;
        self
    }

    /// Sets how often is asked for what a living stream left out; every minute by default.
    pub fn check_every(mut self, interval: Duration) -> Self {
        self.check_every = interval;
        self
    }

    /// Sets how long something found by asking may still come by the stream before it counts as left out; 2 s by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how far back is asked behind what is known, as commits of a time may become visible later than those after
    /// them, and clocks of one server may differ; a minute by default.
    pub fn overlap(mut self, overlap: Duration) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets the first and the longest pause between two connections, and between two looks for what was left out if they
    /// fail; 1 s and 60 s by default. Each doubles the one before, and up to half of it is taken off by chance. A server may
    /// ask for another first one between connections.
    pub fn reconnect(mut self, first: Duration, longest: Duration) -> Self {
        self.reconnect = first;
        self.longest_pause = longest;
        self
    }

    /// Sets how many events are kept for a subscriber that is slow, before it is told that some were dropped; 1,024 by
    /// default. Each takes 97 KiB of memory at the most, and usually less than one.
    pub fn buffer(mut self, events: usize) -> Self {
        self.buffer = events.max(1);
        self
    }

    /// The source; it connects when it is subscribed to.
    ///
    /// # Errors
    /// [`SseError`] if the URL cannot be used.
    pub fn build(self) -> Result<SseSource, SseError> {
        self.settings().map(SseSource::of)
    }

    pub(super) fn settings(self) -> Result<Settings, SseError> {
        let url = http::base_url(&self.url).map_err(|problem| SseError::BadUrl { problem })?;
        if !self.token.is_absent() {
            http::warn_if_exposed(&url);
        }
        // How long a stream may be silent is for the watchdog to say.
        let client = http::client().connect_timeout(self.connect_timeout).build();
        Ok(Settings {
            client: client.map_err(|error| SseError::Http(error.into()))?,
            url,
            token: self.token,
            backfill: self.backfill,
            watchdog: self.watchdog,
            check_every: self.check_every,
            grace: self.grace,
            overlap: self.overlap,
            reconnect: self.reconnect,
            longest_pause: self.longest_pause,
            buffer: self.buffer,
        })
    }
}

impl fmt::Debug for SseSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseSourceBuilder").finish_non_exhaustive()
    }
}
