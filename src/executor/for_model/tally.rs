//! Cost of a rendered context in bytes and tokens, counted piece by piece.

use super::super::sources::{MissingReason, MissingSource};
use super::fence::MARK_BYTES;
use super::format::Format;
use super::section::{
    BEFORE_FIRST, BETWEEN, Facts, Heading, LIST_CLOSE, LIST_OPEN, before_notes, note,
};
use super::tokens::TokenCounter;
use super::{ModelContext, ModelItem, ModelSource};
use std::ops::{Add, AddAssign, SubAssign};

/// Cost of a text in bytes and tokens. The sums are 128 bits wide, so that no value of a token counter overflows them.
#[derive(Clone, Copy, Default)]
pub(super) struct Cost {
    bytes: u128,
    tokens: u128,
}

impl Cost {
    pub(super) fn bytes(self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    pub(super) fn tokens(self) -> usize {
        usize::try_from(self.tokens).unwrap_or(usize::MAX)
    }

    fn times(self, count: usize) -> Self {
        Self {
            bytes: self.bytes.saturating_mul(count as u128),
            tokens: self.tokens.saturating_mul(count as u128),
        }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            tokens: self.tokens + other.tokens,
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Cost {
    fn sub_assign(&mut self, other: Self) {
        self.bytes -= other.bytes;
        self.tokens -= other.tokens;
    }
}

/// Calculates the bytes and tokens of pieces of rendered text in one format.
pub(super) struct Scale<'a> {
    counter: &'a dyn TokenCounter,
    format: Format,
    mark: Cost,
    before_first: Cost,
    between: Cost,
}

impl<'a> Scale<'a> {
    pub(super) fn new(counter: &'a dyn TokenCounter, format: Format) -> Self {
        let digits = [
            "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f",
        ];
        let digit = digits.into_iter().map(|digit| counter.count(digit)).max();
        let digit = Cost {
            bytes: 1,
            tokens: digit.unwrap_or_default() as u128,
        };
        let mut scale = Self {
            counter,
            format,
            mark: digit.times(MARK_BYTES),
            before_first: Cost::default(),
            between: Cost::default(),
        };
        scale.before_first = scale.text(BEFORE_FIRST);
        scale.between = scale.text(BETWEEN);
        scale
    }

    pub(super) fn text(&self, text: &str) -> Cost {
        Cost {
            bytes: text.len() as u128,
            tokens: self.counter.count(text) as u128,
        }
    }

    /// Returns the bytes and tokens of an item's line of JSON in a rendered context.
    pub(super) fn item(&self, item: &ModelItem) -> Cost {
        self.text(&item.content(self.format))
    }

    /// Returns the bytes and tokens of the heading of a section and of the marks around the section's content.
    fn frame(&self, heading: Heading<'_>, facts: &Facts<'_>) -> Cost {
        let frame = heading.frame(self.format, facts);
        let (pieces, marks) = frame.pieces();
        let pieces = pieces.map(|piece| self.text(piece));
        pieces.fold(self.mark.times(marks), Cost::add)
    }

    /// Returns the bytes and tokens of the brackets and separators of a rendered list with this number of items.
    fn list_of(&self, items: usize) -> Cost {
        let ends = self.text(LIST_OPEN) + self.text(LIST_CLOSE);
        match items.checked_sub(1) {
            Some(others) => ends + self.before_first + self.between.times(others),
            None => ends,
        }
    }
}

/// A context item that may be omitted to keep a rendered context within a budget.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    /// Index of the context source that contains the item, in the list of all sources of the context. The field `index` is the
    /// index of the item in the source.
    pub(super) source: usize,
    pub(super) index: usize,
    pub(super) item: &'a ModelItem,
    /// Bytes and tokens of the item's line of JSON in the rendered context.
    pub(super) cost: Cost,
}

/// Running total of a rendered context's bytes and tokens. [`restore`](Self::restore) adds an omitted item to the total.
pub(super) struct Tally<'a> {
    scale: &'a Scale<'a>,
    source_costs: Vec<SourceCost<'a>>,
    /// The bytes and tokens of the rendered context, without the heading of the notes on missing sources.
    sum: Cost,
    /// The number of notes on missing or incomplete sources.
    notes: usize,
    before_notes: Cost,
}

/// Running total of one source's bytes and tokens in a rendered context.
struct SourceCost<'a> {
    source: &'a ModelSource,
    facts: Facts<'a>,
    items: Cost,
    /// Number and total bytes of the source's items that were omitted when the context was reduced to a budget before.
    omitted_earlier: (usize, usize),
    /// Number and total bytes of the source's items that are omitted in the current reduction of the context to a budget.
    omitted: (usize, usize),
    /// The current bytes and tokens of the source's section and note.
    cost: Cost,
}

