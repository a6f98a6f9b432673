//! Bodies of requests to the RCRT server, with the size limit of the server.

use super::error::{MAX_BODY, too_large};
use crate::model::JsonError;
use crate::store::StoreError;

/// Returns the request body of a breadcrumb write, or an error if the body exceeds [`MAX_BODY`].
pub(super) fn checked(
    index: usize,
    body: Result<String, serde_json::Error>,
) -> Result<String, StoreError> {
    match body {
        Ok(body) if body.len() > MAX_BODY => Err(too_large(index, body.len())),
        Ok(body) => Ok(body),
        Err(error) => Err(StoreError::Rejected {
            what: format!("write {index}"),
            source: JsonError::Syntax(error),
        }),
    }
}
