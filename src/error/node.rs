use super::{BoxError, Retry};
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The class of an error: a decision about retries of the failed run, and a short name. Returned by [`class_of`](crate::class_of).
///
/// # Examples
/// ```
/// use universal_executor::error::Retry;
/// use universal_executor::{BoxError, class_of, permanent};
///
/// let lost: BoxError = "the connection was lost".into();
/// assert!(matches!(class_of(lost.as_ref()).retry(), Retry::After(_)));
/// assert_eq!(class_of(lost.as_ref()).code(), "error");
///
/// let refused = permanent("the card was refused");
/// assert_eq!(class_of(refused.as_ref()).retry(), Retry::Never);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ErrorClass {
    pub(crate) verdict: Verdict,
    pub(crate) code: &'static str,
}

impl ErrorClass {
    /// The code of an error without a class, for logs and metrics.
    pub(crate) const UNKNOWN: &'static str = "error";

    /// Returns the decision about a retry of the failed operation: never, or after a minimum delay.
    ///
    /// The delay is a minimum: the backoff of the run can be longer.
    #[must_use]
    pub fn retry(self) -> Retry {
        match self.verdict {
            Verdict::Permanent => Retry::Never,
            Verdict::Transient(delay) | Verdict::RateLimited(delay) => Retry::After(delay),
        }
    }

    /// Returns the stable short name of the error's class for logs, metrics and dead letters, such as `rate_limited`. Returns `error` for
    /// an error without a name.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.code
    }
}

/// The decision about a retry of a failed run: whether and when the run is retried, and whether the failure uses one of its
/// attempts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Permanent,
    /// The run is retried after at least this delay.
    Transient(Duration),
    /// The run is retried after at least this delay, and the failure uses no attempt.
    RateLimited(Duration),
}

impl From<Retry> for Verdict {
    fn from(retry: Retry) -> Self {
        match retry {
            Retry::After(delay) => Self::Transient(delay),
            Retry::Never => Self::Permanent,
        }
    }
}

/// A wrapper that attaches a retry decision and an error code to an error. Created by the methods of [`ErrorExt`], and inside the
/// result of [`permanent`] and [`retry_after`].
///
/// The wrapper has the same message and sources as the inner error.
///
/// ```
/// use std::io;
/// use universal_executor::error::{BoxError, ErrorExt as _, Retry};
/// use universal_executor::class_of;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("cannot book the flight")]
/// struct Booking(#[source] BoxError);
///
/// let error = Booking(io::Error::other("the card has expired").permanent().with_code("card_expired").into());
///
/// assert_eq!(class_of(&error).retry(), Retry::Never);
/// assert_eq!(class_of(&error).code(), "card_expired");
/// ```
#[derive(Debug)]
pub struct ErrorNode {
    verdict: Option<Verdict>,
    code: Option<&'static str>,
    inner: BoxError,
}

impl ErrorNode {
    /// Wraps an error, so that a retry decision and an error code can be attached. An error that is wrapped already is not
    /// wrapped again.
    fn new(inner: BoxError) -> Self {
        match inner.downcast::<Self>() {
            Ok(node) => *node,
            Err(inner) => Self {
                verdict: None,
                code: None,
                inner,
            },
        }
    }

    fn with(inner: BoxError, verdict: Verdict) -> Self {
        let mut node = Self::new(inner);
        node.verdict = Some(verdict);
        node
    }

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Returns the retry decision that this wrapper attaches to the error, or `None` if it attaches only a code. Without an
    /// attached decision, the inner error decides.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        let retry = |verdict| ErrorClass { verdict, code: "" }.retry();
        self.verdict.map(retry)
    }

    /// Returns the error code that this wrapper attaches to the error, or `None` if it attaches only a retry decision. Without an
    /// attached code, the inner error has the code.
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        match (self.code, self.verdict) {
            (None, Some(Verdict::RateLimited(_))) => Some("rate_limited"),
            (code, _) => code,
        }
    }

    /// Returns the wrapped error without its attached class, for example to downcast it.
    #[must_use]
    pub fn inner(&self) -> &(dyn Error + Send + Sync + 'static) {
        self.inner.as_ref()
    }
}

impl fmt::Display for ErrorNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Error for ErrorNode {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner.source()
    }
}

/// Methods that give any error a class: the decision about retries of the failed run, and a code.
///
/// Import the trait to call its methods on any error or string. Convert the result to a
/// [`BoxError`] with `into` or `?`.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::BoxError;
/// use universal_executor::error::ErrorExt as _;
///
/// fn book(status: u16) -> Result<(), BoxError> {
///     match status {
///         200 => Ok(()),
///         402 => Err("the card was refused".permanent().with_code("card_refused").into()),
///         429 => Err("slow down".retry_after(Duration::from_secs(5)).into()),
///         _ => Err(format!("the service answered {status}").into()),
///     }
/// }
/// assert_eq!(book(402).unwrap_err().to_string(), "the card was refused");
/// ```
pub trait ErrorExt: Into<BoxError> {
    /// Marks the error as permanent: a retry cannot succeed, so the run ends immediately with a dead letter. See [`permanent`].
    fn permanent(self) -> ErrorNode {
        ErrorNode::with(self.into(), Verdict::Permanent)
    }

