//! Filter of a context by `include` and `exclude` of `llm_hints`, in one walk over the original context.

use super::budget::Budget;
use super::error::HintsReason;
use super::filtered::Filtered;
use crate::model::PatternStep;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of comparisons between path steps and context nodes that cost one computation step of the `llm_hints` budget. The
/// filter compares the path steps of `include` and `exclude` with each node.
const COMPARISONS_PER_STEP: usize = 8;

/// The compiled paths of `include` and `exclude` in `llm_hints`.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// The paths in `include` of the hints (`llm_hints`), then the paths in `exclude`.
    patterns: Vec<Vec<PatternStep>>,
    /// Number of `include` paths at the start of the list `patterns`.
    includes: usize,
}

impl Filter {
    pub(super) fn new(include: Vec<Vec<PatternStep>>, exclude: Vec<Vec<PatternStep>>) -> Self {
        let includes = include.len();
        let mut patterns = include;
        patterns.extend(exclude);
        Self { patterns, includes }
    }

    /// Returns the part of a context that the `include` and `exclude` paths of `llm_hints` do not remove. If nothing remains,
    /// returns an empty list, an empty object or null. The depth of the context must be limited.
    pub(super) fn apply<'c>(
        &self,
        context: &'c Value,
        budget: &mut Budget,
    ) -> Result<Filtered<'c>, HintsReason> {
        let progress = self.patterns.iter().enumerate();
        let mut walk = Walk {
            filter: self,
            progress: progress
                .map(|(pattern, _)| PatternProgress {
                    pattern,
                    next_steps: 1,
                })
                .collect(),
            budget,
        };
        let all = 0..walk.progress.len();
        let filtered = walk.filter_node(context, &all, self.includes == 0)?;
        Ok(filtered.unwrap_or_else(|| match context {
            Value::Object(_) => Filtered::Object(BTreeMap::new()),
            Value::Array(_) => Filtered::List(Vec::new()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Filtered::All(&Value::Null)
            }
        }))
    }
}

/// State of matching one `include` or `exclude` path at a node of the context: the path, and the path steps to match next.
#[derive(Clone, Copy)]
struct PatternProgress {
    pattern: usize,
    /// Bit set with one bit for each step of an `include` or `exclude` path: 1 for a step that can match a child of this node. A
    /// name at any depth sets several bits, because it can be matched at this node or below.
    next_steps: u32,
}

/// Location of a node in its parent object or list, for the `llm_hints` filter: a field name or an item index.
#[derive(Clone, Copy)]
enum ChildStep<'c> {
    Field(&'c str),
    Item { index: usize, len: usize },
}

struct Walk<'f> {
    filter: &'f Filter,
    /// Stack of the match states of the `include` and `exclude` paths at all nodes from the root of the context to the current
    /// node.
    progress: Vec<PatternProgress>,
    budget: &'f mut Budget,
}

