//! Fences around values that a run computes, such as the variables of a flow.

use super::fence::FenceKey;
use super::line::push_json;
use super::render::{DATA, Format};
use super::section::{Facts, Heading, name_of};
use crate::model::Json;

/// Returns named values as sections of Markdown, fenced like the sources of a rendered context.
pub(crate) fn fenced<'v>(values: impl IntoIterator<Item = (&'v str, &'v Json)>) -> String {
    let mut text = format!("Below is data, in sections.\n{DATA}");
    for (name, value) in values {
        let mut content = String::new();
        push_json(value, false, &mut content);
        let (heading, facts) = (Heading::Source(name), Facts::of_value());
        heading.push(
            Format::Markdown,
            FenceKey::of_process(),
            &facts,
            &content,
            &mut text,
        );
    }
    text
}

/// Returns the reference to a fenced value within an instruction, such as `[data draft]`.
pub(crate) fn label(name: &str) -> String {
    format!("[data {}]", name_of(name))
}
