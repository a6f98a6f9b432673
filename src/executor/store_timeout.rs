//! Time limit of one store operation.

use crate::clock::within;
use crate::store::StoreError;
use std::time::Duration;

/// Waits for a store operation, and fails after `limit`, so that a store that hangs cannot keep a run from ending.
pub(super) async fn in_time<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match within(limit, answer).await {
        Some(answer) => answer,
        None => Err(timed_out(limit)),
    }
}

/// Returns the error of a store that did not answer within `limit`.
pub(super) fn timed_out(limit: Duration) -> StoreError {
    StoreError::Unavailable {
        store: "the store",
        retry_after: Duration::ZERO,
        source: format!("no answer within {limit:?}").into(),
    }
}