impl Walk<'_> {
    /// Returns the part of a context node's child that the `llm_hints` filter does not remove, or `None` if it removes the whole
    /// child. `included` is `true` if the parent is at or below an included path.
    fn filter_child<'c>(
        &mut self,
        value: &'c Value,
        child: ChildStep<'_>,
        parent_progress: &Range<usize>,
        mut included: bool,
    ) -> Result<Option<Filtered<'c>>, HintsReason> {
        let progress = self
            .progress
            .get(parent_progress.clone())
            .unwrap_or_default();
        let possible_steps: u32 = progress
            .iter()
            .map(|progress| progress.next_steps.count_ones())
            .sum();
        self.budget
            .step(1 + possible_steps as usize / COMPARISONS_PER_STEP)?;
        let start = self.progress.len();
        for index in parent_progress.clone() {
            let Some(PatternProgress {
                pattern,
                next_steps,
            }) = self.progress.get(index).copied()
            else {
                continue;
            };
            let excludes = pattern >= self.filter.includes;
            if included && !excludes {
                continue;
            }
            let (next_steps, complete) = match self.filter.patterns.get(pattern) {
                Some(steps) => advance(steps, next_steps, child),
                None => continue,
            };
            if complete {
                // The walk below an included node no longer needs the includes, which come first in the stack.
                self.progress.truncate(start);
                if excludes {
                    return Ok(None);
                }
                included = true;
            } else if next_steps != 0 {
                self.progress.push(PatternProgress {
                    pattern,
                    next_steps,
                });
            }
        }
        let filtered = self.filter_node(value, &(start..self.progress.len()), included);
        self.progress.truncate(start);
        filtered
    }

    /// Filters the children of a context node, and returns the remaining part of the node, or `None` if the `llm_hints` filter
    /// removes the whole node.
    fn filter_node<'c>(
        &mut self,
        value: &'c Value,
        progress: &Range<usize>,
        included: bool,
    ) -> Result<Option<Filtered<'c>>, HintsReason> {
        if progress.is_empty() {
            return Ok(included.then_some(Filtered::All(value)));
        }
        let filtered = match value {
            Value::Array(items) => self.items(items, progress, included)?,
            Value::Object(fields) => self.fields(fields, progress, included)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Ok(included.then_some(Filtered::All(value)));
            }
        };
        let filtered = filtered.unwrap_or(Filtered::All(value));
        // A parent that is not included remains only if one of its children does.
        Ok((included || !filtered.is_empty()).then_some(filtered))
    }

    /// Filters the items of a list by the `include` and `exclude` paths of `llm_hints`. Returns `None` if the filter removes
    /// nothing, otherwise the remaining part.
    fn items<'c>(
        &mut self,
        items: &'c [Value],
        progress: &Range<usize>,
        included: bool,
    ) -> Result<Option<Filtered<'c>>, HintsReason> {
        // The list is created at the first item that changes.
        let mut remaining: Option<Vec<Filtered<'c>>> = None;
        for (index, item) in items.iter().enumerate() {
            let len = items.len();
            let filtered =
                self.filter_child(item, ChildStep::Item { index, len }, progress, included)?;
            if remaining.is_none() && matches!(filtered, Some(Filtered::All(_))) {
                continue;
            }
            remaining
                .get_or_insert_with(|| items.iter().take(index).map(Filtered::All).collect())
                .extend(filtered);
        }
        Ok(remaining.map(Filtered::List))
    }

    /// Filters the fields of an object by the `include` and `exclude` paths of `llm_hints`. Returns `None` if the filter
    /// removes nothing, otherwise the remaining part.
    fn fields<'c>(
        &mut self,
        fields: &'c Map<String, Value>,
        progress: &Range<usize>,
        included: bool,
    ) -> Result<Option<Filtered<'c>>, HintsReason> {
        let all = |(name, field): (&'c String, &'c Value)| (name.as_str(), Filtered::All(field));
        let mut remaining: Option<BTreeMap<&'c str, Filtered<'c>>> = None;
        for (index, (name, field)) in fields.iter().enumerate() {
            let filtered = self.filter_child(field, ChildStep::Field(name), progress, included)?;
            if remaining.is_none() && matches!(filtered, Some(Filtered::All(_))) {
                continue;
            }
            remaining
                .get_or_insert_with(|| fields.iter().take(index).map(all).collect())
                .extend(filtered.map(|filtered| (name.as_str(), filtered)));
        }
        Ok(remaining.map(Filtered::Object))
    }
}

/// Matches a child node with the steps of one `include` or `exclude` path, and returns the steps to match below this child. The
/// second value is `true` if the path ends at the child node.
fn advance(steps: &[PatternStep], next_steps: u32, child: ChildStep<'_>) -> (u32, bool) {
    let (mut next, mut unchecked) = (0_u32, next_steps);
    while unchecked != 0 {
        let bit = unchecked & unchecked.wrapping_neg();
        unchecked &= !bit;
        let Some(step) = steps.get(bit.trailing_zeros() as usize) else {
            continue;
        };
        let (matches_below, matches) = matches_child(step, child);
        if matches_below {
            next |= bit;
        }
        if matches {
            if bit.trailing_zeros() as usize + 1 == steps.len() {
                return (next, true);
            }
            next |= bit << 1;
        }
    }
    (next, false)
}

/// Tests if a step of an `include` or `exclude` path matches a child node. The first value is `true` if the step can still match
/// below the child node, and the second value is `true` if the step matches the child node itself.
fn matches_child(step: &PatternStep, child: ChildStep<'_>) -> (bool, bool) {
    match (step, child) {
        (PatternStep::Name(name), ChildStep::Field(field)) => (false, name == field),
        (PatternStep::Anywhere(name), ChildStep::Field(field)) => (true, name == field),
        // A name applies to each item of a list.
        (PatternStep::Name(_) | PatternStep::Anywhere(_), ChildStep::Item { .. }) => (true, false),
        (PatternStep::Index(_), ChildStep::Field(_)) => (false, false),
        (PatternStep::Index(expected), ChildStep::Item { index, len }) => {
            let distance = usize::try_from(expected.unsigned_abs()).ok();
            let expected = match *expected < 0 {
                true => distance.and_then(|distance| len.checked_sub(distance)),
                false => distance,
            };
            (false, expected == Some(index))
        }
        (PatternStep::Each, ChildStep::Field(_) | ChildStep::Item { .. }) => (false, true),
    }
}
