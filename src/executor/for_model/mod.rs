//! The form of a context that a model receives: shaped by `llm_hints`, limited by a budget, and rendered as text.

mod answer;
mod budget;
mod fence;
mod fit;
#[cfg(feature = "agents")]
mod for_agent;
mod format;
mod line;
mod render;
mod section;
mod shape;
mod tally;
mod tokens;
mod user_text;
#[cfg(feature = "agents")]
mod values;

pub use budget::{BudgetError, ContextBudget};
pub use fence::FenceKey;
pub use format::Format;
pub use tokens::{EstimatedTokens, TokenCounter};
pub(crate) use user_text::{CHAT_MESSAGE, user_text_of};
#[cfg(feature = "workflows")]
pub(crate) use values::label;
#[cfg(feature = "agents")]
pub(crate) use values::{fenced, fenced_lines, line};

use super::sources::MissingSource;
use crate::model::{BreadcrumbId, Json, Timestamp};
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

/// The part of an [`ExecutionContext`](super::ExecutionContext) that a model may see: `llm_hints` shape the context of every
/// breadcrumb.
///
/// Created by [`for_model`](super::ExecutionContext::for_model). [`fit`](Self::fit) reduces the context to a budget, and
/// [`render`](Self::render) returns the text for a prompt. The serialised form is
/// `{"trigger": {"schema_name": .., "context": ..}, "<key>": <context, or a list of contexts>, ..}`.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::{ContextBudget, ExecutionContext, Format, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Which page?"}));
/// let context = ExecutionContext::for_trigger(message).with("page", json!({"title": "Rust"}));
///
/// let shown = context.for_model().await?;
/// assert_eq!(shown.get("page"), Some(&json!({"title": "Rust"}).into()));
/// let budget = ContextBudget::default().tokens(4_000);
/// let prompt = shown.fit(&budget, Format::Markdown)?.render(Format::Markdown);
/// assert!(prompt.contains("{\"title\":\"Rust\"}"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ModelContext {
    trigger: ModelItem,
    sources: Vec<ModelSource>,
    missing: Vec<MissingSource>,
    /// If `true`, the user's words were removed from the trigger, because the prompt contains them separately.
    user_text_removed: bool,
}

/// A source of a [`ModelContext`]: the items that a model may see.
///
/// [`ModelContext::sources`] returns it. Use it to write your own prompt format.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelSource {
    /// The key of the context source: the name of its subscription.
    pub key: String,
    /// The items of the context source, in the order that the subscription requests.
    pub items: Vec<ModelItem>,
    /// `true` for a context source of at most one item (`latest`, or a limit of 1), `false` for a list.
    pub is_one: bool,
    /// If `true`, the run does not execute without this context source, and a budget never omits its items.
    pub required: bool,
    /// The priority of the context subscription: a budget omits items of the lowest priority first.
    pub priority: i64,
}

/// The part of one breadcrumb that a model may see.
///
/// It has no tags, title or author, so a prompt format cannot show them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelItem {
    /// The ID of the breadcrumb.
    pub id: BreadcrumbId,
    /// The version of the breadcrumb.
    pub version: u64,
    /// The schema of the breadcrumb, or `None` without a schema.
    pub schema_name: Option<String>,
    /// The time of the last change of the breadcrumb.
    pub updated_at: Timestamp,
    /// The context of the breadcrumb, shaped by `llm_hints`.
    pub context: Json,
}

impl ModelContext {
    pub(super) fn new(
        trigger: ModelItem,
        sources: Vec<ModelSource>,
        missing: Vec<MissingSource>,
    ) -> Self {
        Self {
            trigger,
            sources,
            missing,
            user_text_removed: false,
        }
    }

    /// Returns the trigger as the model may see it.
    #[must_use]
    pub fn trigger(&self) -> &ModelItem {
        &self.trigger
    }

    /// Returns all context sources as the model may see them, in the order of the subscriptions.
    #[must_use]
    pub fn sources(&self) -> &[ModelSource] {
        &self.sources
    }

    /// Returns the shaped context of a source of one item, or `None` if the source is a list, is missing, or found nothing.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        let source = self.source(key).filter(|source| source.is_one)?;
        source.items.first().map(|item| &item.context)
    }

    /// Returns the items of a context source as a slice. The slice of an unknown or missing source is empty.
    #[must_use]
    pub fn many(&self, key: &str) -> &[ModelItem] {
        self.source(key)
            .map(|source| source.items.as_slice())
            .unwrap_or_default()
    }

    fn source(&self, key: &str) -> Option<&ModelSource> {
        self.sources.iter().find(|source| source.key == key)
    }

    /// Returns the context sources that are missing or incomplete, with the reasons.
    ///
    /// Withheld items and items over a budget are included.
    #[must_use]
    pub fn missing(&self) -> &[MissingSource] {
        &self.missing
    }
}

impl Serialize for ModelContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Trigger<'a>(&'a ModelItem);
        impl Serialize for Trigger<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self(item) = self;
                let mut fields = serializer.serialize_struct("Trigger", 2)?;
                match &item.schema_name {
                    Some(name) => fields.serialize_field("schema_name", name)?,
                    None => fields.skip_field("schema_name")?,
                }
                fields.serialize_field("context", &item.context)?;
                fields.end()
            }
        }
        struct Contexts<'a>(&'a [ModelItem]);
        impl Serialize for Contexts<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.iter().map(|item| &item.context))
            }
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("trigger", &Trigger(&self.trigger))?;
        for source in &self.sources {
            match source.items.first() {
                Some(only) if source.is_one => map.serialize_entry(&source.key, &only.context)?,
                None if source.is_one => {}
                Some(_) | None => map.serialize_entry(&source.key, &Contexts(&source.items))?,
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
