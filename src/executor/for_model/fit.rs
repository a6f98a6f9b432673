use super::super::sources::{MissingReason, MissingSource};
use super::budget::{BudgetError, ContextBudget};
use super::format::Format;
use super::tally::{Candidate, Scale, Tally, is_over_budget, left_out_before};
use super::{ModelContext, ModelItem, ModelSource};
use std::collections::{BTreeMap, HashSet};

impl ModelContext {
    /// The same context with as few items left out as its text in this format takes to be within the budget.
    ///
    /// Items are left out whole: those of the lowest `priority` first, within one priority the oldest first (by update
    /// time, version and id, then in the order they have). If the budget limits the items of a source, every optional
    /// list is cut to its newest before that. The trigger and required sources are never cut. What was left out stands in
    /// [`missing`](Self::missing) as [`MissingReason::OverBudget`], and so in the text.
    ///
    /// Everything counts: what a model is told about the text, headings, and the notes on what was left out. Tokens are
    /// counted over the pieces that the text is joined of, each item once. The digits of a fence are not known before the
    /// text is made and count as 16 times the costliest digit.
    ///
    /// # Errors
    /// [`BudgetError::TooLarge`] if the trigger and the required sources have no room on their own.
    pub fn fit(mut self, budget: &ContextBudget, format: Format) -> Result<Self, BudgetError> {
        let mut cuts: BTreeMap<usize, Cut> = BTreeMap::new();
        for candidate in self.to_leave_out(budget, format)? {
            let cut = cuts.entry(candidate.source).or_default();
            cut.places.insert(candidate.place);
            cut.bytes = cut.bytes.saturating_add(candidate.cost.bytes());
        }
        for (at, cut) in cuts {
            if let Some(source) = self.sources.get_mut(at) {
                cut.leave_out_of(source, &mut self.missing);
            }
        }
        Ok(self)
    }

    /// The fewest items that have to go.
    fn to_leave_out(
        &self,
        budget: &ContextBudget,
        format: Format,
    ) -> Result<Vec<Candidate<'_>>, BudgetError> {
        let scale = Scale::new(&*budget.counter, format);
        let (mut candidates, surplus) = candidates(&self.sources, budget.items_per_source, &scale);
        let mut tally = Tally::without(&candidates, self, &scale);
        let mut fewest = budget.admits(tally.total()).map(|()| candidates.len());
        // From everything left out to nothing. A note may cost more than the item it tells of, so the text does not
        // always grow on the way, and the last that is admitted is the one with the fewest left out.
        for (before, candidate) in candidates.iter().enumerate().skip(surplus).rev() {
            tally.put_back(candidate);
            if budget.admits(tally.total()).is_ok() {
                fewest = Ok(before);
            }
        }
        candidates.truncate(fewest?);
        Ok(candidates)
    }
}

/// The items that may be left out, the first to go first, and how many of them go in any case, since their source has
/// more than `most`.
fn candidates<'a>(
    sources: &'a [ModelSource],
    most: usize,
    scale: &Scale<'_>,
) -> (Vec<Candidate<'a>>, usize) {
    let optional = sources.iter().enumerate();
    let optional = optional.filter(|(_, source)| !source.required);
    let mut all: Vec<_> = optional
        .flat_map(|(at, source)| {
            let items = source.items.iter().enumerate();
            items.map(move |(place, item)| {
                let candidate = Candidate {
                    source: at,
                    place,
                    item,
                    cost: scale.item(item),
                };
                (source.priority, candidate)
            })
        })
        .collect();
    // The sort is stable: of items of one age those of the first source are the first to go.
    let age = |item: &ModelItem| (item.updated_at, item.version, item.id);
    all.sort_by_key(|(priority, candidate)| (*priority, age(candidate.item)));
    let surplus_of = |source: &ModelSource| match source.is_one {
        true => 0,
        false => source.items.len().saturating_sub(most),
    };
    let mut surplus: Vec<usize> = sources.iter().map(surplus_of).collect();
    let mut is_surplus = |candidate: &Candidate<'_>| {
        let left = surplus.get_mut(candidate.source).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    };
    let all = all.into_iter().map(|(_, candidate)| candidate);
    let (mut all, others): (Vec<_>, Vec<_>) = all.partition(|candidate| is_surplus(candidate));
    let surplus = all.len();
    all.extend(others);
    (all, surplus)
}

/// What is left out of one source.
#[derive(Default)]
struct Cut {
    places: HashSet<usize>,
    bytes: usize,
}

impl Cut {
    fn leave_out_of(&self, source: &mut ModelSource, missing: &mut Vec<MissingSource>) {
        let mut places = 0..;
        source.items.retain(|_| {
            places
                .next()
                .is_none_or(|place| !self.places.contains(&place))
        });
        let (items, bytes) = left_out_before(&source.key, missing);
        missing.retain(|missing| !is_over_budget(&source.key, missing));
        missing.push(MissingSource {
            key: source.key.clone(),
            reason: MissingReason::OverBudget {
                items: items.saturating_add(self.places.len()),
                bytes: bytes.saturating_add(self.bytes),
            },
        });
    }
}
