//! What a model is shown of an assembled context: shaped by hints, held to a budget, rendered.

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
#[cfg(feature = "agents")]
mod values;
mod words;

pub use budget::{BudgetError, ContextBudget};
pub use fence::FenceKey;
pub use format::Format;
pub use tokens::{EstimatedTokens, TokenCounter};
#[cfg(feature = "workflows")]
pub(crate) use values::label;
#[cfg(feature = "agents")]
pub(crate) use values::{fenced, fenced_lines, line};
pub(crate) use words::{CHAT_MESSAGE, words_of};

use super::sources::MissingSource;
use crate::model::{BreadcrumbId, Json, Timestamp};
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

/// What a model may see of an [`ExecutionContext`](super::ExecutionContext): every context in it was shaped by its hints.
///
/// [`fit`](Self::fit) makes it small enough and [`render`](Self::render) a text of it. Serialised it is
/// `{"trigger": {"schema_name": .., "context": ..}, "<key>": <context, or a list of contexts>, ..}`.
#[derive(Clone, Debug)]
pub struct ModelContext {
    trigger: ModelItem,
    sources: Vec<ModelSource>,
    missing: Vec<MissingSource>,
    /// If `true`, the words of the user were moved out of the trigger.
    has_no_words: bool,
}

/// One source, shaped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelSource {
    /// Its name.
    pub key: String,
    /// What a model may see of each item, in the order asked for.
    pub items: Vec<ModelItem>,
    /// Whether it is one item (`latest`, or a limit of 1), not a list.
    pub is_one: bool,
    /// Whether nothing is executed without it.
    pub required: bool,
    /// The lowest is cut first when a budget is short.
    pub priority: i64,
}

/// What a model may see of one breadcrumb.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelItem {
    /// Which breadcrumb.
    pub id: BreadcrumbId,
    /// Its version.
    pub version: u64,
    /// Its schema.
    pub schema_name: Option<String>,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Its context, shaped by its hints.
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
            has_no_words: false,
        }
    }

    /// The trigger.
    #[must_use]
    pub fn trigger(&self) -> &ModelItem {
        &self.trigger
    }

    /// All sources, in the order of the subscriptions.
    #[must_use]
    pub fn sources(&self) -> &[ModelSource] {
        &self.sources
    }

    /// The context of a source of one item; none for a list, and if nothing was found.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        let source = self.source(key).filter(|source| source.is_one)?;
        source.items.first().map(|item| &item.context)
    }

    /// Any source as a slice: a list, one item, or empty.
    #[must_use]
    pub fn many(&self, key: &str) -> &[ModelItem] {
        self.source(key)
            .map(|source| source.items.as_slice())
            .unwrap_or_default()
    }

    fn source(&self, key: &str) -> Option<&ModelSource> {
        self.sources.iter().find(|source| source.key == key)
    }

    /// What is not there, or not all of it, and why.
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
