//! The cost of searching a JSON document with a JSONPath, counted before the search.
//!
//! `jsonpath_rust` visits each node of the document and writes out its location, so the cost depends on the number of nodes, the
//! length of their locations and the length of the path.

use super::document::MAX_DEPTH;
use super::{Path, PathError, shorten};
use serde_json::Value;

/// The maximum total number of steps of all JSONPath searches in one evaluation, such as all conditions of a definition on one event. A
/// document of 1 MiB of one-digit numbers takes half of these steps for one short path.
pub(crate) const MAX_SEARCH_STEPS: usize = 1 << 22;

/// Cost in JSONPath search steps of visiting one node of a JSON value. The evaluator formats the normalized path of each node.
const NODE_STEPS: usize = 4;
/// Number of bytes in the normalized path and the string of a JSON node that add the cost of one more node to a JSONPath search.
const NODE_BYTES: usize = 64;
/// Number of bytes of a JSONPath that add one to its cost factor, where a search with the shortest JSONPath has the factor 1. A
/// JSONPath of n times this length has the factor n + 1.
const PATH_BYTES: usize = 32;

impl Path {
    /// Returns the ratio of the cost of a search with this JSONPath to the cost of a search with the shortest JSONPath.
    pub(crate) fn search_factor(&self) -> usize {
        1 + self.source().len() / PATH_BYTES
    }

    /// Returns the number of search steps that this JSONPath takes on a JSON value, or `None` if it takes more than `limit`
    /// steps. A plain path takes 0 steps.
    pub(crate) fn search_steps(&self, value: &Value, limit: usize) -> Option<usize> {
        if self.is_plain() {
            return Some(0);
        }
        let factor = self.search_factor();
        let steps = search_steps(value, limit / factor)?;
        Some(steps.saturating_mul(factor))
    }

    /// Checks that a search of a JSON value with this JSONPath takes at most `limit` search steps.
    pub(crate) fn admit_search(&self, value: &Value, limit: usize) -> Result<(), PathError> {
        match self.search_steps(value, limit) {
            Some(_) => Ok(()),
            None => Err(PathError::TooManySteps {
                path: shorten(self.source()),
                limit,
            }),
        }
    }
}

/// Returns the number of steps that the shortest JSONPath takes to search the whole value, or `None` if it is more than `limit`.
pub(crate) fn search_steps(value: &Value, limit: usize) -> Option<usize> {
    let mut remaining = limit;
    subtract_steps(value, 0, 0, &mut remaining)?;
    Some(limit - remaining)
}

/// Subtracts the cost of visiting a JSON value and its members from the remaining JSONPath search steps. Returns `None` if too
/// few steps remain. `location` is the length of the value's normalized path in bytes. Values below the maximum depth are not
/// counted, because the evaluation rejects such documents.
fn subtract_steps(
    value: &Value,
    depth: usize,
    location: usize,
    remaining: &mut usize,
) -> Option<()> {
    if depth > MAX_DEPTH {
        return Some(());
    }
    let text = match value {
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => 0,
    };
    let steps = NODE_STEPS * (1 + (location + text) / NODE_BYTES);
    *remaining = remaining.checked_sub(steps)?;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(()),
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| subtract_steps(item, depth + 1, location, remaining)),
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
            subtract_steps(field, depth + 1, location + name.len(), remaining)
        }),
    }
}
