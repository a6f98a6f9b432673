//! JSON form of approval rules, for questions to people, agent definitions and the digests of approvals.

use super::Approval;
use crate::model::sorted_text;
use serde_json::{Map, Value, json};
use std::time::Duration;

impl Approval {
    /// Returns the rule that decides who may approve changed arguments of a tool call, and until when, or `None` if it would
    /// restrict neither.
    ///
    /// A condition in code is omitted, because a client cannot evaluate it, so the rule then applies to all arguments. The time limit
    /// is in whole seconds, as in a question.
    pub(crate) fn for_changes(&self, by: &[String]) -> Option<Self> {
        let by = self.people(by);
        let is_needed = !by.is_empty() || self.expires_in.is_some();
        is_needed.then(|| Self {
            predicate: None,
            conditions: self.conditions.clone(),
            by: by.to_vec(),
            expires_in: self.expires_in.map(whole_seconds).map(Duration::from_secs),
        })
    }

    /// Returns the JSON fields of the approval rule for an agent definition. Returns `None` if a Rust function decides, because a
    /// definition cannot contain it.
    pub(crate) fn into_fields(self) -> Option<Map<String, Value>> {
        self.predicate.is_none().then(|| self.data())
    }

    /// Returns the approval rule as JSON text, for the digest of an approval. Returns `None` if the rule has no conditions, approvers or
    /// time limit. All conditions in code have the same text.
    pub(crate) fn text(&self) -> Option<String> {
        let mut data = self.data();
        if self.predicate.is_some() {
            data.insert("code".to_owned(), true.into());
        }
        (!data.is_empty()).then(|| sorted_text(&data.into()))
    }

    /// Returns the JSON fields of the approval rule for a question to a person. The fields omit a Rust function.
    pub(crate) fn data(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        if !self.conditions.is_empty() {
            fields.insert("when".to_owned(), json!(self.conditions));
        }
        if !self.by.is_empty() {
            fields.insert("by".to_owned(), json!(self.by));
        }
        if let Some(time) = self.expires_in {
            fields.insert("expires_in_seconds".to_owned(), whole_seconds(time).into());
        }
        fields
    }
}

/// Returns the time limit of a question in whole seconds, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    let more = u64::from(time.subsec_nanos() > 0);
    time.as_secs().saturating_add(more)
}
