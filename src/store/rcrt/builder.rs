use super::http::ServerClient;
use super::{RcrtStore, Settings};
use crate::error::{BoxError, Retry, excerpt};
use crate::http;
use crate::scrub::without_credentials;
use crate::secret::Secret;
use crate::source::sse::Agent;
use crate::source::{BearerToken, SseSource};
use crate::store::StoreId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Builder of an [`RcrtStore`]: the URL of the RCRT server, the owner of the breadcrumbs, the API token, and limits of requests.
///
/// Set the API token with [`token`](Self::token()) or [`token_from`](Self::token_from()), or let
/// the server issue tokens with [`agent`](Self::agent()). The last of these calls counts. Without
/// any, requests have no token.
///
/// | method | default |
/// |---|---|
/// | [`connect_timeout`](Self::connect_timeout()), [`timeout`](Self::timeout()) | 10 s, 30 s |
/// | [`concurrency`](Self::concurrency()) | 16 requests |
/// | [`max_scanned`](Self::max_scanned()) | 10,000 breadcrumbs |
/// | [`max_list_bytes`](Self::max_list_bytes()) | 16 MiB |
/// | [`lookup_timeout`](Self::lookup_timeout()) | 5 s |
/// | [`retry_pause`](Self::retry_pause()) | 50 ms to 1 s |
/// | [`watchdog`](Self::watchdog()), [`check_every`](Self::check_every()) | 15 s, 60 s |
/// | [`reconnect`](Self::reconnect()) | 1 s to 60 s |
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use universal_executor::{BoxError, RcrtStore};
///
/// # fn example() -> Result<(), BoxError> {
/// let owner = "00000000-0000-0000-0000-000000000001";
/// let store = RcrtStore::builder("http://localhost:8080", owner)
///     .agent("00000000-0000-0000-0000-0000000000aa")
///     .role("emitter")
///     .timeout(Duration::from_secs(10))
///     .concurrency(32)
///     .build()?;
/// # drop(store);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct RcrtBuilder {
    base_url: String,
    owner: String,
    token: TokenOrigin,
    roles: Vec<String>,
    settings: Settings,
    connect_timeout: Duration,
    timeout: Duration,
    concurrency: usize,
    stream: StreamSettings,
}

/// Way in which the store gets its API token for the RCRT server: passed to the builder, or issued by the server.
enum TokenOrigin {
    Given(BearerToken),
    Issued(String),
}

/// Settings of the event stream from the RCRT server.
#[derive(Clone, Copy)]
struct StreamSettings {
    watchdog: Duration,
    check_every: Duration,
    reconnect: (Duration, Duration),
}

/// Error of [`RcrtBuilder::build`].
///
/// ```
/// use universal_executor::RcrtStore;
/// use universal_executor::error::Retry;
/// use universal_executor::store::RcrtError;
///
/// let error = RcrtStore::builder("http://localhost:8080", "acme").build().unwrap_err();
/// assert!(matches!(error, RcrtError::BadOwner { .. }));
/// assert_eq!(error.retry(), Retry::Never);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RcrtError {
    /// The base URL of the RCRT server is invalid.
    #[error("the base URL of the RCRT server {problem}; use one like http://localhost:8080")]
    BadUrl {
        /// Description of the problem with the base URL. It does not contain the URL, which may have credentials.
        problem: &'static str,
    },
    /// The owner of the store's breadcrumbs is not a UUID. The server would refuse each request for a token and each new
    /// breadcrumb.
    #[error(
        "the owner {owner:?} of the RCRT store is not a UUID; use the owner_id of the API token"
    )]
    BadOwner {
        /// The invalid owner ID. An API token in this string is replaced by a placeholder, so that the error does not contain the
        /// token.
        owner: String,
        /// Error with which the UUID parser rejected the owner ID.
        source: BoxError,
    },
    /// The HTTP client for the RCRT server cannot be created.
    #[error("cannot create the HTTP client of the RCRT store; see the cause")]
    Http(#[source] BoxError),
}

impl RcrtError {
    /// Returns [`Retry::Never`], because the settings of the store must change before it can be created.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::BadUrl { .. } | Self::BadOwner { .. } | Self::Http(_) => Retry::Never,
        }
    }
}

impl RcrtBuilder {
    pub(super) fn new(base_url: String, owner: String) -> Self {
        Self {
            base_url,
            owner,
            token: TokenOrigin::Given(BearerToken::none()),
            roles: Vec::new(),
            settings: Settings::default(),
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            concurrency: 16,
            stream: StreamSettings {
                watchdog: Duration::from_secs(15),
                check_every: Duration::from_secs(60),
                reconnect: (Duration::from_secs(1), Duration::from_secs(60)),
            },
        }
    }

    /// Sets the API token for the RCRT server.
    ///
    /// Use it for a token that does not expire during the life of the process.
    pub fn token(self, token: Secret) -> Self {
        self.token_from(BearerToken::fixed(token))
    }

