use crate::error::excerpt;
use crate::model::Timestamp;
use crate::store::{Claim, Lease, Lineage, Saved, StoreError};
use std::fmt::Debug;
use std::panic::Location;

/// An expectation that a store did not meet, and where in this suite it stands.
#[derive(Debug, thiserror::Error)]
#[error("{expected}, at {at}")]
#[non_exhaustive]
pub struct Broken {
    /// What was expected, and what came instead.
    pub expected: String,
    /// The line of this suite that expected it.
    pub at: &'static Location<'static>,
    /// What the store says, if it failed.
    pub source: Option<Box<StoreError>>,
}

impl Broken {
    /// A breadcrumb of a megabyte is not printed in full.
    const MOST_SAID: usize = 2_000;

    #[track_caller]
    fn new(expected: &str) -> Self {
        let expected = excerpt(expected, Self::MOST_SAID).into_owned();
        Self {
            expected,
            at: Location::caller(),
            source: None,
        }
    }
}

impl Broken {
    #[track_caller]
    pub(super) fn no_runtime(error: &std::io::Error) -> Self {
        Self::new(&format!("a runtime starts, but: {error}"))
    }
}

impl From<StoreError> for Broken {
    #[track_caller]
    fn from(error: StoreError) -> Self {
        Self {
            source: Some(Box::new(error)),
            ..Self::new("the operation succeeds")
        }
    }
}

/// Expects a fact.
#[track_caller]
pub(super) fn expect(holds: bool, expected: &str) -> Result<(), Broken> {
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
pub(super) fn same<T: Debug + PartialEq<U>, U: Debug>(
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
pub(super) fn some<T>(found: Option<T>, what: &str) -> Result<T, Broken> {
    found.ok_or_else(|| Broken::new(&format!("there is {what}")))
}

/// Expects an operation to fail in a certain way.
#[track_caller]
pub(super) fn fails<T: Debug>(
    answer: Result<T, StoreError>,
    way: &str,
    is_so: impl FnOnce(&StoreError) -> bool,
) -> Result<(), Broken> {
    match answer {
        Err(error) if is_so(&error) => Ok(()),
        other => Err(Broken::new(&format!(
            "it fails with {way} and is not {other:?}"
        ))),
    }
}

#[track_caller]
pub(super) fn not_found<T: Debug>(answer: Result<T, StoreError>) -> Result<(), Broken> {
    fails(answer, "NotFound", |error| {
        matches!(error, StoreError::NotFound { .. })
    })
}

#[track_caller]
pub(super) fn lease_lost<T: Debug>(answer: Result<T, StoreError>) -> Result<(), Broken> {
    fails(answer, "LeaseLost", |error| {
        matches!(error, StoreError::LeaseLost { .. })
    })
}

#[track_caller]
pub(super) fn wrong_state<T: Debug>(answer: Result<T, StoreError>) -> Result<(), Broken> {
    fails(answer, "WrongState", |error| {
        matches!(error, StoreError::WrongState { .. })
    })
}

/// What [`Claim::Granted`] holds.
pub(super) struct Granted {
    pub(super) lease: Lease,
    pub(super) attempt: u32,
    pub(super) lineage: Lineage,
    pub(super) state: Option<Saved>,
}

/// Expects a claim to be granted.
#[track_caller]
pub(super) fn granted(claim: Result<Claim, StoreError>) -> Result<Granted, Broken> {
    match claim? {
        Claim::Granted {
            lease,
            attempt,
            lineage,
            state,
        } => Ok(Granted {
            lease,
            attempt,
            lineage,
            state,
        }),
        other => Err(Broken::new(&format!(
            "the claim is granted and not {other:?}"
        ))),
    }
}

/// Expects a claim to find another worker, or another run first; returns until when.
#[track_caller]
pub(super) fn running(claim: Result<Claim, StoreError>) -> Result<Timestamp, Broken> {
    match claim? {
        Claim::Running { until } => Ok(until),
        other => Err(Broken::new(&format!(
            "another worker has the run, but the claim is {other:?}"
        ))),
    }
}
