//! Parses and renders strings of workflow definitions with `${path}` references. `$${` is a literal `${`.

use super::reference::Reference;
use super::{RemainingSize, Unresolved, Variables};
use crate::error::excerpt;
use crate::model::DefinitionPath;
use crate::workflow::error::{LoadProblem, WorkflowLoadError};
use crate::workflow::model_input::TextPart;
use serde_json::Value;

#[derive(Clone, Debug)]
pub(in crate::workflow) enum Part {
    Text(String),
    Reference(Reference),
}

pub(super) enum Parsed {
    Plain(String),
    Reference(Reference),
    Parts(Vec<Part>),
}

const OPEN: &str = "${";

pub(super) fn parse(text: &str, location: &DefinitionPath) -> Result<Parsed, WorkflowLoadError> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        if let Some(before) = before.strip_suffix('$') {
            plain.push_str(before);
            plain.push_str(OPEN);
            rest = after;
            continue;
        }
        plain.push_str(before);
        let wrong = |reason: String| {
            let expression = excerpt(after, 80).into_owned();
            WorkflowLoadError::new(
                location.clone(),
                LoadProblem::Expression { expression, reason },
            )
        };
        let end = end(after).ok_or_else(|| wrong("the closing } is missing".to_owned()))?;
        let (inside, left) = after.split_at(end);
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain)));
        }
        parts.push(Part::Reference(Reference::parse(inside).map_err(wrong)?));
        rest = left.strip_prefix('}').unwrap_or(left);
    }
    plain.push_str(rest);
    if parts.is_empty() {
        return Ok(Parsed::Plain(plain));
    }
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    Ok(match <[Part; 1]>::try_from(parts) {
        Ok([Part::Reference(reference)]) => Parsed::Reference(reference),
        Ok([text @ Part::Text(_)]) => Parsed::Parts(vec![text]),
        Err(parts) => Parsed::Parts(parts),
    })
}

/// Returns the byte position of the brace that closes a `${path}` reference. Braces in quotes do not close it.
fn end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '}') => return Some(at),
            (None, '\'' | '"') => quote = Some(c),
            (Some(_), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(open), c) if c == open && !escaped => quote = None,
            (None | Some(_), _) => {}
        }
        escaped = false;
    }
    None
}

pub(super) fn render(
    parts: &[Part],
    variables: &dyn Variables,
    remaining: &mut RemainingSize,
) -> Result<String, Unresolved> {
    let mut text = String::new();
    for part in parts {
        let before = text.len();
        match part {
            Part::Text(plain) => text.push_str(plain),
            Part::Reference(reference) => {
                let value = reference.resolve(variables)?;
                push(&mut text, &value);
            }
        }
        remaining.take(text.len() - before)?;
    }
    Ok(text)
}

/// Returns the input text of a step that calls a model as a list of parts: literal text, and the values of variables.
pub(super) fn parts(
    parts: &[Part],
    variables: &dyn Variables,
    remaining: &mut RemainingSize,
) -> Result<Vec<TextPart>, Unresolved> {
    let parts = parts.iter().map(|part| {
        Ok(match part {
            Part::Text(text) => {
                remaining.take(text.len())?;
                TextPart::Text(text.clone())
            }
            Part::Reference(reference) => {
                let value = reference.resolve(variables)?;
                remaining.take_value(&value)?;
                TextPart::Value {
                    source: reference.source().to_owned(),
                    value,
                }
            }
        })
    });
    parts.collect()
}

/// Appends the value of a reference to a text: a string unchanged, nothing for null, and any other value as JSON.
fn push(text: &mut String, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(string) => text.push_str(string),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            text.push_str(&value.to_string());
        }
    }
}

pub(super) fn each_variable(parts: &[Part], visit: &mut dyn FnMut(&str)) {
    for part in parts {
        match part {
            Part::Text(_) => {}
            Part::Reference(reference) => visit(reference.variable()),
        }
    }
}
