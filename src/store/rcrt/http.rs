//! One request to the server and its answer, as far as the limits let it be read.

use crate::backoff::full_jitter;
use crate::clock;
use crate::error::{BoxError, Chain};
use crate::http;
use crate::model::Timestamp;
use crate::source::{BearerToken, TokenError};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode, Url};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use uuid::Uuid;

/// How much of the text of an error is told, in bytes.
const MAX_TOLD: usize = 300;

/// How often a request that changes nothing is sent at the most.
const TRIES: u32 = 3;

/// The way to the server.
#[derive(Clone)]
pub(super) struct Link {
    client: Client,
    base: Url,
    token: BearerToken,
    places: Arc<Semaphore>,
    pause: (Duration, Duration),
}

/// One request.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) body: Option<String>,
    /// How many bytes of the answer are read.
    pub(super) max_bytes: usize,
}

/// What the server says to a request that it did.
pub(super) struct Answer {
    pub(super) text: Vec<u8>,
    /// What time it was by the clock of the server, to the second; none if it does not say.
    pub(super) at: Option<Timestamp>,
}

/// Why a request has no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the server answers {status}: {said}")]
    Status {
        status: u16,
        said: String,
        retry_after: Option<Duration>,
    },
    /// It was not sent, so nothing was done.
    #[error("the server cannot be reached: {0}")]
    Unsent(BoxError),
    /// It was sent, and what became of it is not known.
    #[error("the answer was lost: {0}")]
    Lost(BoxError),
    #[error("the answer has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the answer cannot be read: {0}")]
    Unreadable(BoxError),
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl Failure {
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Unsent(_)
            | Self::Lost(_)
            | Self::TooLarge { .. }
            | Self::Unreadable(_)
            | Self::Token(_) => None,
        }
    }

    /// Whether the same may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Unsent(_) | Self::Lost(_) => true,
            Self::Token(error) => error.retry() != crate::error::Retry::Never,
            Self::TooLarge { .. } | Self::Unreadable(_) => false,
        }
    }

    /// Whether a write that failed so may have been done all the same.
    pub(super) fn may_be_done(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 500..),
            Self::Lost(_) | Self::TooLarge { .. } | Self::Unreadable(_) => true,
            Self::Unsent(_) | Self::Token(_) => false,
        }
    }

    /// When to come again.
    pub(super) fn retry_after(&self) -> Duration {
        const PAUSE: Duration = Duration::from_secs(1);
        match self {
            Self::Status {
                retry_after: Some(delay),
                ..
            } => *delay,
            Self::Status { .. }
            | Self::Unsent(_)
            | Self::Lost(_)
            | Self::TooLarge { .. }
            | Self::Unreadable(_)
            | Self::Token(_) => PAUSE,
        }
    }
}

impl Link {
    pub(super) fn new(
        client: Client,
        base: Url,
        token: BearerToken,
        concurrency: usize,
        pause: (Duration, Duration),
    ) -> Self {
        Self {
            client,
            base,
            token,
            places: Arc::new(Semaphore::new(concurrency)),
            pause,
        }
    }

    pub(super) fn url(&self, path: &[&str]) -> Url {
        http::below(&self.base, path)
    }

    /// Sends what changes nothing, more than once if need be.
    pub(super) async fn get(&self, url: &Url, max_bytes: usize) -> Result<Answer, Failure> {
        let mut tries = 1;
        loop {
            let call = Call {
                method: Method::GET,
                url: url.clone(),
                headers: Vec::new(),
                body: None,
                max_bytes,
            };
            match self.send(&call).await {
                Err(failure) if failure.is_passing() && tries < TRIES => {
                    tracing::debug!(failure = %Chain(&failure), "a request is sent again");
                    self.pause(tries).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Sends a request once; with a new token once more if the server refuses the one it had.
    pub(super) async fn send(&self, call: &Call) -> Result<Answer, Failure> {
        let mut renewed = false;
        loop {
            let token = self.token.header().await?;
            // It is never closed, so there is always a place.
            let _place = self.places.acquire().await;
            let response = self
                .request(call, token.as_ref())
                .send()
                .await
                .map_err(broken)?;
            let status = response.status();
            if status.is_success() {
                let at = http::header(response.headers(), &DATE)
                    .and_then(http::date)
                    .map(Timestamp::from_micros);
                let text = whole(response, call.max_bytes).await?;
                return Ok(Answer { text, at });
            }
            if status == StatusCode::UNAUTHORIZED && !renewed && self.token.refused(token.as_ref())
            {
                renewed = true;
                continue;
            }
            return Err(refused(response, token.as_ref()).await);
        }
    }

    /// Waits before the same is sent again.
    pub(super) async fn pause(&self, tries: u32) {
        let (first, longest) = self.pause;
        let chance = Uuid::new_v4()
            .as_bytes()
            .first()
            .map_or(0.0, |byte| f64::from(*byte) / 255.0);
        let half = |chance| full_jitter(tries, first, longest, chance) / 2;
        sleep(half(1.0) + half(chance)).await;
    }

    fn request(&self, call: &Call, token: Option<&HeaderValue>) -> reqwest::RequestBuilder {
        let mut request = self.client.request(call.method.clone(), call.url.clone());
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        match &call.body {
            Some(body) => request
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone()),
            None => request,
        }
    }
}

async fn whole(mut response: Response, limit: usize) -> Result<Vec<u8>, Failure> {
    let mut whole = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if chunk.len() > limit - whole.len() {
            return Err(Failure::TooLarge { limit });
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}

/// What an answer says that is an error.
async fn refused(mut response: Response, token: Option<&HeaderValue>) -> Failure {
    let status = response.status().as_u16();
    let retry_after = http::header(response.headers(), &RETRY_AFTER)
        .and_then(|text| http::retry_after(text, clock::wall_micros()));
    Failure::Status {
        status,
        said: http::said(&mut response, token, MAX_TOLD).await,
        retry_after,
    }
}

/// A connection that was not made, or broke. The URL is taken out of the error.
fn broken(error: reqwest::Error) -> Failure {
    let error = error.without_url();
    match error.is_connect() || error.is_builder() {
        true => Failure::Unsent(error.into()),
        false => Failure::Lost(error.into()),
    }
}
