use super::http::Link;
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

/// Makes an [`RcrtStore`].
#[must_use]
pub struct RcrtBuilder {
    base_url: String,
    owner: String,
    token: Wanted,
    roles: Vec<String>,
    settings: Settings,
    connect_timeout: Duration,
    timeout: Duration,
    concurrency: usize,
    stream: Stream,
}

/// Where the token shall come from.
enum Wanted {
    Given(BearerToken),
    Issued(String),
}

/// How the events of the store are followed.
#[derive(Clone, Copy)]
struct Stream {
    watchdog: Duration,
    check_every: Duration,
    reconnect: (Duration, Duration),
}

/// An [`RcrtStore`] cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RcrtError {
    /// The base URL is none.
    #[error("the base URL {problem}; use one like http://localhost:8080")]
    BadUrl {
        /// What is wrong with it. The URL is not repeated, as there may be credentials in it.
        problem: &'static str,
    },
    /// The owner is not a UUID, so the server would refuse each request for a token and each new breadcrumb.
    #[error("the owner {owner:?} is not a UUID; use the owner_id of the token")]
    BadOwner {
        /// The owner, without a token that was passed in its place.
        owner: String,
        /// The error of the parser.
        source: BoxError,
    },
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made")]
    Http(#[source] BoxError),
}

impl RcrtError {
    /// Never: the configuration has to change.
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
            token: Wanted::Given(BearerToken::none()),
            roles: Vec::new(),
            settings: Settings::default(),
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            concurrency: 16,
            stream: Stream {
                watchdog: Duration::from_secs(15),
                check_every: Duration::from_secs(60),
                reconnect: (Duration::from_secs(1), Duration::from_secs(60)),
            },
        }
    }

    /// Sends this token.
    pub fn token(self, token: Secret) -> Self {
        self.token_from(BearerToken::fixed(token))
    }

    /// Sends the token that this gives.
    pub fn token_from(mut self, token: BearerToken) -> Self {
        self.token = Wanted::Given(token);
        self
    }

    /// Asks the server for a token at `/auth/token`, in the name of this agent.
    pub fn agent(mut self, id: impl Into<String>) -> Self {
        self.token = Wanted::Issued(id.into());
        self
    }

    /// Adds a role that the token of an [`agent`](Self::agent) shall have; without any the server chooses.
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.roles.push(role.into());
        self
    }

    /// Sets how long a connection may take to be made; ten seconds by default.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets how long one request may take, with its answer; 30 s by default.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets how many requests may be on their way at a time; 16 by default.
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests.clamp(1, 1_024);
        self
    }

    /// Sets the maximum number of breadcrumbs that a search scans before it fails with
    /// [`StoreError::TooFar`](crate::store::StoreError::TooFar); 10,000 by default.
    pub fn max_scanned(mut self, breadcrumbs: usize) -> Self {
        self.settings.max_scanned = breadcrumbs.max(1);
        self
    }

    /// Sets how many bytes are read of one page of a list; 16 MiB by default. A page that is larger is read in smaller ones,
    /// and a row that is larger is left out with a warning.
    pub fn max_list_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_list_bytes = bytes;
        self
    }

    /// Sets how long is looked for a breadcrumb that may have been created, before it is created again; 5 s by default.
    pub fn lookup_timeout(mut self, timeout: Duration) -> Self {
        self.settings.patience = timeout;
        self
    }

    /// Sets the first and the longest pause between two tries of a request; 50 ms and 1 s by default.
    pub fn retry_pause(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.pause = (first, longest);
        self
    }

    /// Sets whether the store refuses an update that makes the server panic, with [`SplitCharacter`](super::SplitCharacter) as the
    /// cause. Defaults to `true`. Set `false` for a server in which the fault is fixed; such an update to any other server fails
    /// with [`StoreError::Unavailable`](crate::store::StoreError::Unavailable) and is retried in vain.
    pub fn refuse_split_characters(mut self, yes: bool) -> Self {
        self.settings.refuses_split_characters = yes;
        self
    }

    /// Sets after how long without a complete frame the stream of events counts as dead; 15 s by default.
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.stream.watchdog = limit;
        self
    }

    /// Sets how often is asked for what the stream of events left out; every minute by default.
    pub fn check_every(mut self, interval: Duration) -> Self {
        self.stream.check_every = interval;
        self
    }

    /// Sets the first and the longest pause between two connections to the stream of events, and between two looks for what
    /// it left out if they fail; 1 s and 60 s by default.
    pub fn reconnect(mut self, first: Duration, longest: Duration) -> Self {
        self.stream.reconnect = (first, longest);
        self
    }

    /// The store. Nothing is sent yet.
    ///
    /// # Errors
    /// [`RcrtError`] if the URL or the owner cannot be used.
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
            Wanted::Given(token) => token,
            Wanted::Issued(id) => BearerToken::issued(
                client.clone(),
                &base,
                Agent {
                    owner: owner.clone(),
                    id,
                    roles: self.roles,
                },
            ),
        };
        let link = Link::new(
            client,
            base.clone(),
            token.clone(),
            self.concurrency,
            self.settings.pause,
        );
        let reader = super::read::Reader::new(link, owner.into(), self.settings);
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
