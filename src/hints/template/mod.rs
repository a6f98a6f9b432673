//! Templates with Handlebars syntax, which the crate `handlebars` parses and this module renders.
//!
//! The renderer of `handlebars` is not used: it copies the context, escapes by default, logs its input and has no limits. `admission`
//! limits the input of the parser, which is recursive. `compile` converts the parsed template to a `program` and rejects unsupported
//! features. `render` runs the program and counts the steps.

mod admission;
mod compile;
mod problem;
mod program;
mod render;
mod scopes;
mod value;

use super::budget::{Budget, Text};
use super::error::{HintsProblem, HintsReason};
use program::Node;
use serde_json::Value;

/// Compiled Handlebars template of a rule of `llm_hints`.
#[derive(Debug)]
pub(super) struct Template(Vec<Node>);

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, HintsProblem> {
        admission::admit(text)?;
        compile::compile(text).map(Self)
    }

    /// Renders a template of `llm_hints` with a breadcrumb's context. The depth of the context must be limited.
    pub(super) fn apply(&self, context: &Value, budget: &mut Budget) -> Result<Value, HintsReason> {
        let mut out = Text::new(budget);
        render::render(&self.0, context, &mut out)?;
        out.into_value()
    }
}
