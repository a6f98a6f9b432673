use crate::error::{BoxError, excerpt};
use crate::source::SourceError;
use std::fmt::Debug;
use std::panic::Location;

/// Failed check of a conformance suite: the expectation, its location in the suite, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("conformance check failed at {at}: expected that {expected}")]
#[non_exhaustive]
pub struct Broken {
    /// The expectation, with both values if values were compared. At most 2,000 bytes.
    pub expected: String,
    /// Location in the suite of the failed check.
    pub at: &'static Location<'static>,
    /// The error of the operation that had to succeed, or `None` if another check failed.
    pub source: Option<BoxError>,
}

impl Broken {
    /// Maximum length of `expected` in bytes, because a compared breadcrumb can have megabytes.
    const MOST_SAID: usize = 2_000;

    #[track_caller]
    pub(crate) fn new(expected: &str) -> Self {
        let expected = excerpt(expected, Self::MOST_SAID).into_owned();
        Self {
            expected,
            at: Location::caller(),
            source: None,
        }
    }

    /// Returns the failure of an operation that had to succeed.
    #[track_caller]
    pub(crate) fn failed(error: impl Into<BoxError>) -> Self {
        Self {
            source: Some(error.into()),
            ..Self::new("the operation succeeds")
        }
    }
}

impl From<SourceError> for Broken {
    #[track_caller]
    fn from(error: SourceError) -> Self {
        Self::failed(error)
    }
}

/// Checks a condition. `expected` describes the condition as a clause.
#[track_caller]
pub(crate) fn expect(holds: bool, expected: &str) -> Result<(), Broken> {
    if holds {
        Ok(())
    } else {
        Err(Broken::new(expected))
    }
}

/// Checks that two values are equal. `what` names the value.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers pass values or references"
)]
#[track_caller]
pub(crate) fn same<T: Debug + PartialEq<U>, U: Debug>(
    found: T,
    wanted: U,
    what: &str,
) -> Result<(), Broken> {
    if found == wanted {
        return Ok(());
    }
    Err(Broken::new(&format!(
        "{what} is {wanted:?}, found {found:?}"
    )))
}

/// Returns the value of an option that must not be `None`. `what` names the value.
#[track_caller]
pub(crate) fn some<T>(found: Option<T>, what: &str) -> Result<T, Broken> {
    found.ok_or_else(|| Broken::new(&format!("there is {what}")))
}
