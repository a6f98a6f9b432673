//! Errors of a template that does not compile.

use crate::error::excerpt;
use crate::hints::error::HintsProblem;
use crate::model::nearest;

/// Maximum number of bytes that an error message quotes of a template, or of a message of the parser.
pub(super) const SHOWN: usize = 160;

pub(super) type Compiled<T> = Result<T, HintsProblem>;

/// Returns the error of a template, with its reason.
pub(super) fn wrong(reason: impl Into<String>) -> HintsProblem {
    HintsProblem::Template {
        reason: reason.into(),
    }
}

/// Returns the error of an unknown name, with the nearest known name or all of them.
pub(super) fn unknown(
    kind: &str,
    name: &str,
    known: &mut dyn Iterator<Item = &'static str>,
) -> HintsProblem {
    let known: Vec<&str> = known.collect();
    let way_out = match nearest(name, known.iter().copied()) {
        Some(name) => format!("did you mean {name:?}?"),
        None => format!("there are {}", known.join(", ")),
    };
    let name = excerpt(name, SHOWN);
    wrong(format!("there is no {kind} {name:?}; {way_out}"))
}
