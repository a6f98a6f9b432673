//! HTTP requests to the RCRT server, with limits on time and size.

use crate::backoff::full_jitter;
use crate::clock;
use crate::error::{BoxError, Chain, Retry};
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

/// Maximum number of bytes of the RCRT server's error message in an error of the store.
const MAX_MESSAGE: usize = 300;

/// Delay before the next request after the RCRT server refused the credentials. An operator must act, and a server may count
/// failed logins.
const UNAUTHORIZED_PAUSE: Duration = Duration::from_secs(60);

/// Maximum number of attempts of a request that changes nothing on the RCRT server.
const TRIES: u32 = 3;

/// HTTP client, base URL and API token for the RCRT server.
#[derive(Clone)]
pub(super) struct ServerClient {
    client: Client,
    base: Url,
    token: BearerToken,
    permits: Arc<Semaphore>,
    /// Maximum number of concurrent requests to the RCRT server.
    pub(super) concurrency: usize,
    pause: (Duration, Duration),
}

/// A request to the RCRT server.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) body: Option<String>,
    /// Maximum size of the response body in bytes.
    pub(super) max_bytes: usize,
}

impl Call {
    /// Returns the method and the URL of the request without the query, for error messages.
    fn name(&self) -> String {
        format!("{} {}", self.method, http::without_query(&self.url))
    }
}

/// Successful response of the RCRT server: the body, and the server's time.
pub(super) struct Answer {
    pub(super) text: Vec<u8>,
    /// The server's time from the `Date` header of the response, with a precision of one second. `None` without the header.
    pub(super) server_time: Option<Timestamp>,
}

/// Error of a request to the RCRT server. Its message names the method and the URL without the query.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{request} failed with status {status}: {message}")]
    Status {
        request: String,
        status: u16,
        message: String,
        retry_after: Option<Duration>,
    },
    /// The RCRT server refuses the credentials, so the request changed nothing.
    #[error("{request} failed with status 401: {message}; check the API token of the RCRT store")]
    Unauthorized { request: String, message: String },
    /// The HTTP request to the RCRT server was not sent, so it changed nothing.
    #[error("cannot send {request}; check the base URL and that the server is running")]
    Unsent { request: String, source: BoxError },
    /// The HTTP request was sent, but the RCRT server's response is incomplete or missing, so the effect of the request is
    /// unknown.
    #[error(
        "{request} failed without a complete response, so its effect is unknown; see the cause"
    )]
    Lost { request: String, source: BoxError },
    #[error("the response of the RCRT server has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("cannot read the response of the RCRT server; see the cause")]
    Unreadable(#[source] BoxError),
    #[error("cannot get an API token for the RCRT server; see the cause")]
    Token(#[from] TokenError),
}

impl Failure {
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Unauthorized { .. } => Some(401),
            Self::Unsent { .. }
            | Self::Lost { .. }
            | Self::TooLarge { .. }
            | Self::Unreadable(_)
            | Self::Token(_) => None,
        }
    }

    /// Returns `true` if the same request to the RCRT server can succeed soon.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Unsent { .. } | Self::Lost { .. } => true,
            Self::Token(error) => error.retry() != Retry::Never,
            Self::Unauthorized { .. } | Self::TooLarge { .. } | Self::Unreadable(_) => false,
        }
    }

    /// Returns `true` if the failure may be limited to this request, so that other requests to the RCRT server can still succeed.
    pub(super) fn affects_one_request(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 500..),
            Self::Lost { .. } => true,
            Self::Unauthorized { .. }
            | Self::Unsent { .. }
            | Self::TooLarge { .. }
            | Self::Unreadable(_)
            | Self::Token(_) => false,
        }
    }

    /// Returns `true` if the request can succeed once an operator has corrected the credentials for the RCRT server.
    pub(super) fn is_unauthorized(&self) -> bool {
        match self {
            Self::Unauthorized { .. } => true,
            Self::Token(error) => error.retry() == Retry::Never,
            Self::Status { .. }
            | Self::Unsent { .. }
            | Self::Lost { .. }
            | Self::TooLarge { .. }
            | Self::Unreadable(_) => false,
        }
    }

    /// Returns `true` if a write request with this failure may have succeeded.
    pub(super) fn may_have_succeeded(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 500..),
            Self::Lost { .. } | Self::TooLarge { .. } | Self::Unreadable(_) => true,
            Self::Unauthorized { .. } | Self::Unsent { .. } | Self::Token(_) => false,
        }
    }

    /// Returns the delay before the next attempt of the failed request.
    pub(super) fn retry_after(&self) -> Duration {
        const PAUSE: Duration = Duration::from_secs(1);
        match self {
            failure if failure.is_unauthorized() => UNAUTHORIZED_PAUSE,
            Self::Status {
                retry_after: Some(delay),
                ..
            } => *delay,
            Self::Status { .. }
            | Self::Unauthorized { .. }
            | Self::Unsent { .. }
            | Self::Lost { .. }
            | Self::TooLarge { .. }
            | Self::Unreadable(_)
            | Self::Token(_) => PAUSE,
        }
    }
}

