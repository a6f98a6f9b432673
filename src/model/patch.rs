use super::json::Json;
use super::timestamp::Timestamp;
use super::visibility::{Sensitivity, Visibility};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A change of a breadcrumb: every field is optional, `context` and `tags` replace what was there whole.
///
/// Its serde form is the body of the wire's patch call. A field can be replaced, not cleared.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Patch {
    /// A new schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_name: Option<String>,
    /// A new line for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A new paragraph for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A new version of the content as its author counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub semantic_version: Option<String>,
    /// All tags it shall have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// The whole new payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Json>,
    /// New hints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_hints: Option<Json>,
    /// Who may see it from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<Visibility>,
    /// How careful to be with it from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<Sensitivity>,
    /// When it stops to exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Timestamp>,
    /// Who makes the change, where the store lets the caller choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
}

impl Patch {
    /// A patch that changes nothing but the version.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the payload.
    #[must_use]
    pub fn context(mut self, context: impl Into<Json>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// Replaces all tags.
    #[must_use]
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.tags = Some(tags.into_iter().map(Into::into).collect());
        self
    }

    /// Replaces the line for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Replaces the paragraph for people.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Replaces the hints.
    #[must_use]
    pub fn llm_hints(mut self, hints: impl Into<Json>) -> Self {
        self.llm_hints = Some(hints.into());
        self
    }

    /// Sets when it stops to exist.
    #[must_use]
    pub fn ttl(mut self, ttl: Timestamp) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets who makes the change. What an executor returns from `respond` is always written by the executor.
    #[must_use]
    pub fn updated_by(mut self, author: impl Into<String>) -> Self {
        self.updated_by = Some(author.into());
        self
    }
}

impl From<Value> for Patch {
    /// A patch that replaces the payload.
    fn from(context: Value) -> Self {
        Self::new().context(context)
    }
}
