//! Results of the context subscriptions of a run, and the reasons why sources are missing or incomplete.

use super::withheld::WithheldBy;
use crate::error::Retry;
use crate::model::Breadcrumb;
use crate::store::StoreError;
use std::fmt;
use std::sync::Arc;

/// Breadcrumbs that one context subscription found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Source {
    /// The key of the source: the name of its subscription.
    pub key: String,
    /// The breadcrumbs, in the order that the subscription requests.
    pub items: Vec<Arc<Breadcrumb>>,
    /// Similarity score of each item of a vector fetch, `None` where the store reports no score. Empty for other fetches.
    pub scores: Vec<Option<f64>>,
    /// `true` for a source of at most one item (`latest`, or a limit of 1), `false` for a list.
    pub is_one: bool,
    /// If `true`, the run does not execute without this source.
    pub required: bool,
    /// The priority of the subscription. If the context exceeds a limit, items of the lowest priority are omitted first.
    pub priority: i64,
}

/// A source that is missing or incomplete.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MissingSource {
    /// The key of the source: the name of its subscription.
    pub key: String,
    /// The reason.
    pub reason: MissingReason,
}

/// Reason why a source is missing or incomplete.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MissingReason {
    /// The fetch failed.
    #[error("the fetch failed")]
    Failed(#[source] Arc<StoreError>),
    /// A limit cut the fetch short.
    #[error("{0}")]
    Cut(Bound),
    /// The context exceeded [`Profile::context_bytes`](super::Profile::context_bytes), so items of this source were omitted: the
    /// lowest `priority` first, then the oldest.
    #[error("{items} items of {bytes} bytes were omitted, because the context would be too large")]
    TooLarge {
        /// The number of omitted items.
        items: usize,
        /// The total size of the omitted items in bytes.
        bytes: usize,
    },
    /// Items are withheld from a model, because their hints cannot be applied. The other items of the source remain.
    #[error("{items} items were withheld: {cause}")]
    Withheld {
        /// The number of items that are withheld for this cause.
        items: usize,
        /// The hints, and why they cannot be applied.
        cause: Arc<WithheldBy>,
    },
    /// Items were omitted to keep the context for a model within a budget.
    #[error("{items} items of {bytes} bytes were omitted to stay within a budget")]
    OverBudget {
        /// The number of omitted items.
        items: usize,
        /// The total size of the omitted items in bytes, as they would have been rendered.
        bytes: usize,
    },
}

impl MissingReason {
    /// Returns whether another fetch may succeed, and after what delay.
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

/// Limit that cut a fetch short.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Bound {
    /// The search stopped at the maximum number of pages, because the store returned many breadcrumbs that the query does not
    /// select.
    #[error("the search stopped after {pages} pages, because many results did not match the query")]
    Pages {
        /// The number of pages that were read.
        pages: usize,
    },
    /// Results of a vector search were dropped, because the query does not select them. Matching breadcrumbs may be missing.
    #[error(
        "{dropped} results of the vector search were omitted, because they do not match the query"
    )]
    Unselected {
        /// The number of dropped results.
        dropped: usize,
    },
    /// The text of the trigger, which is the query of the vector search, is withheld, because the trigger's hints cannot be used.
    #[error("no vector search was made, because the hints of the trigger cannot be used")]
    TriggerWithheld,
    /// The trigger has no tag with a prefix of the subscription's scope, so no breadcrumb can share the tag.
    #[error("the trigger has no {prefix:?} tag to share")]
    NothingShared {
        /// The prefix of the scope.
        prefix: String,
    },
}

impl fmt::Display for MissingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.key, self.reason)
    }
}
