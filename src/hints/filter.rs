//! Filter of a context by `include` and `exclude` of hints, in one walk over the original context.

use super::budget::Budget;
use super::error::HintsReason;
use super::kept::Kept;
use crate::model::PatternStep;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of comparisons that cost one step of the hint budget. The filter compares the path steps of `include` and `exclude` with each
/// node.
const PATTERNS_A_STEP: usize = 8;

/// The compiled paths of `include` and `exclude` in hints.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// The paths of `include`, then the paths of `exclude`.
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

    /// Returns the part of a context that the filter does not remove. If nothing remains, returns an empty list, an empty object or null.
    /// The depth of the context must be limited.
    pub(super) fn apply<'c>(
        &self,
        context: &'c Value,
        budget: &mut Budget,
    ) -> Result<Kept<'c>, HintsReason> {
        let live = self.patterns.iter().enumerate();
        let mut walk = Walk {
            filter: self,
            live: live.map(|(pattern, _)| Live { pattern, at: 1 }).collect(),
            budget,
        };
        let all = 0..walk.live.len();
        let kept = walk.inside(context, &all, self.includes == 0)?;
        Ok(kept.unwrap_or_else(|| match context {
            Value::Object(_) => Kept::Object(BTreeMap::new()),
            Value::Array(_) => Kept::List(Vec::new()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Kept::All(&Value::Null)
            }
        }))
    }
}

/// Progress of an `include` or `exclude` path at a node of the context.
#[derive(Clone, Copy)]
struct Live {
    pattern: usize,
    /// Bit set of the possible next steps of the path. A name at any depth causes several, because it can be matched at this node or below.
    at: u32,
}

/// The step from a node of the context to a child: a field or an item.
#[derive(Clone, Copy)]
enum Way<'c> {
    Field(&'c str),
    Item { index: usize, of: usize },
}

struct Walk<'f> {
    filter: &'f Filter,
    /// Progress of the `include` and `exclude` paths, as a stack. The bottom of the stack is for the root, and the top is for the current
    /// node.
    live: Vec<Live>,
    budget: &'f mut Budget,
}

