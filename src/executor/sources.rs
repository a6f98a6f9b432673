//! Results of the context subscriptions of a run, and the reasons why sources are missing or incomplete.

use super::withheld::WithheldBy;
use crate::error::Retry;
use crate::model::Breadcrumb;
use crate::store::StoreError;
use std::fmt;
use std::sync::Arc;

/// Breadcrumbs that one context subscription found.
///
/// Most executors read a source with [`ExecutionContext::get`](super::ExecutionContext::get) or
/// [`ExecutionContext::many`](super::ExecutionContext::many). Use this type for scores and
/// settings.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::{ExecutionContext, NewBreadcrumb};
///
/// let message = NewBreadcrumb::new("user.message.v1");
/// let context = ExecutionContext::for_trigger(message).with_many("history", [json!({"n": 1})]);
///
/// let source = context.source("history").ok_or("no source")?;
/// assert_eq!((source.items.len(), source.is_one), (1, false));
/// assert_eq!(source.items[0].context["n"], 1);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Source {
    /// The key of the context source: the name of its subscription.
    pub key: String,
    /// The breadcrumbs that the context subscription found, in the order that the subscription's `fetch` sets.
    pub items: Vec<Arc<Breadcrumb>>,
    /// Similarity score of each item of a vector fetch, `None` where the store reports no score. Empty for other fetches.
    pub scores: Vec<Option<f64>>,
    /// `true` for a context source of at most one item (`latest`, or a limit of 1), `false` for a list.
    pub is_one: bool,
    /// If `true`, the run does not execute without this context source.
    pub required: bool,
    /// The priority of the context subscription: if the context exceeds a limit, items of the lowest priority are omitted first.
    ///
    /// Defaults to 0.
    pub priority: i64,
}

/// A context source that is missing or incomplete.
///
/// [`ExecutionContext::missing`](super::ExecutionContext::missing) lists them. The `Display` form
/// has the key and the reason.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MissingSource {
    /// The key of the missing or incomplete context source: the name of its subscription.
    pub key: String,
    /// The reason why the context source is missing or incomplete.
    pub reason: MissingReason,
}

/// Reason why a context source is missing or incomplete.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MissingReason {
    /// The fetch of the context source failed.
    ///
    /// The run continues without the source, because the source is not required.
    #[error("the fetch of the source failed")]
    Failed(#[source] Arc<StoreError>),
    /// A limit made the fetch of the context source incomplete.
    ///
    /// The items that were found are in the context.
    #[error("{0}")]
    Cut(Bound),
    /// The context exceeded [`Profile::context_bytes`](super::Profile::context_bytes), so items of this source were omitted: the
    /// lowest `priority` first, then the oldest.
    ///
    /// Raise `context_bytes`, lower the limit of the fetch, or give the source a higher priority.
    #[error("{items} items of {bytes} bytes were omitted, because the context would be too large")]
    TooLarge {
        /// The number of items that were omitted from the context source.
        items: usize,
        /// The total size of the items that were omitted from the context source, in bytes.
        bytes: usize,
    },
    /// Items of the context source are withheld from a model, because their `llm_hints` cannot be applied. The other items
    /// remain.
    ///
    /// Fix the hints in `cause` to show the items.
    #[error("{items} items were withheld: {cause}")]
    Withheld {
        /// The number of items of the context source that are withheld because of `cause`.
        items: usize,
        /// The `llm_hints` that withhold the items from the model, and the reason why they cannot be applied.
        cause: Arc<WithheldBy>,
    },
    /// Items of the context source were omitted to keep the context for a model within a budget.
    ///
    /// Raise the [`ContextBudget`](super::ContextBudget), or give the source a higher priority.
    #[error(
        "{items} items of {bytes} bytes were omitted, because the context would exceed the budget for the model"
    )]
    OverBudget {
        /// The number of items that a budget omitted from the context source.
        items: usize,
        /// The total size in bytes, when rendered, of the items that were omitted to keep the context within its budget.
        bytes: usize,
    },
}

impl MissingReason {
    /// Returns whether another fetch of the context source may succeed, and after what delay.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Failed(source) => source.retry(),
            Self::Cut(_)
            | Self::TooLarge { .. }
            | Self::Withheld { .. }
            | Self::OverBudget { .. } => Retry::Never,
        }
    }
}

/// Limit that made the fetch of a context source incomplete.
///
/// A repetition of the fetch does not help. Change the subscription, or the breadcrumbs.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Bound {
    /// The search for a context source stopped at the maximum number of pages, because the store returned many breadcrumbs that the
    /// query does not select.
    ///
    /// Select the breadcrumbs more precisely by a schema name and tags.
    #[error(
        "the search for breadcrumbs stopped after {pages} pages, because its conditions exclude too many results; narrow the subscription by schema, tags or scope"
    )]
    Pages {
        /// The number of pages that the search read.
        pages: usize,
    },
    /// Results of a context source's vector search were dropped, because the query does not select them. Matching breadcrumbs may
    /// be missing.
    ///
    /// Raise the limit of the fetch, to have more results before the selection.
    #[error(
        "{dropped} results of the vector search were omitted, because the source does not select them"
    )]
    Unselected {
        /// The number of dropped results of the vector search.
        dropped: usize,
    },
    /// No vector search was made, because the search text comes from the trigger as a model may see it, and the trigger's
    /// `llm_hints` cannot be applied.
    ///
    /// Fix the hints of the trigger or of its schema.
    #[error("no vector search was made, because the llm_hints of the trigger cannot be applied")]
    TriggerWithheld,
    /// The subscription's scope requires a tag prefix that no tag of the trigger has.
    ///
    /// Add the tag to the trigger, or remove the prefix from the scope.
    #[error(
        "the trigger breadcrumb has no tag with the prefix {prefix:?}, which the scope of the source requires"
    )]
    NothingShared {
        /// The prefix in the context subscription's scope that no tag of the trigger has.
        prefix: String,
    },
}

impl fmt::Display for MissingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.key, self.reason)
    }
}
