use super::super::sources::{MissingReason, MissingSource};
use super::budget::{BudgetError, ContextBudget};
use super::format::Format;
use super::tally::{Candidate, Scale, Tally, is_over_budget, omitted_before};
use super::{ModelContext, ModelItem, ModelSource};
use std::collections::{BTreeMap, HashSet};

impl ModelContext {
    /// Omits as few items of context sources as possible, so that the context's rendered text in the given format fits the
    /// budget.
    ///
    /// Whole items are omitted: the lowest `priority` first, then the oldest (by update time, version and ID, then by position). If
    /// the budget limits the items of a source, every optional list is first reduced to its newest items. The trigger and required
    /// sources are never reduced. Omitted items are listed in [`missing`](Self::missing) as [`MissingReason::OverBudget`], and
    /// therefore in the text.
    ///
    /// All parts of the text count: the introduction, the headings, the data, and the notes on omitted items. Tokens are counted for
    /// each part of the text, and each item is counted once. The digits of a fence are not known before rendering, so each of its 16
    /// digits counts as the costliest digit.
    ///
    /// # Errors
    /// [`BudgetError::TooLarge`] if the trigger and the required sources alone exceed the budget.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{ContextBudget, ExecutionContext, Format, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Hi"}));
    /// let context = ExecutionContext::for_trigger(message)
    ///     .with_many("history", [json!({"n": 1}), json!({"n": 2})]);
    ///
    /// let budget = ContextBudget::default().items_per_source(1);
    /// let shown = context.for_model().await?.fit(&budget, Format::Markdown)?;
    /// assert_eq!((shown.many("history").len(), shown.missing().len()), (1, 1));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn fit(mut self, budget: &ContextBudget, format: Format) -> Result<Self, BudgetError> {
        let mut omissions: BTreeMap<usize, OverBudgetItems> = BTreeMap::new();
        for candidate in self.items_to_omit(budget, format)? {
            let omitted = omissions.entry(candidate.source).or_default();
            omitted.indexes.insert(candidate.index);
            omitted.bytes = omitted.bytes.saturating_add(candidate.cost.bytes());
        }
        for (at, omitted) in omissions {
            if let Some(source) = self.sources.get_mut(at) {
                omitted.remove_from(source, &mut self.missing);
            }
        }
        Ok(self)
    }

    /// Returns the smallest set of context items to omit, so that the rendered context is within the limits of the budget.
    fn items_to_omit(
        &self,
        budget: &ContextBudget,
        format: Format,
    ) -> Result<Vec<Candidate<'_>>, BudgetError> {
        let scale = Scale::new(&*budget.counter, format);
        let (mut candidates, surplus) = candidates(&self.sources, budget.items_per_source, &scale);
        let mut tally = Tally::without(&candidates, self, &scale);
        let mut fewest = budget.admits(tally.total()).map(|()| candidates.len());
        // Starts without any candidate, and adds one at a time. A note may cost more than the item that it reports as
        // omitted, so the cost does not always grow. The last admitted state has the fewest omitted items.
        for (before, candidate) in candidates.iter().enumerate().skip(surplus).rev() {
            tally.restore(candidate);
            if budget.admits(tally.total()).is_ok() {
                fewest = Ok(before);
            }
        }
        candidates.truncate(fewest?);
        Ok(candidates)
    }
}

/// Returns the items of a context that may be omitted, in the order of their omission. The number counts the first of these items: they
/// must be omitted because their sources have more than `max_items` items.
fn candidates<'a>(
    sources: &'a [ModelSource],
    max_items: usize,
    scale: &Scale<'_>,
) -> (Vec<Candidate<'a>>, usize) {
    let optional = sources.iter().enumerate();
    let optional = optional.filter(|(_, source)| !source.required);
    let mut all: Vec<_> = optional
        .flat_map(|(at, source)| {
            let items = source.items.iter().enumerate();
            items.map(move |(index, item)| {
                let candidate = Candidate {
                    source: at,
                    index,
                    item,
                    cost: scale.item(item),
                };
                (source.priority, candidate)
            })
        })
        .collect();
    // The sort is stable: of items of the same age, the items of the first source are omitted first.
    let age = |item: &ModelItem| (item.updated_at, item.version, item.id);
    all.sort_by_key(|(priority, candidate)| (*priority, age(candidate.item)));
    let surplus_of = |source: &ModelSource| match source.is_one {
        true => 0,
        false => source.items.len().saturating_sub(max_items),
    };
    let mut surplus: Vec<usize> = sources.iter().map(surplus_of).collect();
    let mut is_surplus = |candidate: &Candidate<'_>| {
        let remaining = surplus
            .get_mut(candidate.source)
            .filter(|remaining| **remaining > 0);
        remaining.map(|remaining| *remaining -= 1).is_some()
    };
    let all = all.into_iter().map(|(_, candidate)| candidate);
    let (mut all, others): (Vec<_>, Vec<_>) = all.partition(|candidate| is_surplus(candidate));
    let surplus = all.len();
    all.extend(others);
    (all, surplus)
}

/// The items of one context source that are omitted to stay within a budget.
#[derive(Default)]
struct OverBudgetItems {
    indexes: HashSet<usize>,
    bytes: usize,
}

impl OverBudgetItems {
    fn remove_from(&self, source: &mut ModelSource, missing: &mut Vec<MissingSource>) {
        let mut indexes = 0..;
        source.items.retain(|_| {
            indexes
                .next()
                .is_none_or(|index| !self.indexes.contains(&index))
        });
        let (items, bytes) = omitted_before(&source.key, missing);
        missing.retain(|missing| !is_over_budget(&source.key, missing));
        missing.push(MissingSource {
            key: source.key.clone(),
            reason: MissingReason::OverBudget {
                items: items.saturating_add(self.indexes.len()),
                bytes: bytes.saturating_add(self.bytes),
            },
        });
    }
}
