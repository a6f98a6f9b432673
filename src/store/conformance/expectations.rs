use crate::model::Timestamp;
use crate::source::conformance::Broken;
use crate::store::{Claim, Claimed, StoreError};
use std::fmt::Debug;

pub(super) use crate::source::conformance::{expect, same, some};

impl From<StoreError> for Broken {
    #[track_caller]
    fn from(error: StoreError) -> Self {
        Self::failed(error)
    }
}

/// Expects that a store operation fails with an error that `matches_error` accepts. `error_name` describes the error.
#[track_caller]
pub(super) fn fails<T: Debug>(
    answer: Result<T, StoreError>,
    error_name: &str,
    matches_error: impl FnOnce(&StoreError) -> bool,
) -> Result<(), Broken> {
    match answer {
        Err(error) if matches_error(&error) => Ok(()),
        other => Err(Broken::new(&format!(
            "the operation fails with {error_name} and is not {other:?}"
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

/// Expects that the claim of a run is granted.
#[track_caller]
pub(super) fn granted(claim: Result<Claim, StoreError>) -> Result<Claimed, Broken> {
    match claim? {
        Claim::Granted(claimed) => Ok(claimed),
        other => Err(Broken::new(&format!(
            "the claim is granted and not {other:?}"
        ))),
    }
}

/// Expects that the claim of a run is not granted, because another worker has the run or an earlier run blocks it. Returns the
/// time until which it waits.
#[track_caller]
pub(super) fn running(claim: Result<Claim, StoreError>) -> Result<Timestamp, Broken> {
    match claim? {
        Claim::Running { until } => Ok(until),
        other => Err(Broken::new(&format!(
            "another worker has the run, but the claim is {other:?}"
        ))),
    }
}
