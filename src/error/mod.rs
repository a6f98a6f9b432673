//! Classes of the errors of executors: a decision about retries of the run, and a short name for logs, metrics and dead letters.
//!
//! Use this when an error of an executor must end its run immediately, or must be retried after a certain delay.
//!
//! `execute` and `respond` return a [`BoxError`]. Its class comes from the error itself, or from the first of up to 15 sources
//! that has a class ([`class_of`](crate::class_of)). These errors have a class:
//!
//! - an [`ErrorNode`], which [`permanent`], [`retry_after`] and the methods of [`ErrorExt`] put around any error;
//! - every error type of this crate.
//!
//! A [`serde_json::Error`] that is returned without a wrapper is permanent, because the same input fails again. Every other error
//! is transient: the run is retried with backoff until its attempts are used up. An error type that does not return its cause
//! from `source()` also hides the class of that cause.
//!
//! ```
//! use std::time::Duration;
//! use universal_executor::{BoxError, permanent, retry_after};
//!
//! fn call(status: u16) -> Result<(), BoxError> {
//!     match status {
//!         200 => Ok(()),
//!         429 => Err(retry_after(Duration::from_secs(20), "the model is rate limited")),
//!         400..500 => Err(permanent(format!("the request was refused with {status}"))),
//!         _ => Err(format!("the service answered {status}").into()), // transient: retried with backoff
//!     }
//! }
//! # assert!(call(429).is_err());
//! ```

mod chain;
mod node;

pub(crate) use chain::Chain;
pub(crate) use node::Verdict;
#[cfg(feature = "workflows")]
pub(crate) use node::without_node;
pub use node::{ErrorClass, ErrorExt, ErrorNode, permanent, retry_after};

use std::error::Error;
use std::time::Duration;

/// A boxed error of any type, as returned by `execute` and `respond` of an executor.
///
/// Strings and all errors that are `Send`, `Sync` and `'static` convert to it with `into` and `?`.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// The decision about a retry of an operation that failed with an error.
///
/// The `retry` methods of this crate's errors return it. In your own retry loop, sleep for the
/// delay and limit the number of attempts.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::error::Retry;
/// use universal_executor::{class_of, retry_after};
///
/// let error = retry_after(Duration::from_secs(20), "the model is rate limited");
/// match class_of(error.as_ref()).retry() {
///     Retry::After(delay) => assert_eq!(delay, Duration::from_secs(20)),
///     Retry::Never => unreachable!(),
/// }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// A retry of the failed operation can succeed after this delay. Zero allows an immediate retry.
    After(Duration),
    /// A retry of the failed operation cannot succeed until the input, the code or the configuration changes.
    Never,
}

impl Retry {
    /// Maximum retry delay that an error can request: one hour. A longer delay would park a run without a visible failure.
    pub(crate) const MAX_DELAY: Duration = Duration::from_secs(60 * 60);

    /// Returns [`Retry::After`] with the delay `delay`, or with [`MAX_DELAY`](Self::MAX_DELAY) if `delay` is longer.
    pub(crate) fn after(delay: Duration) -> Self {
        Self::After(delay.min(Self::MAX_DELAY))
    }
}

/// Returns at most `limit` bytes of `text`, cut at a character boundary, for example to bound a value in an error message.
pub(crate) fn excerpt(text: &str, limit: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= limit {
        return text.into();
    }
    let end = (0..=limit)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    format!("{}..", text.get(..end).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_never_cuts_a_character() {
        assert_eq!(excerpt("aüb", 2), "a..");
        assert_eq!(excerpt("aüb", 4), "aüb");
    }
}
