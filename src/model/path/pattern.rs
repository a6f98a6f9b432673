//! Patterns: the part of JSONPath that can be decided step by step on the way down a document.

use super::admission::{MAX_BYTES, MAX_SEGMENTS};
use super::cursor::{Cursor, is_blank};
use super::normalise;
use super::plain::{self, Step};

/// Why a text is no pattern although it may be a path.
const ONLY: &str =
    "only names, [n], [*] and ..name can be used here, no filter, slice, union or function";

/// One segment of a pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum PatternStep {
    /// The member of this name.
    Name(String),
    /// The member of this name, at any depth below.
    Anywhere(String),
    /// The item at an index, which counts from the end if it is negative.
    Index(i64),
    /// Every member or item.
    Each,
}

/// Reads a pattern of at most 32 steps; the error says why it is none.
pub(crate) fn pattern(text: &str) -> Result<Vec<PatternStep>, &'static str> {
    let text = text.trim_matches(is_blank);
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > MAX_BYTES {
        return Err("it has more than 512 bytes");
    }
    let source = normalise(text).map_err(|_| ONLY)?;
    let mut cursor = Cursor::new(&source);
    let mut steps = Vec::new();
    cursor.eat('$');
    loop {
        cursor.skip_blanks();
        let step = match cursor.bump() {
            None => break,
            Some('.') => dotted(&mut cursor)?,
            Some('[') => bracketed(&mut cursor)?,
            Some(_) => return Err(ONLY),
        };
        steps.push(step);
        if steps.len() > MAX_SEGMENTS {
            return Err("it has more than 32 steps");
        }
    }
    match steps.is_empty() {
        true => Err("it names the whole context; name a member of it"),
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
            PatternStep::Anywhere(_) | PatternStep::Index(_) | PatternStep::Each => Err(ONLY),
        };
    }
    if cursor.eat('*') {
        return Ok(PatternStep::Each);
    }
    named(unquoted(cursor)?)
}

/// A name as it stands. One with what nobody sees is mostly a mistake, and would exclude nothing.
fn unquoted(cursor: &mut Cursor<'_>) -> Result<Option<Step>, &'static str> {
    let step = plain::shorthand(cursor);
    let is_unseen = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}'
            )
    };
    match &step {
        Some(Step::Name(name)) if name.contains(is_unseen) => {
            Err("a name holds white space or what is not seen and is not quoted, write ['name']")
        }
        Some(Step::Name(_) | Step::Index(_)) | None => Ok(step),
    }
}

fn bracketed(cursor: &mut Cursor<'_>) -> Result<PatternStep, &'static str> {
    cursor.skip_blanks();
    if cursor.eat('*') {
        cursor.skip_blanks();
        return cursor.eat(']').then_some(PatternStep::Each).ok_or(ONLY);
    }
    named(plain::bracketed(cursor)?)
}

fn named(step: Option<Step>) -> Result<PatternStep, &'static str> {
    match step {
        Some(Step::Name(name)) => Ok(PatternStep::Name(name)),
        Some(Step::Index(index)) => Ok(PatternStep::Index(index)),
        None => Err(ONLY),
    }
}
