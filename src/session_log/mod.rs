//! Schemas, tags and deletion of session logs.
//!
//! A session has a log for itself, and a log for each agent in the workflows of the session. `workload` writes and
//! reads the entries of the logs. A client deletes the logs together with a chat session, also in a program without
//! workloads.

mod delete;
mod error;

pub(crate) use delete::SessionLogs;
pub use error::SessionError;

use crate::hex::hex;
use crate::model::BreadcrumbId;
use sha2::{Digest, Sha256};

/// Schema of the head of a session log: the breadcrumb with the entry count of the log.
pub(crate) const HEAD: &str = "session.log.v1";

/// Schema of an entry of a session log.
pub(crate) const ENTRY: &str = "session.entry.v1";

/// Returns the tag that identifies the breadcrumb of a session log. `scope` is empty for the log of the session, and
/// the path of its step for the log of an agent. `began` is the ID of the session's log, for the log of an agent.
pub(crate) fn log_tag(session: &str, scope: &str, began: Option<BreadcrumbId>) -> String {
    let began = began.map(|began| began.to_string());
    let parts = [session, scope, &began.unwrap_or_default()];
    format!("session-log:{}", digest(&parts))
}

/// Returns the tag that marks the entries of a session and the logs of the session's agents. Sessions with the same ID
/// share the tag.
pub(crate) fn parts_tag(session: &str) -> String {
    format!("session-parts:{}", digest(&[session]))
}

/// Returns the hash of a list of strings for the tags of a session: the first 16 bytes, as hex. Different lists of
/// strings have different hashes. The tags of stored sessions contain the hash, so its form must not change.
pub(crate) fn digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    let digest = digest.finalize();
    hex(digest.get(..16).unwrap_or_default())
}
