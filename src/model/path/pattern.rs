//! Patterns: the subset of JSONPath that can be matched step by step from the root of a document.

use super::admission::{MAX_BYTES, MAX_SEGMENTS};
use super::cursor::{Cursor, is_blank};
use super::normalise;
use super::plain::{self, Step};

/// Error message for a JSONPath that is not a pattern.
const NOT_A_PATTERN: &str =
    "only names, [n], [*] and ..name are allowed, no filter, slice, union or function";

/// One segment of a pattern, the subset of JSONPath that is matched step by step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum PatternStep {
    /// Selects the member with this name of a JSON object.
    Name(String),
    /// Selects all members with this name in JSON objects at any depth.
    Anywhere(String),
    /// Selects the list item at an index. A negative index counts from the end.
    Index(i64),
    /// Selects every object member or list item.
    Each,
}

/// Parses a pattern (a JSONPath that is matched step by step) of at most 32 steps. The error is the reason for which the text is
/// not a pattern.
pub(crate) fn pattern(text: &str) -> Result<Vec<PatternStep>, &'static str> {
    let text = text.trim_matches(is_blank);
    if text.is_empty() {
        return Err("the path is empty");
    }
    if text.len() > MAX_BYTES {
        return Err("the path has more than 512 bytes");
    }
    let source = normalise(text).map_err(|_| NOT_A_PATTERN)?;
    let mut cursor = Cursor::new(&source);
    let mut steps = Vec::new();
    cursor.eat('$');
    loop {
        cursor.skip_blanks();
        let step = match cursor.bump() {
            None => break,
            Some('.') => dotted(&mut cursor)?,
            Some('[') => bracketed(&mut cursor)?,
            Some(_) => return Err(NOT_A_PATTERN),
        };
        steps.push(step);
        if steps.len() > MAX_SEGMENTS {
            return Err("the path has more than 32 steps");
        }
    }
    match steps.is_empty() {
        true => Err("the path selects the whole context; name a member"),
        false => Ok(steps),
    }
}

fn dotted(cursor: &mut Cursor<'_>) -> Result<PatternStep, &'static str> {
    if cursor.eat('.') {
        let step = match cursor.eat('[') {
            true => plain::bracketed(cursor)?,
            false => unquoted(cursor)?,
        };
        return match named(step)? {
            PatternStep::Name(name) => Ok(PatternStep::Anywhere(name)),
            PatternStep::Anywhere(_) | PatternStep::Index(_) | PatternStep::Each => {
                Err(NOT_A_PATTERN)
            }
        };
    }
    if cursor.eat('*') {
        return Ok(PatternStep::Each);
    }
    named(unquoted(cursor)?)
}

/// Reads the unquoted name of an object member in a JSONPath pattern. A name with white space or an invisible character is
/// rejected: it is probably a mistake, and as an excluded path it would exclude nothing.
fn unquoted(cursor: &mut Cursor<'_>) -> Result<Option<Step>, &'static str> {
    let step = plain::shorthand(cursor);
    let is_invisible = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}'
            )
    };
    match &step {
        Some(Step::Name(name)) if name.contains(is_invisible) => {
            Err("an unquoted name contains white space or an invisible character; write ['name']")
        }
        Some(Step::Name(_) | Step::Index(_)) | None => Ok(step),
    }
}

fn bracketed(cursor: &mut Cursor<'_>) -> Result<PatternStep, &'static str> {
    cursor.skip_blanks();
    if cursor.eat('*') {
        cursor.skip_blanks();
        return cursor
            .eat(']')
            .then_some(PatternStep::Each)
            .ok_or(NOT_A_PATTERN);
    }
    named(plain::bracketed(cursor)?)
}

fn named(step: Option<Step>) -> Result<PatternStep, &'static str> {
    match step {
        Some(Step::Name(name)) => Ok(PatternStep::Name(name)),
        Some(Step::Index(index)) => Ok(PatternStep::Index(index)),
        None => Err(NOT_A_PATTERN),
    }
}
