//! What a model is shown of an assembled context: shaped by hints, held to a budget, rendered.

mod shape;
mod withheld;

pub(super) use shape::shaped;
pub use withheld::{HintsOf, WithheldBy};

use super::context::MissingSource;
use crate::model::{BreadcrumbId, Json, Timestamp};

/// What a model may see of an [`ExecutionContext`](super::ExecutionContext): every context in it was shaped by its hints.
#[derive(Clone, Debug)]
pub struct ModelContext {
    trigger: ModelItem,
    sources: Vec<ModelSource>,
    missing: Vec<MissingSource>,
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

    /// What is not there, or not all of it, and why.
    #[must_use]
    pub fn missing(&self) -> &[MissingSource] {
        &self.missing
    }
}
