use super::backfill::Backfill;
use super::settings::Settings;
use super::source::SseSource;
use super::token::BearerToken;
use crate::error::{BoxError, Retry};
use crate::http;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Builder for an [`SseSource`].
///
/// [`SseSource::builder`] creates it with the defaults of each method. A program on an RCRT server
/// rarely needs it: [`RcrtStore::events`](crate::store::RcrtStore::events) is a source with a
/// backfill.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::source::{SseError, SseHealth, SseSource};
///
/// let events = SseSource::builder("http://localhost:8080/events/stream")
///     .watchdog(Duration::from_secs(30))
///     .reconnect(Duration::from_secs(2), Duration::from_secs(120))
///     .buffer(4_096)
///     .build()?;
/// // The source connects at the first subscription.
/// assert_eq!(events.health(), SseHealth::default());
///
/// let invalid = SseSource::builder("localhost").build();
/// assert!(matches!(invalid, Err(SseError::BadUrl { .. })));
/// # Ok::<(), SseError>(())
/// ```
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

/// Error returned by [`SseSourceBuilder::build`].
///
/// Both variants are mistakes in the configuration. An unreachable server is not an error of the
/// builder: a subscription reports it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// The URL of the event stream is invalid.
    #[error("the event stream URL {problem}; use one like http://localhost:8080/events/stream")]
    BadUrl {
        /// Description of the error in the event stream URL. Omits the URL, because a URL can contain credentials.
        problem: &'static str,
    },
    /// The HTTP client of the event source cannot be created.
    #[error("cannot create the HTTP client of the event source; see the cause")]
    Http(#[source] BoxError),
}

impl SseError {
    /// Returns [`Retry::Never`], because the configuration of the event source must change first.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::BadUrl { .. } | Self::Http(_) => Retry::Never,
        }
    }
}

impl SseSource {
    /// Returns a builder for an event source that reads server-sent events at a URL.
    pub fn builder(url: impl Into<String>) -> SseSourceBuilder {
        SseSourceBuilder::new(url.into())
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

    /// Sets the bearer token that the event source sends with each request for the event stream. Defaults to no token.
    pub fn token(mut self, token: BearerToken) -> Self {
        self.token = token;
        self
    }

    /// Sets the list of breadcrumb changes in which the source finds the events that its stream did not deliver. The source
    /// queries the list after each connect and at the interval [`check_every`](Self::check_every). Defaults to none: the source
    /// then does not deliver events that were written while it had no connection.
    pub fn backfill(mut self, backfill: Arc<dyn Backfill>) -> Self {
        self.backfill = Some(backfill);
        self
    }

    /// Sets the timeout for opening a connection to the event stream. Defaults to 10 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets the maximum time between two complete frames of the event stream, after which the source reconnects. Bytes of an incomplete
    /// frame do not extend this time. Defaults to 15 s, three ping intervals of a server of RCRT (Right Context Right Time).
    ///
    /// Set it to about three times the ping interval of the server. A shorter time causes needless
    /// reconnects.
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.watchdog = limit;
        self
    }

    /// Sets the interval at which a connected source queries the [`backfill`](Self::backfill) for events that its stream did not
    /// deliver. Defaults to 60 s.
    pub fn check_every(mut self, interval: Duration) -> Self {
        self.check_every = interval;
        self
    }

    /// Sets the time that the stream has to deliver an event that the [`backfill`](Self::backfill) found, before the source
    /// itself delivers the event. If the stream does not deliver the event within this delay, the event counts as missed by the
    /// stream. Defaults to 2 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the overlap of successive [`backfill`](Self::backfill) queries: each query starts this long before the newest
    /// breadcrumb change that the source knows. The overlap finds commits that became visible out of order, and commits with a
    /// timestamp from another clock of the server. Defaults to 60 s.
    pub fn overlap(mut self, overlap: Duration) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets the first and the maximum delay between two connection attempts, and between two attempts of a failed
    /// [`backfill`](Self::backfill) query. The delay doubles with each attempt, minus a random jitter of up to 50%. Defaults to 1 s
    /// and 60 s. A `retry` field of the stream replaces the first delay between connection attempts, clamped to 0.5 s to 60 s.
    pub fn reconnect(mut self, first: Duration, longest: Duration) -> Self {
        self.reconnect = first;
        self.longest_pause = longest;
        self
    }

    /// Sets the number of events that the source buffers for a slow subscriber. The source drops the oldest events of a full buffer and
    /// reports them as [`SourceError::Lagged`](crate::source::SourceError::Lagged). Defaults to 1,024, at least 1. An event takes at
    /// most 97 KiB of memory, and usually less than 1 KiB.
    ///
    /// Raise it if the log or the metrics show [`Lagged`](crate::source::SourceError::Lagged)
    /// errors.
    pub fn buffer(mut self, events: usize) -> Self {
        self.buffer = events.max(1);
        self
    }

    /// Builds the event source. The source connects at the first subscription.
    ///
    /// # Errors
    /// Returns an [`SseError`] if the URL is invalid or the HTTP client cannot be created.
    pub fn build(self) -> Result<SseSource, SseError> {
        self.settings().map(SseSource::of)
    }

    pub(super) fn settings(self) -> Result<Settings, SseError> {
        let url = http::base_url(&self.url).map_err(|problem| SseError::BadUrl { problem })?;
        if !self.token.is_absent() {
            http::warn_if_exposed(&url);
        }
        // No read timeout: the watchdog limits the silence of a stream.
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
