//! Admission of a document, before `jsonpath_rust` evaluates a path on it.
//!
//! `jsonpath_rust` recurses into the document, and writes out the location of each node it
//! visits. A document nested deep enough would overflow the stack, and one long member name with
//! many nodes below it would be copied once for each of them. Both are measured here first, in
//! one pass that does not allocate.

use serde_json::Value;

use super::{PathError, shorten};

/// As deep as `serde_json` parses a document by default.
pub(super) const MAX_DEPTH: usize = 128;
/// The memory that the written locations of all nodes may need.
pub(super) const MAX_LOCATION_BYTES: usize = 32 * 1024 * 1024;
/// What an index or the quotes and brackets around a name add to a location, at most.
const BRACKETS: usize = 8;

/// Checks that a search of the whole document stays within the limits.
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
                self.node(member, depth + 1, location + BRACKETS + written(name))
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

/// The bytes of a name in a location, where an escaped character takes up to six.
fn written(name: &str) -> usize {
    let escaped = name
        .bytes()
        .filter(|b| *b < b' ' || matches!(b, b'\'' | b'\\'))
        .count();
    name.len() + 5 * escaped
}
