//! What does not fit, in words that a model can act on. What it says of a value it says in few bytes: values may be
//! large, and secret.

use crate::error::excerpt;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;

/// How many violations are named.
const NAMED: usize = 5;
/// How much is shown of a value.
const VALUE_BYTES: usize = 100;
/// How much is said of one violation.
const MESSAGE_BYTES: usize = 400;
const PATH_BYTES: usize = 200;

/// What is wrong with a schema.
pub(super) fn of_schema(error: &ValidationError<'_>) -> String {
    described(error)
}

/// The message for a value whose violations would need too much memory to be collected.
pub(super) const WITHHELD: &str = "the value does not fit its schema, and is too large to name the violations; send \
                                   fewer items or fields";

/// Describes the first violation of a value with too many possible violations to collect all of them.
pub(super) fn of_first(error: &ValidationError<'_>) -> String {
    let first = described(error);
    format!("{first}; further violations are not listed, because the value is too large")
}

/// The first violations, each with its place.
pub(super) fn of<'e>(errors: impl Iterator<Item = ValidationError<'e>>) -> String {
    let mut said = Vec::new();
    let mut more = 0;
    for error in errors {
        if said.len() < NAMED {
            said.push(described(&error));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    said.join("; ")
}

fn described(error: &ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let message = message(error);
    match &*path {
        "" => message,
        path => format!("at {}: {message}", excerpt(path, PATH_BYTES)),
    }
}

fn message(error: &ValidationError<'_>) -> String {
    let value = error.instance().to_string();
    let value = excerpt(&value, VALUE_BYTES);
    let plain = || error.masked_with(&*value).to_string();
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is another crate's, and whatever it adds has words of its own"
    )]
    let message = match error.kind() {
        Kind::AdditionalProperties { unexpected } => unknown_fields(unexpected),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => either(&value, error, context),
        Kind::Enum { options } => format!("{value} is not one of {options}"),
        Kind::FalseSchema => format!("{value} is not allowed here"),
        Kind::OneOfMultipleValid { .. } => {
            format!("{value} fits several forms of which exactly one must fit")
        }
        _ => plain(),
    };
    excerpt(&message, MESSAGE_BYTES).into_owned()
}

fn unknown_fields(names: &[String]) -> String {
    let shown = names.iter().take(NAMED);
    let shown: Vec<String> = shown
        .map(|name| format!("{:?}", excerpt(name, VALUE_BYTES)))
        .collect();
    format!("unknown fields: {}", shown.join(", "))
}

/// Why each of some forms does not fit: one of them was meant.
fn either(
    value: &str,
    error: &ValidationError<'_>,
    forms: &[Vec<ValidationError<'static>>],
) -> String {
    let reasons = forms.iter().filter_map(|errors| errors.first());
    let reason = |inner: &ValidationError<'_>| {
        let message = inner.masked_with("it");
        match inner.instance_path() == error.instance_path() {
            true => message.to_string(),
            false => {
                let path = inner.instance_path().to_string();
                format!("at {}: {message}", excerpt(&path, PATH_BYTES))
            }
        }
    };
    let reasons: Vec<String> = reasons.take(NAMED).map(reason).collect();
    match reasons.is_empty() {
        true => format!("{value} fits none of the allowed forms"),
        false => format!(
            "{value} fits none of the allowed forms: {}",
            reasons.join(", or ")
        ),
    }
}
