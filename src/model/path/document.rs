//! Check of a JSON document before `jsonpath_rust` evaluates a path on it.
//!
//! `jsonpath_rust` recurses into the document and formats the location of each visited node. A deeply nested document would overflow
//! the stack, and a long member name is copied for each node below it. One pass without allocation measures both.

use serde_json::Value;

use super::{PathError, shorten};

/// Maximum nesting depth of a document that a JSONPath searches. The limit equals the default limit of the `serde_json` parser.
pub(super) const MAX_DEPTH: usize = 128;
/// Maximum total size in bytes of the normalized paths of all nodes of a document that a JSONPath searches.
pub(super) const MAX_LOCATION_BYTES: usize = 32 * 1024 * 1024;
/// Estimated number of bytes that an index, or the quotes and brackets around a name, add to the normalized path of a document
/// node.
const BRACKETS: usize = 8;

/// Checks that a search of the whole document by a JSONPath does not exceed the limits.
pub(super) fn admit(path: &str, document: &Value) -> Result<(), PathError> {
    let mut measure = Measure { path, bytes: 0 };
    measure.node(document, 0, 0)
}

struct Measure<'p> {
    path: &'p str,
    bytes: usize,
}

impl Measure<'_> {
    fn node(&mut self, value: &Value, depth: usize, location: usize) -> Result<(), PathError> {
        if depth > MAX_DEPTH {
            return Err(self.over_limit(("nested levels", MAX_DEPTH), "flatten it"));
        }
        self.bytes = self.bytes.saturating_add(location);
        if self.bytes > MAX_LOCATION_BYTES {
            let limit = ("bytes of node locations", MAX_LOCATION_BYTES);
            return Err(self.over_limit(limit, "shorten it"));
        }
        match value {
            Value::Array(items) => items
                .iter()
                .try_for_each(|item| self.node(item, depth + 1, location + BRACKETS)),
            Value::Object(members) => members.iter().try_for_each(|(name, member)| {
                self.node(
                    member,
                    depth + 1,
                    location + BRACKETS + max_location_bytes(name),
                )
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn over_limit(&self, (what, limit): (&'static str, usize), way_out: &'static str) -> PathError {
        PathError::DocumentOverLimit {
            path: shorten(self.path),
            what,
            limit,
            way_out,
        }
    }
}

/// Returns the maximum number of bytes that a member name takes in a document node's normalized path. An escaped character takes
/// up to six bytes.
fn max_location_bytes(name: &str) -> usize {
    let escaped = name
        .bytes()
        .filter(|b| *b < b' ' || matches!(b, b'\'' | b'\\'))
        .count();
    name.len() + 5 * escaped
}