impl Walk<'_> {
    /// Returns the part of a child node that the filter does not remove. `included` is `true` if its parent is at or below an included
    /// path.
    fn node<'c>(
        &mut self,
        value: &'c Value,
        way: Way<'_>,
        above: &Range<usize>,
        mut included: bool,
    ) -> Result<Option<Kept<'c>>, HintsReason> {
        let live = self.live.get(above.clone()).unwrap_or_default();
        let followed: u32 = live.iter().map(|live| live.at.count_ones()).sum();
        self.budget.step(1 + followed as usize / PATTERNS_A_STEP)?;
        let start = self.live.len();
        for index in above.clone() {
            let Some(Live { pattern, at }) = self.live.get(index).copied() else {
                continue;
            };
            let excludes = pattern >= self.filter.includes;
            if included && !excludes {
                continue;
            }
            let (at, complete) = match self.filter.patterns.get(pattern) {
                Some(steps) => follow(steps, at, way),
                None => continue,
            };
            if complete {
                // The walk below an included node no longer needs the includes, which come first in the stack.
                self.live.truncate(start);
                if excludes {
                    return Ok(None);
                }
                included = true;
            } else if at != 0 {
                self.live.push(Live { pattern, at });
            }
        }
        let kept = self.inside(value, &(start..self.live.len()), included);
        self.live.truncate(start);
        kept
    }

    /// Returns the part of a node that the filter does not remove, from the remaining parts of its children.
    fn inside<'c>(
        &mut self,
        value: &'c Value,
        live: &Range<usize>,
        included: bool,
    ) -> Result<Option<Kept<'c>>, HintsReason> {
        if live.is_empty() {
            return Ok(included.then_some(Kept::All(value)));
        }
        let kept = match value {
            Value::Array(items) => self.items(items, live, included)?,
            Value::Object(fields) => self.fields(fields, live, included)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Ok(included.then_some(Kept::All(value)));
            }
        };
        let kept = kept.unwrap_or(Kept::All(value));
        // A parent that is not included remains only if one of its children does.
        Ok((included || !kept.is_empty()).then_some(kept))
    }

    /// Filters the items of a list. Returns `None` if the filter removes nothing, otherwise the remaining part.
    fn items<'c>(
        &mut self,
        items: &'c [Value],
        live: &Range<usize>,
        included: bool,
    ) -> Result<Option<Kept<'c>>, HintsReason> {
        // The list is created at the first item that changes.
        let mut left: Option<Vec<Kept<'c>>> = None;
        for (index, item) in items.iter().enumerate() {
            let of = items.len();
            let kept = self.node(item, Way::Item { index, of }, live, included)?;
            if left.is_none() && matches!(kept, Some(Kept::All(_))) {
                continue;
            }
            left.get_or_insert_with(|| items.iter().take(index).map(Kept::All).collect())
                .extend(kept);
        }
        Ok(left.map(Kept::List))
    }

    /// Filters the fields of an object. Returns `None` if the filter removes nothing, otherwise the remaining part.
    fn fields<'c>(
        &mut self,
        fields: &'c Map<String, Value>,
        live: &Range<usize>,
        included: bool,
    ) -> Result<Option<Kept<'c>>, HintsReason> {
        let all = |(name, field): (&'c String, &'c Value)| (name.as_str(), Kept::All(field));
        let mut left: Option<BTreeMap<&'c str, Kept<'c>>> = None;
        for (index, (name, field)) in fields.iter().enumerate() {
            let kept = self.node(field, Way::Field(name), live, included)?;
            if left.is_none() && matches!(kept, Some(Kept::All(_))) {
                continue;
            }
            left.get_or_insert_with(|| fields.iter().take(index).map(all).collect())
                .extend(kept.map(|kept| (name.as_str(), kept)));
        }
        Ok(left.map(Kept::Object))
    }
}

/// Returns the possible next steps of an `include` or `exclude` path at a child node. The second value is `true` if the path ends at the
/// child node.
fn follow(steps: &[PatternStep], at: u32, way: Way<'_>) -> (u32, bool) {
    let (mut next, mut rest) = (0_u32, at);
    while rest != 0 {
        let bit = rest & rest.wrapping_neg();
        rest &= !bit;
        let Some(step) = steps.get(bit.trailing_zeros() as usize) else {
            continue;
        };
        let (stays, goes_on) = passes(step, way);
        if stays {
            next |= bit;
        }
        if goes_on {
            if bit.trailing_zeros() as usize + 1 == steps.len() {
                return (next, true);
            }
            next |= bit << 1;
        }
    }
    (next, false)
}

/// Tests if a path step matches a child node. The first value is `true` if the step can still match below the child node, and the second
/// value is `true` if the step matches the child node itself.
fn passes(step: &PatternStep, way: Way<'_>) -> (bool, bool) {
    match (step, way) {
        (PatternStep::Name(name), Way::Field(field)) => (false, name == field),
        (PatternStep::Anywhere(name), Way::Field(field)) => (true, name == field),
        // A name applies to each item of a list.
        (PatternStep::Name(_) | PatternStep::Anywhere(_), Way::Item { .. }) => (true, false),
        (PatternStep::Index(_), Way::Field(_)) => (false, false),
        (PatternStep::Index(wanted), Way::Item { index, of }) => {
            let distance = usize::try_from(wanted.unsigned_abs()).ok();
            let wanted = match *wanted < 0 {
                true => distance.and_then(|distance| of.checked_sub(distance)),
                false => distance,
            };
            (false, wanted == Some(index))
        }
        (PatternStep::Each, Way::Field(_) | Way::Item { .. }) => (false, true),
    }
}
