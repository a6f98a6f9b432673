//! What went wrong with a request, as errors of this crate.

use super::NAME;
use super::http::Failure;
use crate::model::JsonError;
use crate::store::StoreError;

/// The largest body that the server takes, in bytes: 2 MiB.
pub(super) const MAX_BODY: usize = 2 << 20;

/// The error of a request that cannot be helped here, and of which it is known what became of it.
pub(super) fn store_error(failure: Failure) -> StoreError {
    if failure.is_passing() || failure.is_unauthorized() {
        return StoreError::Unavailable {
            store: NAME,
            retry_after: failure.retry_after(),
            source: failure.into(),
        };
    }
    match &failure {
        Failure::Status {
            request,
            status: 403,
            said,
            ..
        } => StoreError::Forbidden {
            reason: format!(
                "{request} failed with status 403: {said}; give the agent of the token the role that the request needs"
            ),
        },
        Failure::Status { .. }
        | Failure::Unauthorized { .. }
        | Failure::Unsent { .. }
        | Failure::Lost { .. }
        | Failure::TooLarge { .. }
        | Failure::Unreadable(_)
        | Failure::Token(_) => StoreError::Refused {
            store: NAME,
            source: failure.into(),
        },
    }
}

/// The same, of a write with a body.
pub(super) fn write_error(failure: Failure, index: usize, size: usize) -> StoreError {
    match failure.status() {
        Some(413) => too_large(index, size),
        Some(_) | None => store_error(failure),
    }
}

pub(super) fn too_large(index: usize, size: usize) -> StoreError {
    StoreError::Rejected {
        what: format!("write {index}"),
        source: JsonError::TooLarge {
            size,
            limit: MAX_BODY,
        },
    }
}
