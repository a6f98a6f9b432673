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

/// How long a token is waited for.
const LONGEST_ASK: Duration = Duration::from_secs(30);

/// The token that requests to a server carry, in a header and nowhere else. Clones share it, and renew it once for all.
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
    held: Mutex<Option<Held>>,
    /// Whoever renews the token, one at a time.
    renewing: Semaphore,
}

enum Origin {
    None,
    Fixed(Secret),
    Asked(Box<Ask>),
}

/// A token and how long it lasts.
type Given = (Secret, Option<Duration>);
type Ask = dyn Fn() -> BoxFuture<'static, Result<Given, TokenError>> + Send + Sync;

#[derive(Clone)]
struct Held {
    header: HeaderValue,
    until: Option<Instant>,
}

/// Why there is no token. No text in it has one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Whoever gives tokens gives none for this agent: its owner, id and roles have to change.
    #[error(
        "no token is given for this agent (status {status}): {said}; check owner, agent and roles"
    )]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the server says, at most 200 bytes of it.
        said: String,
    },
    /// The token has characters that no HTTP header may have.
    #[error("the token cannot be sent in a header")]
    Unsendable,
    /// Whoever gives tokens does not answer, or in other words.
    #[error("no token can be had now")]
    Unavailable(#[source] BoxError),
}

impl TokenError {
    /// Whether asking again could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable(_) => Retry::After(Duration::from_secs(1)),
            Self::Refused { .. } | Self::Unsendable => Retry::Never,
        }
    }
}

impl BearerToken {
    /// Returns `true` if requests carry no token.
    pub(super) fn is_absent(&self) -> bool {
        match self.0.origin {
            Origin::None => true,
            Origin::Fixed(_) | Origin::Asked(_) => false,
        }
    }

    /// No token at all.
    #[must_use]
    pub fn none() -> Self {
        Self::of(Origin::None)
    }

    /// This token, as long as it lasts.
    #[must_use]
    pub fn fixed(token: Secret) -> Self {
        Self::of(Origin::Fixed(token))
    }

