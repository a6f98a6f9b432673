//! Include and exclude, decided for each node in one walk over the original context.

use super::budget::Budget;
use super::error::HintsReason;
use crate::model::PatternStep;
use serde_json::{Map, Value};
use std::ops::Range;

/// Patterns that are followed for the price of one step.
const PATTERNS_A_STEP: usize = 8;

/// What of a context is kept.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// Those of `include`, then those of `exclude`.
    patterns: Vec<Vec<PatternStep>>,
    includes: usize,
}

/// What became of a node.
enum Kept {
    /// All of it is kept.
    Same,
    /// Nothing of it is kept.
    Nothing,
    /// This is left of it.
    Some(Value),
}

impl Filter {
    pub(super) fn new(include: Vec<Vec<PatternStep>>, exclude: Vec<Vec<PatternStep>>) -> Self {
        let includes = include.len();
        let mut patterns = include;
        patterns.extend(exclude);
        Self { patterns, includes }
    }

    /// What is left of a context of bounded depth, `None` if that is all of it; an empty one of its kind if nothing is.
    pub(super) fn apply(
        &self,
        context: &Value,
        budget: &mut Budget,
    ) -> Result<Option<Value>, HintsReason> {
        let live = self.patterns.iter().enumerate();
        let mut walk = Walk {
            filter: self,
            live: live.map(|(pattern, _)| Live { pattern, at: 1 }).collect(),
            budget,
        };
        let all = 0..walk.live.len();
        Ok(match walk.inside(context, &all, self.includes == 0)? {
            Kept::Same => None,
            Kept::Some(left) => Some(left),
            Kept::Nothing => Some(match context {
                Value::Object(_) => Value::Object(Map::new()),
                Value::Array(_) => Value::Array(Vec::new()),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Value::Null,
            }),
        })
    }
}

/// How far a pattern was followed down to a node.
#[derive(Clone, Copy)]
struct Live {
    pattern: usize,
    /// A bit for each step that may come next, since a name at any depth may have been found or not yet.
    at: u32,
}

/// The way from a node to one below it.
#[derive(Clone, Copy)]
enum Way<'c> {
    Field(&'c str),
    Item { index: usize, of: usize },
}

struct Walk<'f> {
    filter: &'f Filter,
    /// What is followed, for the root, then for the node below it on the way, and so on.
    live: Vec<Live>,
    budget: &'f mut Budget,
}

impl Walk<'_> {
    /// What is left of a node that is reached; `included` if it is under an included path.
    fn node(
        &mut self,
        value: &Value,
        way: Way<'_>,
        above: &Range<usize>,
        mut included: bool,
    ) -> Result<Kept, HintsReason> {
        self.budget.step(1 + above.len() / PATTERNS_A_STEP)?;
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
                // Also what is found to be included has no more use for its includes, which come first.
                self.live.truncate(start);
                if excludes {
                    return Ok(Kept::Nothing);
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

    /// What is left of a node by what is below it.
    fn inside(
        &mut self,
        value: &Value,
        live: &Range<usize>,
        included: bool,
    ) -> Result<Kept, HintsReason> {
        if live.is_empty() {
            return Ok(if included { Kept::Same } else { Kept::Nothing });
        }
        let kept = match value {
            Value::Array(items) => self.items(items, live, included)?,
            Value::Object(fields) => self.fields(fields, live, included)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) if included => {
                Kept::Same
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Kept::Nothing,
        };
        Ok(match kept {
            // What is above an included node is kept for its sake only.
            Kept::Same if !included && is_empty(value) => Kept::Nothing,
            Kept::Some(left) if !included && is_empty(&left) => Kept::Nothing,
            kept @ (Kept::Same | Kept::Nothing | Kept::Some(_)) => kept,
        })
    }

    fn items(
        &mut self,
        items: &[Value],
        live: &Range<usize>,
        included: bool,
    ) -> Result<Kept, HintsReason> {
        // Made at the first item that does not stay as it is.
        let mut left: Option<Vec<Value>> = None;
        for (index, item) in items.iter().enumerate() {
            let of = items.len();
            let kept = self.node(item, Way::Item { index, of }, live, included)?;
            if let Kept::Same = kept {
                left.iter_mut().for_each(|left| left.push(item.clone()));
                continue;
            }
            let left = left.get_or_insert_with(|| items.iter().take(index).cloned().collect());
            if let Kept::Some(item) = kept {
                left.push(item);
            }
        }
        Ok(left.map_or(Kept::Same, |left| Kept::Some(Value::Array(left))))
    }

    fn fields(
        &mut self,
        fields: &Map<String, Value>,
        live: &Range<usize>,
        included: bool,
    ) -> Result<Kept, HintsReason> {
        let copy = |(name, field): (&String, &Value)| (name.clone(), field.clone());
        let mut left: Option<Map<String, Value>> = None;
        for (index, (name, field)) in fields.iter().enumerate() {
            let kept = self.node(field, Way::Field(name), live, included)?;
            if let Kept::Same = kept {
                left.iter_mut()
                    .for_each(|left| drop(left.insert(name.clone(), field.clone())));
                continue;
            }
            let left = left.get_or_insert_with(|| fields.iter().take(index).map(copy).collect());
            if let Kept::Some(field) = kept {
                left.insert(name.clone(), field);
            }
        }
        Ok(left.map_or(Kept::Same, |left| Kept::Some(Value::Object(left))))
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The steps of a pattern that come next one node further down, and whether it ends there.
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

/// Whether a step is still to be taken below a node, and whether it is taken by going there.
fn passes(step: &PatternStep, way: Way<'_>) -> (bool, bool) {
    match (step, way) {
        (PatternStep::Name(name), Way::Field(field)) => (false, name == field),
        (PatternStep::Anywhere(name), Way::Field(field)) => (true, name == field),
        // A name looks into each item of a list.
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
