use super::tally::Cost;
use super::tokens::{EstimatedTokens, TokenCounter};
use crate::error::Retry;
use std::fmt;
use std::sync::Arc;

/// Limits on the text that presents a context to a model: tokens, bytes, and items of each optional source.
///
/// The default is 100,000 tokens, counted by [`EstimatedTokens`], without a limit on bytes or items. The assembled context itself
/// is limited by [`Profile::context_bytes`](crate::Profile::context_bytes), which defaults to 1 MiB.
///
/// Pass it to [`ModelContext::fit`](super::ModelContext::fit). Leave room for the instructions, the
/// conversation and the answer of the model, which the budget does not count.
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
    /// Sets the maximum number of tokens of the text with the trigger and context breadcrumbs that the model receives. Defaults
    /// to 100,000.
    ///
    /// Choose a limit below the context window of the model.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{ContextBudget, ExecutionContext, Format, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let context = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
    /// let budget = ContextBudget::default().tokens(2_000).bytes(8_000);
    /// let text = context.for_model().await?.fit(&budget, Format::Xml)?.render(Format::Xml);
    /// assert!(text.len() <= 8_000);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub const fn tokens(mut self, tokens: usize) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets the maximum size in bytes of the text with the trigger and context breadcrumbs that the model receives. Defaults to
    /// no limit.
    ///
    /// The token limit applies as well.
    #[must_use]
    pub const fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the maximum number of items of each optional context source. The newest items remain. Defaults to no limit.
    ///
    /// Required sources keep all of their items.
    #[must_use]
    pub const fn items_per_source(mut self, items: usize) -> Self {
        self.items_per_source = items;
        self
    }

    /// Sets the counter of the tokens in the text with the trigger and context breadcrumbs that the model receives. Defaults to
    /// [`EstimatedTokens`].
    ///
    /// See [`TokenCounter`] for a closure as a counter.
    #[must_use]
    pub fn counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.counter = counter;
        self
    }

    /// Checks that the size of a rendered context is within the token limit and the byte limit of the budget.
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

/// Reason why the text of a context for a model cannot be reduced to a limit of tokens or bytes.
///
/// # Examples
/// ```
/// use universal_executor::executor::BudgetError;
/// use universal_executor::{ContextBudget, ExecutionContext, Format, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let context = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
/// let shown = context.for_model().await?;
/// let fitted = shown.fit(&ContextBudget::default().tokens(1), Format::Markdown);
/// assert!(matches!(fitted, Err(BudgetError::TooLarge { limit: 1, unit: "tokens", .. })));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The rendered context exceeds the budget even without the items of optional sources: the trigger and the required sources
    /// are never omitted.
    #[error(
        "the trigger and the required sources take {size} {unit} where the budget has {limit}; raise the budget, \
         exclude fields with hints, or make a source optional"
    )]
    TooLarge {
        /// The size of the rendered context without the items of optional sources, in tokens or bytes.
        size: usize,
        /// The exceeded limit of the context budget, in tokens or bytes.
        limit: usize,
        /// The unit of the context size `size` and of the budget's limit `limit`: `tokens` or `bytes`.
        unit: &'static str,
    },
}

impl BudgetError {
    /// Returns [`Retry::Never`]: a retry cannot succeed before the context budget, the `llm_hints` or the subscriptions are
    /// changed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::TooLarge { .. } => Retry::Never,
        }
    }
}
