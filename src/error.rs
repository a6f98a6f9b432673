//! Errors that say whether to try again.
//!
//! Everything an executor returns travels as a [`BoxError`]; [`permanent`] and [`retry_after`] mark it with
//! the one thing the runtime needs to know. The runtime inspects the error and up to 15 sources of it for a mark or for one of these
//! errors, and the first one decides:
//!
//! - by its `retry` method: `StoreError`, `ContextError`, `BudgetError`, `WaitError`, `ExecutorError`, `ModelError`, `SourceError`,
//!   `DefinitionError`, `InvalidExecutor`, `AgentError`, `AgentRunError`, `ToolError`;
//! - as permanent: `PathError`, `JsonError`.
//!
//! A [`serde_json::Error`] that is returned as it is counts as permanent, because the same text fails again. Every other error is
//! transient, also if it is an error of this crate: the run is retried with a backoff until its attempts are used up.
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
//!         _ => Err(format!("the service answered {status}").into()), // transient: tried again with backoff
//!     }
//! }
//! # assert!(call(429).is_err());
//! ```

use crate::scrub::without_credentials;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Any error, boxed: what `execute` and `respond` return.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// Whether doing the same again could succeed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// Trying again no sooner than this could succeed; zero means at once.
    After(Duration),
    /// Waiting does not help: the input, the code or the configuration has to change.
    Never,
}

impl Retry {
    /// Maximum delay that an error can request: one hour. A longer delay would park a run without a visible failure.
    pub(crate) const MAX_DELAY: Duration = Duration::from_secs(60 * 60);

    /// Returns a retry after `delay`, shortened to [`MAX_DELAY`](Self::MAX_DELAY).
    pub(crate) fn after(delay: Duration) -> Self {
        Self::After(delay.min(Self::MAX_DELAY))
    }
}

/// Marks an error as one that trying again cannot fix, so that the run fails at once with a dead letter.
///
/// The message and source chain stay those of `error`.
pub fn permanent(error: impl Into<BoxError>) -> BoxError {
    Box::new(Marked {
        mark: Mark::Permanent,
        inner: error.into(),
    })
}

/// Marks an error as a rate limit: the run is tried again after `delay` and the attempt does not count.
///
/// This is what an HTTP 429 with `Retry-After` ([RFC 9110, 10.2.3](https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3))
/// should become. A delay of more than one hour counts as one hour. A run that was only ever rate limited still ends after its
/// policy's `max_age`, 24 hours by default.
pub fn retry_after(delay: Duration, error: impl Into<BoxError>) -> BoxError {
    Box::new(Marked {
        mark: Mark::RateLimited(delay.min(Retry::MAX_DELAY)),
        inner: error.into(),
    })
}

/// What [`permanent`] or [`retry_after`] said about an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mark {
    Permanent,
    RateLimited(Duration),
}

/// The mark of an error itself; its sources are not looked at.
pub(crate) fn mark_of(error: &(dyn Error + 'static)) -> Option<Mark> {
    error.downcast_ref::<Marked>().map(|marked| marked.mark)
}

/// The error that a mark was put on; itself, if there is none.
pub(crate) fn unmarked<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    match error.downcast_ref::<Marked>() {
        Some(marked) => marked.inner.as_ref(),
        None => error,
    }
}

/// At most `limit` bytes of `text`, cut at a character, so that a message cannot be flooded by the value it names.
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

/// An error and its sources on one line, for log messages: `error: source: source`.
///
/// The line has at most 1,000 bytes. Control characters and line separators become spaces. [`without_credentials`] removes
/// credentials.
pub(crate) struct Chain<'e>(pub(crate) &'e (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 1_000;
        /// A longer chain is a cycle.
        const DEEPEST: usize = 16;
        let mut line = self.0.to_string();
        let mut next = self.0.source();
        for _ in 0..DEEPEST {
            let Some(cause) = next.filter(|_| line.len() <= LONGEST) else {
                break;
            };
            let message = cause.to_string();
            if !line.ends_with(&message) {
                line.push_str(": ");
                line.push_str(&message);
            }
            next = cause.source();
        }
        // Credentials are removed before the line is cut, since a part of a token is still a secret.
        let line = line.replace(
            |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'),
            " ",
        );
        let line = without_credentials(&line);
        f.write_str(&excerpt(&line, LONGEST))
    }
}

#[derive(Debug)]
struct Marked {
    mark: Mark,
    inner: BoxError,
}

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Error for Marked {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_error_prints_as_the_error_it_marks() {
        let error = permanent("the city is unknown");

        assert_eq!(error.to_string(), "the city is unknown");
        assert_eq!(mark_of(error.as_ref()), Some(Mark::Permanent));
    }

    #[test]
    fn an_unmarked_error_has_no_mark() {
        let error: BoxError = "connection reset".into();

        assert_eq!(mark_of(error.as_ref()), None);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Level(String, #[source] Option<BoxError>);

    fn level(message: &str, source: Option<Level>) -> Level {
        Level(message.to_owned(), source.map(Into::into))
    }

    #[test]
    fn a_chain_has_every_source_once_on_one_line() {
        let root = level("database disk image\nis malformed", None);
        let error = level(
            "sqlite is unavailable",
            Some(level("cannot\u{2028}read", Some(root))),
        );
        let repeated = level("a: b", Some(level("b", None)));

        assert_eq!(
            Chain(&error).to_string(),
            "sqlite is unavailable: cannot read: database disk image is malformed"
        );
        assert_eq!(Chain(&repeated).to_string(), "a: b");
    }

    #[test]
    fn a_chain_has_no_credentials() {
        let url = level("cannot connect to postgres://ann:hunter2@db/app?a=b", None);
        let error = level("the server refused the login", Some(url));

        assert_eq!(
            Chain(&error).to_string(),
            "the server refused the login: cannot connect to postgres://[hidden]@db/app?a=b"
        );
    }

    #[test]
    fn a_chain_has_a_bounded_length() {
        let long = level(&"ü".repeat(4_000), Some(level("cause", None)));
        let deep = (0..5_000).fold(level("x", None), |source, n| {
            level(&n.to_string(), Some(source))
        });

        assert!(Chain(&long).to_string().len() <= 1_002);
        assert!(Chain(&deep).to_string().len() <= 1_002);
        // Dropping each level by itself keeps the stack flat.
        let mut next = Some(BoxError::from(deep));
        while let Some(level) = next.take() {
            next = level
                .downcast::<Level>()
                .ok()
                .and_then(|mut level| level.1.take());
        }
    }

    #[test]
    fn an_excerpt_never_cuts_a_character() {
        assert_eq!(excerpt("aüb", 2), "a..");
        assert_eq!(excerpt("aüb", 4), "aüb");
    }
}
