use super::tally::Cost;
use super::tokens::{EstimatedTokens, TokenCounter};
use crate::error::Retry;
use std::fmt;
use std::sync::Arc;

/// How much a model is shown at most.
///
/// By default 100,000 tokens as [`EstimatedTokens`] counts them, and nothing else: how large a context is at all is
/// limited when it is assembled, to 1 MiB unless the profile says otherwise.
///
/// ```
/// use universal_executor::ContextBudget;
///
/// let budget = ContextBudget::default().tokens(8_000).items_per_source(20);
/// # let _ = budget;
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ContextBudget {
    pub(super) tokens: usize,
    pub(super) bytes: usize,
    pub(super) items_per_source: usize,
    pub(super) counter: Arc<dyn TokenCounter>,
}

impl ContextBudget {
    /// Sets how many tokens the rendered text may have.
    #[must_use]
    pub const fn tokens(mut self, tokens: usize) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets how many bytes the rendered text may have.
    #[must_use]
    pub const fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets how many items of each optional list are kept, the newest.
    #[must_use]
    pub const fn items_per_source(mut self, items: usize) -> Self {
        self.items_per_source = items;
        self
    }

    /// Sets who counts the tokens.
    #[must_use]
    pub fn counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.counter = counter;
        self
    }

    /// Whether a text of this cost is within it.
    pub(super) fn admits(&self, cost: Cost) -> Result<(), BudgetError> {
        let measures = [
            (cost.tokens(), self.tokens, "tokens"),
            (cost.bytes(), self.bytes, "bytes"),
        ];
        match measures.into_iter().find(|(size, limit, _)| size > limit) {
            Some((size, limit, unit)) => Err(BudgetError::TooLarge { size, limit, unit }),
            None => Ok(()),
        }
    }
}

impl Default for ContextBudget {
    fn default() -> Self {
        Self {
            tokens: 100_000,
            bytes: usize::MAX,
            items_per_source: usize::MAX,
            counter: Arc::new(EstimatedTokens),
        }
    }
}

impl fmt::Debug for ContextBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextBudget")
            .field("tokens", &self.tokens)
            .field("bytes", &self.bytes)
            .field("items_per_source", &self.items_per_source)
            .finish_non_exhaustive()
    }
}

/// A context cannot be made to fit a budget.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// What is never left out is too large on its own: the trigger, the required sources, and the text around them.
    #[error(
        "the trigger and the required sources take {size} {unit} where the budget has {limit}; raise it, \
         let hints show less of them, or make a source optional"
    )]
    TooLarge {
        /// What they take.
        size: usize,
        /// What the budget has.
        limit: usize,
        /// Of what: `tokens` or `bytes`.
        unit: &'static str,
    },
}

impl BudgetError {
    /// Never: the budget, the hints or the subscriptions have to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::TooLarge { .. } => Retry::Never,
        }
    }
}
