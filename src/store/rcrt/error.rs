//! Conversion of failed requests to an RCRT server to errors of the store.

use super::NAME;
use super::http::Failure;
use super::wire::PREVIEW;
use crate::error::Retry;
use crate::model::{BreadcrumbId, JsonError};
use crate::store::StoreError;

/// Maximum size of a request body that the RCRT server accepts (2 MiB).
pub(super) const MAX_BODY: usize = 2 << 20;

/// Error of an update at which an RCRT server would panic, because it cuts the new context for its log inside a multibyte
/// character. [`RcrtStore`](super::RcrtStore) rejects the update and sends nothing.
///
/// The server logs the first 200 bytes of the JSON text of a new context. If byte 200 is inside a character of several bytes, the
/// server panics and closes the connection. Creations are not affected. The error is the source of
/// [`StoreError::Refused`](crate::store::StoreError::Refused).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error(
    "cannot update breadcrumb {id} (write {write} of the commit), because the RCRT server would panic: byte {PREVIEW} of the new context \
     as JSON (sorted keys, no spaces) is inside a multibyte character; change the length of a value before byte {PREVIEW}, create a new \
     breadcrumb instead, or call RcrtBuilder::refuse_split_characters(false) for a server without this bug"
)]
pub struct SplitCharacter {
    /// The ID of the breadcrumb to update.
    pub id: BreadcrumbId,
    /// The index of the update in the commit's list of writes, counted from 0.
    pub write: usize,
}

impl SplitCharacter {
    /// Returns [`Retry::Never`], because the context of the update must change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Returns the store error for a failed read, or for a write that has certainly not succeeded.
pub(super) fn store_error(failure: Failure) -> StoreError {
    if failure.is_transient() || failure.is_unauthorized() {
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
            message,
            ..
        } => StoreError::Forbidden {
            reason: format!(
                "{request} failed with status 403: {message}; give the agent of the token the role that the request needs"
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

/// Returns the store error for a write that has certainly not succeeded; `size` is the size of its request body in bytes.
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
