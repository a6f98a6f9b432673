//! What is kept of a context, without a copy: parts of it, and lists and objects of such parts.

use super::MAX_OUTPUT_BYTES;
use super::error::HintsReason;
use crate::model::Json;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// A value made of parts of other values.
pub(super) enum Kept<'c> {
    /// All of this.
    All(&'c Value),
    /// A list of what is left of its items.
    List(Vec<Self>),
    /// An object of what is left of its fields.
    Object(BTreeMap<&'c str, Self>),
}

impl Kept<'_> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::All(Value::Array(items)) => items.is_empty(),
            Self::All(Value::Object(fields)) => fields.is_empty(),
            Self::All(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => false,
            Self::List(items) => items.is_empty(),
            Self::Object(fields) => fields.is_empty(),
        }
    }

    /// A copy.
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

    /// Its text, which is what most use of it is for, and costs a fourth of a copy.
    pub(super) fn to_json(&self) -> Result<Json, HintsReason> {
        // What values are made of can always be written.
        let text = serde_json::value::to_raw_value(self).map_err(|_| HintsReason::Unreadable)?;
        match text.get().len() > MAX_OUTPUT_BYTES {
            true => Err(HintsReason::TooLarge),
            false => Ok(Json::unchecked(text)),
        }
    }
}

impl Serialize for Kept<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All(value) => value.serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(fields) => serializer.collect_map(fields),
        }
    }
}
