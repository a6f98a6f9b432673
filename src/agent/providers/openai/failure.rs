//! What a status and the headers and body of an error come to.

use crate::agent::providers::completions::failure::Failed;
use serde_json::Value;
use std::time::Duration;

/// Reads the body that came with a status; a page of HTML, or nothing, is as good as no body.
pub(super) fn failed(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Failed {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut failed = Failed::of(body.get("error").unwrap_or(&body));
    failed.status = status;
    failed.retry_after = retry_after;
    failed
}
