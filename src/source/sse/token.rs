use crate::clock::{later, wall_micros, within};
use crate::error::{BoxError, Retry, excerpt};
use crate::http;
use crate::secret::Secret;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Url};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Timeout for a request for a bearer token.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Bearer token for requests to a server, sent in the `Authorization` header and never in a URL. Clones share the token
/// and its renewal.
///
/// Use [`fixed`](Self::fixed) for a token from the configuration, and [`asked`](Self::asked) for a
/// token that expires. The source renews such a token before it expires: a fifth of its lifetime
/// before, at most one minute.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::Secret;
/// use universal_executor::source::BearerToken;
///
/// let fixed = BearerToken::fixed(Secret::new("eyJhbGciOiJSUzI1NiJ9.."));
/// let asked = BearerToken::asked(|| async { Ok((Secret::new("eyJ.."), Some(Duration::from_secs(3_600)))) });
///
/// assert_eq!(format!("{fixed:?}"), "BearerToken(..)");
/// # drop(asked);
/// ```
#[derive(Clone)]
pub struct BearerToken(Arc<Inner>);

struct Inner {
    origin: Origin,
    cached: Mutex<Option<CachedToken>>,
    /// Semaphore that allows only one caller at a time to renew the bearer token.
    renewing: Semaphore,
}

enum Origin {
    None,
    Fixed(Secret),
    Function(Box<TokenFunction>),
}

/// A bearer token and its lifetime.
type IssuedToken = (Secret, Option<Duration>);
type TokenFunction = dyn Fn() -> BoxFuture<'static, Result<IssuedToken, TokenError>> + Send + Sync;

#[derive(Clone)]
struct CachedToken {
    header: HeaderValue,
    until: Option<Instant>,
}

/// Error of a request for a bearer token. No message contains a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token server issues no token for this agent. Its owner, ID and roles have to change.
    #[error(
        "the token server rejected the token request with status {status}: {said}; check the owner, ID and roles of the agent"
    )]
    Refused {
        /// HTTP status of the token server's response.
        status: u16,
        /// Start of the token server's response body, at most 200 bytes.
        said: String,
    },
    /// The bearer token contains characters that are not allowed in an HTTP header.
    #[error("the bearer token contains characters that are not allowed in an HTTP header")]
    Unsendable,
    /// The server or function that supplies bearer tokens does not answer, or its answer is invalid. A retry can
    /// succeed.
    #[error("cannot obtain a bearer token; see the cause")]
    Unavailable(#[source] BoxError),
}

impl TokenError {
    /// Returns a delay of one second for [`Unavailable`](Self::Unavailable), and [`Retry::Never`] for the other
    /// variants.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable(_) => Retry::After(Duration::from_secs(1)),
            Self::Refused { .. } | Self::Unsendable => Retry::Never,
        }
    }
}

impl BearerToken {
    /// Returns `true` for an empty bearer token: requests carry no `Authorization` header.
    pub(super) fn is_absent(&self) -> bool {
        match self.0.origin {
            Origin::None => true,
            Origin::Fixed(_) | Origin::Function(_) => false,
        }
    }