impl ServerClient {
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
            permits: Arc::new(Semaphore::new(concurrency)),
            concurrency,
            pause,
        }
    }

    pub(super) fn url(&self, path: &[&str]) -> Url {
        http::below(&self.base, path)
    }

    /// Sends a GET request, which changes nothing on the RCRT server. Retries it after a transient failure.
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
                Err(failure) if failure.is_transient() && tries < TRIES => {
                    tracing::debug!(failure = %Chain(&failure), "request to the RCRT server failed, will retry");
                    self.pause(tries).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Sends a request to the RCRT server once. If the server refuses the token, sends it a second time with a new token.
    pub(super) async fn send(&self, call: &Call) -> Result<Answer, Failure> {
        let mut renewed = false;
        loop {
            let token = self.token.header().await?;
            // The semaphore is never closed, so `acquire` never fails.
            let _permit = self.permits.acquire().await;
            let response = self
                .request(call, token.as_ref())
                .send()
                .await
                .map_err(|error| connection_failure(call, error))?;
            let status = response.status();
            if status.is_success() {
                let server_time = http::header(response.headers(), &DATE)
                    .and_then(http::date)
                    .map(Timestamp::from_micros);
                let text = read_body(response, call).await?;
                return Ok(Answer { text, server_time });
            }
            if status == StatusCode::UNAUTHORIZED && !renewed && self.token.refused(token.as_ref())
            {
                renewed = true;
                continue;
            }
            return Err(status_failure(call, response, token.as_ref()).await);
        }
    }

    /// Waits before the next attempt of a request to the RCRT server.
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

async fn read_body(mut response: Response, call: &Call) -> Result<Vec<u8>, Failure> {
    let (mut body, limit) = (Vec::new(), call.max_bytes);
    let failure = |error| connection_failure(call, error);
    while let Some(chunk) = response.chunk().await.map_err(failure)? {
        if chunk.len() > limit - body.len() {
            return Err(Failure::TooLarge { limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns the error for a response of the RCRT server with an error status.
async fn status_failure(
    call: &Call,
    mut response: Response,
    token: Option<&HeaderValue>,
) -> Failure {
    let status = response.status().as_u16();
    let retry_after = http::header(response.headers(), &RETRY_AFTER)
        .and_then(|text| http::retry_after(text, clock::wall_micros()));
    let message = http::error_body(&mut response, token, MAX_MESSAGE).await;
    let request = call.name();
    match status {
        401 => Failure::Unauthorized { request, message },
        status => Failure::Status {
            request,
            status,
            message,
            retry_after,
        },
    }
}

/// Returns the error for a connection to the RCRT server that was not established, or broke.
fn connection_failure(call: &Call, error: reqwest::Error) -> Failure {
    let request = call.name();
    let is_unsent = error.is_connect() || error.is_builder();
    let source = error.without_url().into();
    match is_unsent {
        true => Failure::Unsent { request, source },
        false => Failure::Lost { request, source },
    }
}
