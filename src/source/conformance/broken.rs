use crate::error::{BoxError, excerpt};
use crate::source::SourceError;
use std::fmt::Debug;
use std::panic::Location;

/// Failed check of a conformance suite: the expectation, its location in the suite, and the cause.
///
/// A failed test prints it. The location leads to the check in the suite, whose function names the
/// promise.
#[derive(Debug, thiserror::Error)]
#[error("conformance check failed at {at}: expected that {expected}")]
#[non_exhaustive]
pub struct Broken {
    /// The expectation that the tested source or store did not meet, with both values of a comparison. At most 2,000
    /// bytes.
    pub expected: String,
    /// Code location of the failed check in the conformance suite.
    pub at: &'static Location<'static>,
    /// The error of a source or store operation that had to succeed, or `None` if no operation failed.
    pub source: Option<BoxError>,
}

impl Broken {
    /// Maximum length in bytes of the description of the expectation that was not met in a failed conformance check.
    /// The text of a compared breadcrumb can be much longer.
    const MAX_EXPECTED_BYTES: usize = 2_000;

    #[track_caller]
    pub(crate) fn new(expected: &str) -> Self {
        let expected = excerpt(expected, Self::MAX_EXPECTED_BYTES).into_owned();
        Self {
            expected,
            at: Location::caller(),
            source: None,
        }
    }

    /// Returns the failed conformance check for the error of a source or store operation that had to succeed.
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

/// Fails the conformance check unless `holds` is `true`. `expected` describes the condition as a clause.
#[track_caller]
pub(crate) fn expect(holds: bool, expected: &str) -> Result<(), Broken> {
    if holds {
        Ok(())
    } else {
        Err(Broken::new(expected))
    }
}

/// Fails the conformance check unless two values are equal. `what` names the value.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers pass values or references"
)]
#[track_caller]
pub(crate) fn same<T: Debug + PartialEq<U>, U: Debug>(
    found: T,
    expected: U,
    what: &str,
) -> Result<(), Broken> {
    if found == expected {
        return Ok(());
    }
    Err(Broken::new(&format!(
        "{what} is {expected:?}, found {found:?}"
    )))
}

/// Returns the value in an `Option`, or a failed conformance check if the `Option` is `None`. `what` names the value.
#[track_caller]
pub(crate) fn some<T>(found: Option<T>, what: &str) -> Result<T, Broken> {
    found.ok_or_else(|| Broken::new(&format!("there is {what}")))
}
