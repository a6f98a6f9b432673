//! What the context subscriptions of a run found, and what they did not.

use super::withheld::WithheldBy;
use crate::error::Retry;
use crate::model::Breadcrumb;
use crate::store::StoreError;
use std::fmt;
use std::sync::Arc;

/// What one context subscription found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Source {
    /// Its name.
    pub key: String,
    /// What was found, in the order asked for.
    pub items: Vec<Arc<Breadcrumb>>,
    /// Of a vector fetch how near each item is, where the store says so; else empty.
    pub scores: Vec<Option<f64>>,
    /// Whether it is one item (`latest`, or a limit of 1), not a list.
    pub is_one: bool,
    /// Whether nothing is executed without it.
    pub required: bool,
    /// Of its subscription: the lowest is cut first when a budget is short.
    pub priority: i64,
}

/// A source that is not there, or not all of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MissingSource {
    /// Its name.
    pub key: String,
    /// Why.
    pub reason: MissingReason,
}

/// Why a source is not there, or not all of it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MissingReason {
    /// The fetch failed.
    #[error("it could not be fetched")]
    Failed(#[source] Arc<StoreError>),
    /// The fetch was ended by a bound.
    #[error("{0}")]
    Cut(Bound),
    /// The context would have been too large, so items of this source were omitted: the lowest `priority` first, then the oldest.
    #[error("{items} items of {bytes} bytes were left out, the context would have been too large")]
    TooLarge {
        /// How many were left out.
        items: usize,
        /// How large they were together.
        bytes: usize,
    },
    /// Items are not shown to a model, because what was to shape them cannot. The others are.
    #[error("{items} items were withheld: {cause}")]
    Withheld {
        /// How many, all for the same cause.
        items: usize,
        /// What was to shape them.
        cause: Arc<WithheldBy>,
    },
    /// Items were left out of what a model is shown, to keep it within a budget.
    #[error("{items} items of {bytes} bytes were left out to stay within a budget")]
    OverBudget {
        /// How many were left out.
        items: usize,
        /// How large they were together, as they would have been shown.
        bytes: usize,
    },
}

impl MissingReason {
    /// The decision on another fetch.
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

/// A bound that ended a fetch.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Bound {
    /// The store returned so many breadcrumbs that the query does not select that the search was given up.
    #[error("the search was given up after {pages} pages")]
    Pages {
        /// How many pages were read.
        pages: usize,
    },
    /// The store found by meaning what the query does not select, in the place of what it does.
    #[error(
        "{dropped} of what the store found were left out, since they are not what was asked for"
    )]
    Unselected {
        /// How many were left out.
        dropped: usize,
    },
    /// The trigger, whose text a vector fetch looks near to, has hints that cannot be used.
    #[error(
        "the trigger is withheld, since its hints cannot be used, and so nothing is near to it"
    )]
    TriggerWithheld,
    /// The trigger has no tag that the scope could be shared by.
    #[error("the trigger has no {prefix:?} tag to share")]
    NothingShared {
        /// The scope's prefix.
        prefix: String,
    },
}

impl fmt::Display for MissingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.key, self.reason)
    }
}