    /// Marks the error as transient: the run is retried with backoff until its attempts are used up. Overrides the class of the error,
    /// for example of a [`serde_json::Error`] about an answer that may differ at the next attempt.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::error::{ErrorExt as _, Retry};
    ///
    /// let error = serde_json::from_str::<u32>("three").unwrap_err();
    /// assert_eq!(error.transient().retry(), Some(Retry::After(Duration::ZERO)));
    /// ```
    fn transient(self) -> ErrorNode {
        ErrorNode::with(self.into(), Verdict::Transient(Duration::ZERO))
    }

    /// Marks the error as a rate limit: the run is retried after a delay, and the failure uses no attempt. The limits of
    /// [`retry_after`](fn@retry_after) apply.
    fn retry_after(self, delay: Duration) -> ErrorNode {
        let delay = delay.min(Retry::MAX_DELAY);
        ErrorNode::with(self.into(), Verdict::RateLimited(delay))
    }

    /// Sets the error's code in logs, metrics and dead letters. The decision about a retry does not change.
    ///
    /// Use lower case and underscores, as in `card_refused`. The code is a label of metrics, so use
    /// few different codes.
    fn with_code(self, code: &'static str) -> ErrorNode {
        let mut node = ErrorNode::new(self.into());
        node.code = Some(code);
        node
    }
}

impl<E: Into<BoxError>> ErrorExt for E {}

/// Marks an error as permanent: a retry cannot succeed, so the run ends immediately with a dead letter.
///
/// The message and the sources of `error` do not change.
///
/// Use it if the same input fails again: a refused card, an unknown order, an invalid argument.
///
/// # Examples
/// ```
/// use universal_executor::error::Retry;
/// use universal_executor::{class_of, permanent};
///
/// let error = permanent("order 7 does not exist");
/// assert_eq!(error.to_string(), "order 7 does not exist");
/// assert_eq!(class_of(error.as_ref()).retry(), Retry::Never);
/// ```
pub fn permanent(error: impl Into<BoxError>) -> BoxError {
    error.into().permanent().into()
}

/// Marks an error as a rate limit: the run is retried after `delay`, and the failure uses no attempt.
///
/// Use this for example for an HTTP 429 with `Retry-After`
/// ([RFC 9110, 10.2.3](https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3)). A delay of more than one hour counts as one hour.
/// A run that fails only with rate limits ends after the `max_age` of its policy, which defaults to 24 hours.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::error::Retry;
/// use universal_executor::{class_of, retry_after};
///
/// const HOUR: Duration = Duration::from_secs(60 * 60);
/// let error = retry_after(2 * HOUR, "the quota is used up");
/// let class = class_of(error.as_ref());
/// assert_eq!((class.retry(), class.code()), (Retry::After(HOUR), "rate_limited"));
/// ```
pub fn retry_after(delay: Duration, error: impl Into<BoxError>) -> BoxError {
    error.into().retry_after(delay).into()
}

/// Returns the error that an [`ErrorNode`] wraps, or the error itself if it is not wrapped.
#[cfg(feature = "workflows")]
pub(crate) fn without_node<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    match error.downcast_ref::<ErrorNode>() {
        Some(node) => node.inner.as_ref(),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_prints_as_the_error_inside_and_has_its_sources() {
        let io = std::io::Error::other(fmt::Error);
        let node = io.permanent();

        assert_eq!(node.to_string(), fmt::Error.to_string());
        assert!(node.inner().is::<std::io::Error>());
        assert_eq!(node.retry(), Some(Retry::Never));
    }

    #[test]
    fn nodes_inside_of_nodes_become_one_and_the_outer_one_decides() {
        let second = Duration::from_secs(1);
        let node = permanent("no").with_code("first").transient();
        let limited = retry_after(second, "slow down").with_code("quota");

        assert!(!node.inner().is::<ErrorNode>());
        assert_eq!(
            (node.retry(), node.code()),
            (Some(Retry::After(Duration::ZERO)), Some("first"))
        );
        assert_eq!(
            (limited.retry(), limited.code()),
            (Some(Retry::After(second)), Some("quota"))
        );
        assert_eq!("x".with_code("only").retry(), None);
    }

    #[test]
    fn a_rate_limit_has_a_default_code() {
        let node = "slow down".retry_after(Duration::MAX);

        assert_eq!(node.code(), Some("rate_limited"));
        assert_eq!(node.retry(), Some(Retry::After(Retry::MAX_DELAY)));
    }
}
