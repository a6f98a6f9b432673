//! Errors of a Handlebars template that does not compile.

use crate::error::excerpt;
use crate::hints::error::HintsProblem;
use crate::model::nearest;

/// Maximum number of bytes of a template or a parser message in an error message.
pub(super) const EXCERPT_BYTES: usize = 160;

pub(super) type CompileResult<T> = Result<T, HintsProblem>;

/// Creates the error of an invalid Handlebars template.
pub(super) fn template_error(reason: impl Into<String>) -> HintsProblem {
    HintsProblem::Template {
        reason: reason.into(),
    }
}

/// Creates the error of an unknown name in a template, with the nearest known name or all known names.
pub(super) fn unknown(
    kind: &str,
    name: &str,
    known: &mut dyn Iterator<Item = &'static str>,
) -> HintsProblem {
    let known: Vec<&str> = known.collect();
    let suggestion = match nearest(name, known.iter().copied()) {
        Some(name) => format!("did you mean {name:?}?"),
        None => format!("expected one of {}", known.join(", ")),
    };
    let name = excerpt(name, EXCERPT_BYTES);
    template_error(format!("unknown {kind} {name:?}; {suggestion}"))
}
