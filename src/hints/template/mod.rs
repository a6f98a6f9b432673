//! Templates: the grammar of Handlebars, read by its own parser, rendered here.
//!
//! The renderer of `handlebars` is not used. It copies the context, escapes by default, logs what it is given, and
//! cannot be told to stop; what is needed of it is small. `admission` bounds what the parser, which recurses, is given;
//! `compile` turns what it read into a `program`, and refuses what that has no word for; `render` runs it, counting.

mod admission;
mod compile;
mod place;
mod problem;
mod program;
mod render;
mod seen;

use super::budget::{Budget, Text};
use super::error::{HintsProblem, HintsReason};
use program::Node;
use serde_json::Value;

/// A compiled template.
#[derive(Debug)]
pub(super) struct Template(Vec<Node>);

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, HintsProblem> {
        admission::admit(text)?;
        compile::compile(text).map(Self)
    }

    /// The text for a context of bounded depth.
    pub(super) fn apply(&self, context: &Value, budget: &mut Budget) -> Result<Value, HintsReason> {
        let mut out = Text::new(budget);
        render::render(&self.0, context, &mut out)?;
        out.into_value()
    }
}
