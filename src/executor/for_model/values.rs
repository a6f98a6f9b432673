//! Rendering of values that a run computes, such as the variables of a flow, as data between marks that delimit the data.

use super::fence::FenceKey;
use super::format::{DATA, Format};
use super::line::push_json;
#[cfg(feature = "workflows")]
use super::section::name_of;
use super::section::{BEFORE_FIRST, BETWEEN, Facts, Heading, LIST_CLOSE, LIST_OPEN};
use crate::model::Json;

/// Returns named values as Markdown sections, fenced like the sources of a rendered context.
pub(crate) fn fenced<'v>(values: impl IntoIterator<Item = (&'v str, &'v Json)>) -> String {
    let mut text = introduction();
    for (name, value) in values {
        push_section(name, 1, &line(value), &mut text);
    }
    text
}

/// Returns a JSON value as one line of text for a fenced section of a prompt.
pub(crate) fn line(value: &Json) -> String {
    let mut line = String::new();
    push_json(value, false, &mut line);
    line
}

/// Returns `lines` as one Markdown section with a fence, like a context source that is a list. [`line`](fn@line) creates the lines.
pub(crate) fn fenced_lines(name: &str, lines: &[String]) -> String {
    let mut text = introduction();
    let list = lines.join(BETWEEN);
    let content = format!("{LIST_OPEN}{BEFORE_FIRST}{list}{LIST_CLOSE}");
    push_section(name, lines.len(), &content, &mut text);
    text
}

fn introduction() -> String {
    format!("Below is data, in sections.\n{DATA}")
}

fn push_section(name: &str, items: usize, content: &str, text: &mut String) {
    let (heading, facts) = (Heading::Source(name), Facts::of_values(items));
    heading.push(
        Format::Markdown,
        FenceKey::of_process(),
        &facts,
        content,
        text,
    );
}

/// Returns the reference, such as `[data draft]`, by which an instruction to a model mentions a value that is rendered as data.
#[cfg(feature = "workflows")]
pub(crate) fn label(name: &str) -> String {
    format!("[data {}]", name_of(name))
}
