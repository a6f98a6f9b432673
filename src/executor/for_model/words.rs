//! The words of the user, which stand outside of the fences.

use super::ModelContext;
use crate::model::Json;
use serde_json::{Map, Value};

/// The fields that can have the words of a chat message, in the order of preference.
const FIELDS: [&str; 2] = ["message", "content"];

/// Returns the words in the context of a chat message: `message`, else `content`, if it is a string that is not blank.
pub(crate) fn words_of(context: &Json) -> Option<&str> {
    FIELDS
        .into_iter()
        .find_map(|field| words_in(context, field))
}

fn words_in<'c>(context: &'c Json, field: &str) -> Option<&'c str> {
    context.text(field).filter(|text| !text.trim().is_empty())
}

impl ModelContext {
    /// Moves the words of the user out of a chat message that is the trigger. The other fields of the trigger remain as data.
    ///
    /// Returns `None` if the trigger has no words that a model may see; the context is then unchanged.
    pub(crate) fn take_words(&mut self) -> Option<String> {
        let context = &self.trigger.context;
        let found = FIELDS.into_iter().find_map(|field| {
            let words = words_in(context, field)?;
            Some((words.to_owned(), without(context, field)))
        });
        let (words, rest) = found?;
        self.trigger.context = rest.into();
        self.has_no_words = true;
        Some(words)
    }

    /// Moves the words of the user out of the field of a request that is the trigger. The other fields, which name the
    /// agent itself, are dropped.
    pub(crate) fn take_request(&mut self, field: &str) -> Option<String> {
        let words = words_in(&self.trigger.context, field)?.to_owned();
        self.trigger.context = Value::Object(Map::new()).into();
        self.has_no_words = true;
        Some(words)
    }

    /// Returns `true` if the trigger has a section: not if all of it was the words of the user.
    pub(super) fn shows_trigger(&self) -> bool {
        let rest = self.trigger.context.as_object();
        !self.has_no_words || rest.is_none_or(|rest| !rest.is_empty())
    }

    /// Returns `true` if nothing is left to render except the words of the user.
    pub(crate) fn is_empty(&self) -> bool {
        let mut sources = self.sources.iter();
        !self.shows_trigger()
            && self.missing.is_empty()
            && !sources.any(|source| source.is_shown(source.items.len()))
    }
}

fn without(context: &Json, field: &str) -> Value {
    let mut rest = context.clone().into_value();
    if let Value::Object(fields) = &mut rest {
        fields.remove(field);
    }
    rest
}