    /// Sets the source of the API token for the RCRT server.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use universal_executor::source::BearerToken;
    /// use universal_executor::{BoxError, RcrtStore, Secret};
    ///
    /// # async fn fetch_token() -> Result<String, BoxError> { Ok(String::new()) }
    /// # fn example() -> Result<(), BoxError> {
    /// // The function is called again shortly before the token expires, and after a refusal.
    /// let token = BearerToken::asked(|| async {
    ///     let token = Secret::new(fetch_token().await?);
    ///     Ok::<_, BoxError>((token, Some(Duration::from_secs(3_600))))
    /// });
    /// let owner = "00000000-0000-0000-0000-000000000001";
    /// let store = RcrtStore::builder("http://localhost:8080", owner).token_from(token).build()?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub fn token_from(mut self, token: BearerToken) -> Self {
        self.token = TokenOrigin::Given(token);
        self
    }

    /// Makes the store request its API tokens from the RCRT server at `/auth/token`, in the name of the agent with this ID.
    ///
    /// The request names the owner of the store, this agent and its [roles](Self::role()).
    pub fn agent(mut self, id: impl Into<String>) -> Self {
        self.token = TokenOrigin::Issued(id.into());
        self
    }

    /// Adds a role to the API tokens that the RCRT server issues for an [`agent`](Self::agent). Without a role, the server chooses
    /// the roles.
    ///
    /// Several calls add several roles. Without [`agent`](Self::agent()), the roles have no effect.
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.roles.push(role.into());
        self
    }

    /// Sets the maximum time to establish a connection to the RCRT server. Defaults to 10 s.
    ///
    /// It applies to requests and to the event stream.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets the maximum time of one request to the RCRT server with its response. Defaults to 30 s.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets the maximum number of concurrent requests to the RCRT server, clamped to 1 to 1,024. Defaults to 16.
    ///
    /// A further request waits until another one has ended.
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests.clamp(1, 1_024);
        self
    }

    /// Sets the maximum number of breadcrumbs that a search reads before it fails with
    /// [`StoreError::TooFar`](crate::store::StoreError::TooFar). Zero counts as 1. Defaults to 10,000.
    ///
    /// Raise it for selectors with conditions on the context, which the server does not evaluate.
    pub fn max_scanned(mut self, breadcrumbs: usize) -> Self {
        self.settings.max_scanned = breadcrumbs.max(1);
        self
    }

    /// Sets the maximum size in bytes of one page of the RCRT server's breadcrumb list. Defaults to 16 MiB. The store reads a
    /// larger page in smaller ones, and omits a larger row with a warning.
    pub fn max_list_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_list_bytes = bytes;
        self
    }

    /// Sets the maximum time of the search for a breadcrumb after a creation request whose outcome is unknown. If the search finds no
    /// breadcrumb in this time, the store sends the creation again. Defaults to 5 s.
    pub fn lookup_timeout(mut self, timeout: Duration) -> Self {
        self.settings.lookup_timeout = timeout;
        self
    }

    /// Sets the first and the longest delay between two attempts of a request to the RCRT server. Defaults to 50 ms and 1 s.
    pub fn retry_pause(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.pause = (first, longest);
        self
    }

    /// Sets whether the store rejects an update at which the RCRT server panics, because byte 200 of the new context is inside a
    /// multibyte character. Defaults to `true`. The cause of the error is [`SplitCharacter`](super::SplitCharacter).
    ///
    /// Set `false` only for a server in which the fault is fixed. On any other server, such an update fails with
    /// [`StoreError::Unavailable`](crate::store::StoreError::Unavailable), and its retries fail too.
    pub fn refuse_split_characters(mut self, yes: bool) -> Self {
        self.settings.refuses_split_characters = yes;
        self
    }

    /// Sets the time without a complete SSE frame from the server after which the event stream reconnects. Defaults to 15 s.
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.stream.watchdog = limit;
        self
    }

    /// Sets the interval between two searches for events that the event stream did not deliver. Defaults to 60 s.
    pub fn check_every(mut self, interval: Duration) -> Self {
        self.stream.check_every = interval;
        self
    }

    /// Sets the first and the longest delay between two connection attempts of the event stream, and between two failed searches
    /// for missing events. Defaults to 1 s and 60 s.
    pub fn reconnect(mut self, first: Duration, longest: Duration) -> Self {
        self.stream.reconnect = (first, longest);
        self
    }

    /// Creates the store from these settings. Sends no request.
    ///
    /// # Errors
    /// [`RcrtError`] if the base URL or the owner is invalid, or the HTTP client cannot be created.
    pub fn build(self) -> Result<RcrtStore, RcrtError> {
        let base =
            http::base_url(&self.base_url).map_err(|problem| RcrtError::BadUrl { problem })?;
        let owner = Uuid::parse_str(&self.owner).map_err(|source| RcrtError::BadOwner {
            owner: excerpt(&without_credentials(&self.owner), 64).into_owned(),
            source: source.into(),
        })?;
        let owner = owner.to_string();
        let client = http::client()
            .connect_timeout(self.connect_timeout)
            .timeout(self.timeout)
            .build()
            .map_err(|error| RcrtError::Http(error.into()))?;
        let token = match self.token {
            TokenOrigin::Given(token) => token,
            TokenOrigin::Issued(id) => BearerToken::issued(
                client.clone(),
                &base,
                Agent {
                    owner: owner.clone(),
                    id,
                    roles: self.roles,
                },
            ),
        };
        let server = ServerClient::new(
            client,
            base.clone(),
            token.clone(),
            self.concurrency,
            self.settings.pause,
        );
        let reader = super::read::Reader::new(server, owner.into(), self.settings);
        let url = http::below(&base, &["events", "stream"]);
        let (first, longest) = self.stream.reconnect;
        let events = SseSource::builder(url)
            .token(token)
            .backfill(Arc::new(reader.clone()))
            .connect_timeout(self.connect_timeout)
            .watchdog(self.stream.watchdog)
            .check_every(self.stream.check_every)
            .reconnect(first, longest)
            .build()
            .map_err(|error| RcrtError::Http(error.into()))?;
        let id = StoreId::unique(Arc::clone(&reader.owner));
        Ok(RcrtStore { reader, events, id })
    }
}

impl fmt::Debug for RcrtBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcrtBuilder")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
