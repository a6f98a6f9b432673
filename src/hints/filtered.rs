//! Result of filtering a context by `include` and `exclude` of `llm_hints`, as references to the remaining parts of the context.

use super::MAX_OUTPUT_BYTES;
use super::error::HintsReason;
use crate::model::Json;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// The part of a JSON value that `include` and `exclude` of `llm_hints` do not remove.
pub(super) enum Filtered<'c> {
    /// A JSON value from which the `llm_hints` filter removes nothing.
    All(&'c Value),
    /// A list with the remaining parts of the items from which the `llm_hints` filter does not remove everything.
    List(Vec<Self>),
    /// An object with the remaining parts of the fields from which the `llm_hints` filter does not remove everything.
    Object(BTreeMap<&'c str, Self>),
}

impl Filtered<'_> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::All(Value::Array(items)) => items.is_empty(),
            Self::All(Value::Object(fields)) => fields.is_empty(),
            Self::All(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => false,
            Self::List(items) => items.is_empty(),
            Self::Object(fields) => fields.is_empty(),
        }
    }

    /// Copies the part of a breadcrumb's context that `include` and `exclude` of the hints did not remove.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::All(value) => (*value).clone(),
            Self::List(items) => items.iter().map(Self::to_value).collect(),
            Self::Object(fields) => {
                let fields = fields.iter();
                fields
                    .map(|(name, field)| ((*name).to_owned(), field.to_value()))
                    .collect()
            }
        }
    }

    /// Returns the part of a breadcrumb's context that `include` and `exclude` of the hints did not remove, as JSON text. Most
    /// callers need only the text, which costs a quarter of a copy.
    pub(super) fn to_json(&self) -> Result<Json, HintsReason> {
        // Serialization of values to memory does not fail.
        let text = serde_json::value::to_raw_value(self).map_err(|_| HintsReason::Unreadable)?;
        match text.get().len() > MAX_OUTPUT_BYTES {
            true => Err(HintsReason::TooLarge),
            false => Ok(Json::unchecked(text)),
        }
    }
}

impl Serialize for Filtered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All(value) => value.serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(fields) => serializer.collect_map(fields),
        }
    }
}
