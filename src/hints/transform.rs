//! Rules of `transform` in `llm_hints`, which compute values from a filtered context.

use super::budget::Budget;
use super::error::{HintsProblem, HintsReason};
use super::extract::extract;
use super::format::Format;
#[cfg(feature = "templates")]
use super::template::Template;
use crate::model::Path;
use serde_json::Value;

/// Compiled `transform` rule of `llm_hints`.
#[derive(Debug)]
pub(super) enum Transform {
    Extract(Path),
    Format(Format),
    Literal(Value),
    #[cfg(feature = "templates")]
    Template(Template),
}

/// Compiles a `template` rule of `llm_hints`, in a build with the feature `templates`.
#[cfg(feature = "templates")]
pub(super) fn template(text: &str) -> Result<Transform, HintsProblem> {
    Template::parse(text).map(Transform::Template)
}

/// Rejects a `template` rule of `llm_hints`, in a build without the feature `templates`.
#[cfg(not(feature = "templates"))]
pub(super) fn template(_: &str) -> Result<Transform, HintsProblem> {
    Err(HintsProblem::NoTemplates)
}

impl Transform {
    pub(super) fn apply(&self, context: &Value, budget: &mut Budget) -> Result<Value, HintsReason> {
        match self {
            Self::Extract(path) => extract(path, context, budget),
            Self::Format(format) => format.apply(context, budget),
            Self::Literal(literal) => budget.copy(literal),
            #[cfg(feature = "templates")]
            Self::Template(template) => template.apply(context, budget),
        }
    }
}
