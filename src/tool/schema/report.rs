//! Messages about violations of a JSON Schema, for a model or a person. Excerpts of values are short, because values can be large
//! or secret.

use crate::error::excerpt;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;

/// Maximum number of schema violations that one message about an invalid value lists.
const LISTED_VIOLATIONS: usize = 5;
/// Maximum length in bytes of an excerpt of the invalid value in the message about a schema violation.
const VALUE_BYTES: usize = 100;
/// Maximum length in bytes of the message about one schema violation.
const MESSAGE_BYTES: usize = 400;
const PATH_BYTES: usize = 200;

/// Describes the problem of an invalid JSON Schema.
pub(super) fn of_schema(error: &ValidationError<'_>) -> String {
    describe(error)
}

/// The error text for an invalid value whose list of schema violations would need too much memory.
pub(super) const WITHHELD: &str = "the value does not fit its schema, and is too large to name the violations; send \
                                   fewer items or fields";

/// Describes only the first schema violation of a value, because a list of all violations could need too much memory.
pub(super) fn of_first(error: &ValidationError<'_>) -> String {
    let first = describe(error);
    format!("{first}; further violations are not listed, because the value is too large")
}

/// Describes the first schema violations of a value, each with its path.
pub(super) fn of<'e>(errors: impl Iterator<Item = ValidationError<'e>>) -> String {
    let mut messages = Vec::new();
    let mut more = 0;
    for error in errors {
        if messages.len() < LISTED_VIOLATIONS {
            messages.push(describe(&error));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        messages.push(format!("and {more} more"));
    }
    messages.join("; ")
}

fn describe(error: &ValidationError<'_>) -> String {
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
        reason = "the enum is from another crate, and its new variants have their own messages"
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
    let shown = names.iter().take(LISTED_VIOLATIONS);
    let shown: Vec<String> = shown
        .map(|name| format!("{:?}", excerpt(name, VALUE_BYTES)))
        .collect();
    format!("unknown fields: {}", shown.join(", "))
}

/// Describes why a value matches none of the alternatives of a JSON Schema, with the first violation of each alternative.
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
    let reasons: Vec<String> = reasons.take(LISTED_VIOLATIONS).map(reason).collect();
    match reasons.is_empty() {
        true => format!("{value} fits none of the allowed forms"),
        false => format!(
            "{value} fits none of the allowed forms: {}",
            reasons.join(", or ")
        ),
    }
}
