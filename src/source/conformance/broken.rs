use crate::error::{BoxError, excerpt};
use crate::source::SourceError;
use std::fmt::Debug;
use std::panic::Location;

/// An expectation that was not met, and where in the suite it stands.
#[derive(Debug, thiserror::Error)]
#[error("{expected}, at {at}")]
#[non_exhaustive]
pub struct Broken {
    /// What was expected, and what came instead.
    pub expected: String,
    /// The line of the suite that expected it.
    pub at: &'static Location<'static>,
    /// What was said, if something failed.
    pub source: Option<BoxError>,
}

impl Broken {
    /// A breadcrumb of a megabyte is not printed in full.
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

    /// Something failed that was to succeed.
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

/// Expects a fact.
#[track_caller]
pub(crate) fn expect(holds: bool, expected: &str) -> Result<(), Broken> {
    if holds {
        Ok(())
    } else {
        Err(Broken::new(expected))
    }
}

/// Expects two things to be equal.
#[expect(
    clippy::needless_pass_by_value,
    reason = "reads as an equation, of values and of references"
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
        "{what} is {wanted:?} and not {found:?}"
    )))
}

/// Expects something to be there.
#[track_caller]
pub(crate) fn some<T>(found: Option<T>, what: &str) -> Result<T, Broken> {
    found.ok_or_else(|| Broken::new(&format!("there is {what}")))
}
