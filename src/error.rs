//! Errors that say whether to try again.
//!
//! Everything an executor returns travels as a [`BoxError`]; [`permanent`] and [`retry_after`] mark it with
//! the one thing the runtime needs to know. An unmarked error is transient.
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
/// should become. A run that was only ever rate limited still ends after its policy's `max_age`, 24 hours by default.
pub fn retry_after(delay: Duration, error: impl Into<BoxError>) -> BoxError {
    Box::new(Marked {
        mark: Mark::RateLimited(delay),
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

    #[test]
    fn an_excerpt_never_cuts_a_character() {
        assert_eq!(excerpt("aüb", 2), "a..");
        assert_eq!(excerpt("aüb", 4), "aüb");
    }
}