    /// Creates an empty bearer token: requests carry no `Authorization` header.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Origin::None)
    }

    /// Creates a bearer token that is never renewed.
    #[must_use]
    pub fn fixed(token: Secret) -> Self {
        Self::of(Origin::Fixed(token))
    }

    /// Creates a bearer token that a function supplies on demand. The function can also return the token's lifetime.
    ///
    /// The function is called again shortly before the token expires, and after the server refuses the token. A call
    /// has 30 s to answer. The returned error must not contain the token.
    ///
    /// Concurrent requests wait for one call of the function, and share its token. Without a
    /// lifetime, the token is used until the server refuses it.
    #[must_use]
    pub fn asked<F, T>(ask: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<(Secret, Option<Duration>), BoxError>> + Send + 'static,
    {
        Self::of(Origin::Function(Box::new(move || {
            let asked = ask();
            async move { asked.await.map_err(TokenError::Unavailable) }.boxed()
        })))
    }

    /// Creates a bearer token that a server issues at `/auth/token`. The token is for an agent, identified by an owner
    /// ID and an agent ID.
    pub(crate) fn issued(client: Client, base: &Url, agent: Agent) -> Self {
        let (url, agent) = (http::below(base, &["auth", "token"]), Arc::new(agent));
        Self::of(Origin::Function(Box::new(move || {
            request_token(client.clone(), url.clone(), Arc::clone(&agent)).boxed()
        })))
    }

    fn of(origin: Origin) -> Self {
        Self(Arc::new(Inner {
            origin,
            cached: Mutex::new(None),
            renewing: Semaphore::new(1),
        }))
    }

    /// Returns the `Authorization` header for a request, with a renewed token if the current one expires soon. Returns
    /// `None` for an empty token.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, TokenError> {
        let function = match &self.0.origin {
            Origin::None => return Ok(None),
            Origin::Fixed(token) => return header_of(token).map(Some),
            Origin::Function(function) => function,
        };
        if let Some(cached) = self.cached() {
            return Ok(Some(cached));
        }
        // The semaphore is never closed, so `acquire` cannot fail.
        let _one = self.0.renewing.acquire().await;
        if let Some(cached) = self.cached() {
            return Ok(Some(cached));
        }
        // Concurrent callers wait for the permit, and then use this token.
        let issued = within(REQUEST_TIMEOUT, function()).await;
        let (token, lifetime) =
            issued.ok_or_else(|| TokenError::Unavailable("no token within 30 s".into()))??;
        let header = header_of(&token)?;
        let until =
            lifetime.map(|lifetime| later(Instant::now(), lifetime - renewal_margin(lifetime)));
        let cached = CachedToken {
            header: header.clone(),
            until,
        };
        *self.lock() = Some(cached);
        Ok(Some(header))
    }

    /// Discards a bearer token that the server refused. Returns `false` if no other token can be obtained.
    pub(crate) fn refused(&self, header: Option<&HeaderValue>) -> bool {
        match &self.0.origin {
            Origin::None | Origin::Fixed(_) => false,
            Origin::Function(_) => {
                let mut cached = self.lock();
                if cached.as_ref().map(|cached| &cached.header) == header {
                    *cached = None;
                }
                true
            }
        }
    }

    fn cached(&self) -> Option<HeaderValue> {
        let cached = self.lock().clone()?;
        let is_valid = cached.until.is_none_or(|until| Instant::now() < until);
        is_valid.then_some(cached.header)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<CachedToken>> {
        self.0.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

/// The agent for which a bearer token is requested from the token server.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) owner: String,
    pub(crate) id: String,
    pub(crate) roles: Vec<String>,
}

/// Returns how long before its expiry a bearer token is renewed: a fifth of its lifetime, at most one minute.
fn renewal_margin(lifetime: Duration) -> Duration {
    (lifetime / 5).min(Duration::from_secs(60))
}

fn header_of(token: &Secret) -> Result<HeaderValue, TokenError> {
    http::bearer(token).ok_or(TokenError::Unsendable)
}

async fn request_token(
    client: Client,
    url: Url,
    agent: Arc<Agent>,
) -> Result<IssuedToken, TokenError> {
    const REQUESTED_LIFETIME: Duration = Duration::from_secs(3_600);
    const MAX_BYTES: usize = 64 << 10;
    #[derive(Serialize)]
    struct TokenRequest<'a> {
        owner_id: &'a str,
        agent_id: &'a str,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        roles: &'a [String],
        ttl_sec: u64,
    }
    #[derive(Deserialize)]
    struct Issued {
        token: String,
        exp: Option<i64>,
    }
    let token_request = TokenRequest {
        owner_id: &agent.owner,
        agent_id: &agent.id,
        roles: &agent.roles,
        ttl_sec: REQUESTED_LIFETIME.as_secs(),
    };
    // Serializing strings and numbers cannot fail.
    let body = serde_json::to_string(&token_request).unwrap_or_default();
    let unavailable = |error: reqwest::Error| TokenError::Unavailable(error.without_url().into());
    let request = client
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .body(body);
    let mut response = request.send().await.map_err(unavailable)?;
    let status = response.status();
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unavailable)? {
        text.extend_from_slice(&chunk);
        if text.len() > MAX_BYTES {
            return Err(TokenError::Unavailable(
                "response with the token is larger than 64 KiB".into(),
            ));
        }
    }
    // The body of a successful response contains the token, so only other bodies are reported.
    if !status.is_success() {
        let said = excerpt(String::from_utf8_lossy(&text).trim(), 200).into_owned();
        return Err(match status.is_client_error() && status.as_u16() != 429 {
            true => TokenError::Refused {
                status: status.as_u16(),
                said,
            },
            false => TokenError::Unavailable(format!("status {status}: {said}").into()),
        });
    }
    // The parser's message may quote the token, so the error omits it.
    let issued: Issued = serde_json::from_slice(&text)
        .map_err(|_| TokenError::Unavailable("response contains no token".into()))?;
    let lifetime = issued.exp.map(|end| {
        let micros = end.saturating_mul(1_000_000).saturating_sub(wall_micros());
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    });
    Ok((
        Secret::new(issued.token),
        Some(lifetime.unwrap_or(REQUESTED_LIFETIME)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Returns a token with a lifetime of ten seconds, whose value counts the calls of its function.
    fn counted() -> BearerToken {
        let asked = AtomicU32::new(0);
        BearerToken::asked(move || {
            let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                Ok((
                    Secret::new(format!("t{number}")),
                    Some(Duration::from_secs(10)),
                ))
            }
        })
    }

    async fn sent(token: &BearerToken) -> String {
        let header = token.header().await.unwrap().unwrap();
        header.to_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_shortly_before_it_expires() {
        let token = counted();

        let first = [sent(&token).await, sent(&token).await];
        tokio::time::advance(Duration::from_millis(8_500)).await;
        let later = sent(&token).await;

        assert_eq!(first, ["Bearer t1", "Bearer t1"]);
        assert_eq!(later, "Bearer t2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_function_that_hangs_is_an_error_and_does_not_block_later_requests() {
        let hangs = AtomicU32::new(1);
        let token = BearerToken::asked(move || {
            let hang = hangs.swap(0, Ordering::Relaxed) == 1;
            async move {
                if hang {
                    std::future::pending::<()>().await;
                }
                Ok((Secret::new("t"), None))
            }
        });

        let first = token.header().await;

        assert!(
            matches!(first, Err(TokenError::Unavailable(_))),
            "{first:?}"
        );
        assert_eq!(sent(&token).await, "Bearer t");
    }

    #[tokio::test]
    async fn a_token_may_last_for_ever() {
        let token = BearerToken::asked(|| async { Ok((Secret::new("t"), Some(Duration::MAX))) });

        assert_eq!([sent(&token).await, sent(&token).await], ["Bearer t"; 2]);
    }

    #[tokio::test]
    async fn a_refused_token_is_renewed_once() {
        let token = counted();
        let refused = token.header().await.unwrap();

        assert!(token.refused(refused.as_ref()));
        assert_eq!(sent(&token).await, "Bearer t2");
        // A second refusal of the old token arrives late, and must not discard the new one.
        assert!(token.refused(refused.as_ref()));
        assert_eq!(sent(&token).await, "Bearer t2");
        assert!(!BearerToken::fixed(Secret::new("t")).refused(None));
    }
}