impl<'a> Tally<'a> {
    /// Creates the running total of a rendered context without any of the items in `candidates`, which a budget may omit.
    pub(super) fn without(
        candidates: &[Candidate<'a>],
        context: &'a ModelContext,
        scale: &'a Scale<'a>,
    ) -> Self {
        let sources = context.sources.iter();
        let mut source_costs: Vec<_> = sources
            .map(|source| SourceCost::of(source, &context.missing, scale))
            .collect();
        for candidate in candidates {
            if let Some(source_cost) = source_costs.get_mut(candidate.source) {
                source_cost.omitted.0 += 1;
                source_cost.omitted.1 += candidate.cost.bytes();
            }
        }
        let facts = Facts::of(std::slice::from_ref(&context.trigger));
        let mut tally = Self {
            scale,
            source_costs: Vec::new(),
            sum: scale.text(scale.format.preamble())
                + scale.frame(Heading::Trigger, &facts)
                + scale.item(&context.trigger),
            notes: 0,
            before_notes: scale.text(before_notes(scale.format)),
        };
        for mut source_cost in source_costs {
            source_cost.update_cost(scale);
            tally.sum += source_cost.cost;
            tally.notes += usize::from(source_cost.has_note());
            tally.source_costs.push(source_cost);
        }
        for missing in &context.missing {
            if !tally
                .source_costs
                .iter()
                .any(|source_cost| is_over_budget(&source_cost.source.key, missing))
            {
                tally.sum += scale.text(&note(scale.format, &missing.key, &missing.reason));
                tally.notes += 1;
            }
        }
        tally
    }

    pub(super) fn restore(&mut self, candidate: &Candidate<'a>) {
        let Some(source_cost) = self.source_costs.get_mut(candidate.source) else {
            return;
        };
        self.sum -= source_cost.cost;
        self.notes -= usize::from(source_cost.has_note());
        source_cost.facts.add(candidate.item);
        source_cost.items += candidate.cost;
        source_cost.omitted.0 -= 1;
        source_cost.omitted.1 -= candidate.cost.bytes();
        source_cost.update_cost(self.scale);
        self.sum += source_cost.cost;
        self.notes += usize::from(source_cost.has_note());
    }

    pub(super) fn total(&self) -> Cost {
        match self.notes {
            0 => self.sum,
            _ => self.sum + self.before_notes,
        }
    }
}

impl<'a> SourceCost<'a> {
    fn of(source: &'a ModelSource, missing: &[MissingSource], scale: &Scale<'_>) -> Self {
        let mut source_cost = Self {
            source,
            facts: Facts::default(),
            items: Cost::default(),
            omitted_earlier: omitted_before(&source.key, missing),
            omitted: (0, 0),
            cost: Cost::default(),
        };
        // The items of optional sources are candidates, so they are added later.
        if source.required {
            source_cost.facts = Facts::of(&source.items);
            source_cost.items = source
                .items
                .iter()
                .map(|item| scale.item(item))
                .fold(source_cost.items, Cost::add);
        }
        source_cost
    }

    fn has_note(&self) -> bool {
        self.omitted_earlier.0 > 0 || self.omitted.0 > 0
    }

    fn update_cost(&mut self, scale: &Scale<'_>) {
        let key = &self.source.key;
        self.cost = Cost::default();
        if self.source.is_shown(self.facts.items()) {
            self.cost += scale.frame(Heading::Source(key), &self.facts) + self.items;
            if !self.source.is_one {
                self.cost += scale.list_of(self.facts.items());
            }
        }
        if self.has_note() {
            let reason = MissingReason::OverBudget {
                items: self.omitted_earlier.0.saturating_add(self.omitted.0),
                bytes: self.omitted_earlier.1.saturating_add(self.omitted.1),
            };
            self.cost += scale.text(&note(scale.format, key, &reason));
        }
    }
}

/// Returns the number and the total bytes of a source's items that were omitted when the context was reduced to a budget before.
pub(super) fn omitted_before(key: &str, missing: &[MissingSource]) -> (usize, usize) {
    let mut before = (0_usize, 0_usize);
    for missing in missing.iter().filter(|missing| missing.key == key) {
        if let MissingReason::OverBudget { items, bytes } = missing.reason {
            before = (
                before.0.saturating_add(items),
                before.1.saturating_add(bytes),
            );
        }
    }
    before
}

/// Returns `true` if a note on an incomplete context source is about items that were omitted to reduce the context to a budget.
pub(super) fn is_over_budget(key: &str, missing: &MissingSource) -> bool {
    missing.key == key && matches!(missing.reason, MissingReason::OverBudget { .. })
}
