//! Values of an event's context at the paths that a selector index uses.

use crate::model::json_check;
use serde_json::Value;
use std::cell::OnceCell;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// The value of an event's context at one JSONPath that a selector index uses.
pub(super) struct PathValue<'e> {
    path: usize,
    node: ValueForm<'e>,
    hash: OnceCell<u64>,
}

enum ValueForm<'e> {
    Text(&'e str, OnceCell<Option<Value>>),
    Borrowed(&'e Value),
    Owned(Value),
}

impl<'e> PathValue<'e> {
    pub(super) fn text(path: usize, text: &'e str) -> Self {
        Self::of(path, ValueForm::Text(text, OnceCell::new()))
    }

    pub(super) fn owned(path: usize, value: Value) -> Self {
        Self::of(path, ValueForm::Owned(value))
    }

    pub(super) fn borrowed(path: usize, value: &'e Value) -> Self {
        Self::of(path, ValueForm::Borrowed(value))
    }

    pub(super) fn path(&self) -> usize {
        self.path
    }

    fn of(path: usize, node: ValueForm<'e>) -> Self {
        Self {
            path,
            node,
            hash: OnceCell::new(),
        }
    }

    pub(super) fn value(&self) -> Option<&Value> {
        self.node.value()
    }

    /// Returns the hash of a JSONPath and of the value at this path in an event's context, to find selectors that require this
    /// value. Equal values have equal hashes.
    pub(super) fn hash(&self, state: &RandomState) -> u64 {
        *self.hash.get_or_init(|| self.node.hash(state, self.path))
    }
}

impl ValueForm<'_> {
    fn value(&self) -> Option<&Value> {
        match self {
            Self::Text(text, value) => value.get_or_init(|| json_check::parse(text).ok()).as_ref(),
            Self::Borrowed(value) => Some(value),
            Self::Owned(value) => Some(value),
        }
    }

    fn hash(&self, state: &RandomState, path: usize) -> u64 {
        match self {
            Self::Text(text, _) => match unquoted(text) {
                Some(text) => hash_text(state, path, text),
                None => hash_value(state, path, self.value().unwrap_or(&Value::Null)),
            },
            Self::Borrowed(value) => hash_value(state, path, value),
            Self::Owned(value) => hash_value(state, path, value),
        }
    }
}

/// Returns the content of a JSON string, or `None` if the text is not a string or has escapes.
fn unquoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains('\\')).then_some(inner)
}

/// Returns the hash by which the selector index compares the JSON values at a JSONPath. Values that are equal in conditions have
/// equal hashes.
pub(super) fn hash_value(state: &RandomState, path: usize, value: &Value) -> u64 {
    let kind = match value {
        Value::String(text) => return hash_text(state, path, text),
        // Equal numbers round to the same float. The addition turns -0.0 into 0.0.
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            return state.hash_one((path, 1_u8, (float + 0.0).to_bits()));
        }
        Value::Null => 2_u8,
        Value::Bool(false) => 3,
        Value::Bool(true) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    };
    state.hash_one((path, kind))
}

fn hash_text(state: &RandomState, path: usize, text: &str) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write_usize(path);
    text.hash(&mut hasher);
    hasher.finish()
}