    /// A token that a function gives, with how long it lasts if that is known. It is asked again shortly before the end,
    /// and once when the server refuses the token, and has 30 s to answer. Its error must not have the token in it.
    #[must_use]
    pub fn asked<F, T>(ask: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<(Secret, Option<Duration>), BoxError>> + Send + 'static,
    {
        Self::of(Origin::Asked(Box::new(move || {
            let asked = ask();
            async move { asked.await.map_err(TokenError::Unavailable) }.boxed()
        })))
    }

    /// A token that a server gives at `/auth/token` to whoever asks in the name of an agent of an owner.
    pub(crate) fn issued(client: Client, base: &Url, agent: Agent) -> Self {
        let (url, agent) = (http::below(base, &["auth", "token"]), Arc::new(agent));
        Self::of(Origin::Asked(Box::new(move || {
            issue(client.clone(), url.clone(), Arc::clone(&agent)).boxed()
        })))
    }

    fn of(origin: Origin) -> Self {
        Self(Arc::new(Inner {
            origin,
            held: Mutex::new(None),
            renewing: Semaphore::new(1),
        }))
    }

    /// The header to send, renewed if the token ends soon; none without a token.
    pub(crate) async fn header(&self) -> Result<Option<HeaderValue>, TokenError> {
        let ask = match &self.0.origin {
            Origin::None => return Ok(None),
            Origin::Fixed(token) => return header_of(token).map(Some),
            Origin::Asked(ask) => ask,
        };
        if let Some(held) = self.held() {
            return Ok(Some(held));
        }
        // It is never closed, so there is always a permit.
        let _one = self.0.renewing.acquire().await;
        if let Some(held) = self.held() {
            return Ok(Some(held));
        }
        // All others wait for the answer.
        let given = within(LONGEST_ASK, ask()).await;
        let (token, lasts) =
            given.ok_or_else(|| TokenError::Unavailable("no answer within 30 s".into()))??;
        let header = header_of(&token)?;
        let until = lasts.map(|lasts| later(Instant::now(), lasts - margin(lasts)));
        let held = Held {
            header: header.clone(),
            until,
        };
        *self.lock() = Some(held);
        Ok(Some(header))
    }

    /// Forgets a token that the server refused; false if there is no other to be had.
    pub(crate) fn refused(&self, header: Option<&HeaderValue>) -> bool {
        match &self.0.origin {
            Origin::None | Origin::Fixed(_) => false,
            Origin::Asked(_) => {
                let mut held = self.lock();
                if held.as_ref().map(|held| &held.header) == header {
                    *held = None;
                }
                true
            }
        }
    }

    fn held(&self) -> Option<HeaderValue> {
        let held = self.lock().clone()?;
        let lasts = held.until.is_none_or(|until| Instant::now() < until);
        lasts.then_some(held.header)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Held>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

/// In whose name a token is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) owner: String,
    pub(crate) id: String,
    pub(crate) roles: Vec<String>,
}

/// How long before its end a token is renewed: a fifth of its time, a minute at the most.
fn margin(lasts: Duration) -> Duration {
    (lasts / 5).min(Duration::from_secs(60))
}

fn header_of(token: &Secret) -> Result<HeaderValue, TokenError> {
    http::bearer(token).ok_or(TokenError::Unsendable)
}

async fn issue(client: Client, url: Url, agent: Arc<Agent>) -> Result<Given, TokenError> {
    const ASKED_FOR: Duration = Duration::from_secs(3_600);
    const MAX_BYTES: usize = 64 << 10;
    #[derive(Serialize)]
    struct Asked<'a> {
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
    let asked = Asked {
        owner_id: &agent.owner,
        agent_id: &agent.id,
        roles: &agent.roles,
        ttl_sec: ASKED_FOR.as_secs(),
    };
    // Texts and numbers can always be written.
    let body = serde_json::to_string(&asked).unwrap_or_default();
    let lost = |error: reqwest::Error| TokenError::Unavailable(error.without_url().into());
    let request = client
        .post(url)
        .header(CONTENT_TYPE, "application/json")
        .body(body);
    let mut response = request.send().await.map_err(lost)?;
    let status = response.status();
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        text.extend_from_slice(&chunk);
        if text.len() > MAX_BYTES {
            return Err(TokenError::Unavailable(
                "the answer with the token is too large".into(),
            ));
        }
    }
    // What a success says has the token in it, and is told nowhere.
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
    // The words of the parser may quote what it read.
    let issued: Issued = serde_json::from_slice(&text)
        .map_err(|_| TokenError::Unavailable("the answer has no token".into()))?;
    let lasts = issued.exp.map(|end| {
        let micros = end.saturating_mul(1_000_000).saturating_sub(wall_micros());
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    });
    Ok((Secret::new(issued.token), Some(lasts.unwrap_or(ASKED_FOR))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A token that lasts for ten seconds, with the number of times it was asked for.
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
    async fn a_token_is_asked_for_again_shortly_before_its_end() {
        let token = counted();

        let first = [sent(&token).await, sent(&token).await];
        tokio::time::advance(Duration::from_millis(8_500)).await;
        let later = sent(&token).await;

        assert_eq!(first, ["Bearer t1", "Bearer t1"]);
        assert_eq!(later, "Bearer t2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_function_that_hangs_is_an_error_and_keeps_nobody_else_waiting() {
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
    async fn a_token_that_was_refused_is_asked_for_again_once() {
        let token = counted();
        let refused = token.header().await.unwrap();

        assert!(token.refused(refused.as_ref()));
        assert_eq!(sent(&token).await, "Bearer t2");
        // Somebody else was refused with the same token, and comes late.
        assert!(token.refused(refused.as_ref()));
        assert_eq!(sent(&token).await, "Bearer t2");
        assert!(!BearerToken::fixed(Secret::new("t")).refused(None));
    }
}
