//! Plain JSONPaths, which have only names and indexes. They are parsed and followed without `jsonpath_rust`.

use serde_json::Value;

use super::cursor::{Cursor, is_name_first, is_plain_name_char};
use super::{PathError, syntax};

/// Maximum index in a JSONPath by RFC 9535: the largest integer up to which a double is exact.
const MAX_INDEX: i64 = (1 << 53) - 1;

/// One segment of a plain JSONPath: a name or an index.
pub(in crate::model) enum Step {
    Name(String),
    Index(i64),
}

/// Parses a plain JSONPath (only names and indexes) that starts with `$`, and returns `None` for any other JSONPath.
pub(super) fn parse(source: &str) -> Result<Option<Vec<Step>>, PathError> {
    let mut cursor = Cursor::new(source);
    let mut steps = Vec::new();
    if !cursor.eat('$') {
        return Ok(None);
    }
    loop {
        cursor.skip_blanks();
        let step = match cursor.bump() {
            None => return Ok(Some(steps)),
            Some('.') => shorthand(&mut cursor),
            Some('[') => bracketed(&mut cursor).map_err(|reason| syntax(source, reason))?,
            Some(_) => None,
        };
        match step {
            Some(step) => steps.push(step),
            None => return Ok(None),
        }
    }
}

pub(super) fn shorthand(cursor: &mut Cursor<'_>) -> Option<Step> {
    cursor.peek().filter(|c| is_name_first(*c))?;
    Some(Step::Name(cursor.take_while(is_plain_name_char).to_owned()))
}

pub(super) fn bracketed(cursor: &mut Cursor<'_>) -> Result<Option<Step>, &'static str> {
    cursor.skip_blanks();
    let step = match cursor.peek() {
        Some('\'' | '"') => Step::Name(cursor.quoted()?),
        Some('-' | '0'..='9') => {
            let digits = cursor.take_while(|c| c == '-' || c.is_ascii_digit());
            Step::Index(index(digits).ok_or("an index is not an integer of at most 2^53 - 1")?)
        }
        Some(_) | None => return Ok(None),
    };
    cursor.skip_blanks();
    Ok(cursor.eat(']').then_some(step))
}

fn index(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    // RFC 9535 does not allow `-0` and leading zeros.
    if digits.starts_with('0') && text != "0" {
        return None;
    }
    text.parse()
        .ok()
        .filter(|index| (-MAX_INDEX..=MAX_INDEX).contains(index))
}

/// Returns the node at the plain path `steps` in `value`, or `None` if `value` has no node there.
pub(super) fn walk<'v>(steps: &[Step], value: &'v Value) -> Option<&'v Value> {
    steps.iter().try_fold(value, |node, step| match step {
        Step::Name(name) => node.as_object()?.get(name),
        Step::Index(index) => item(node, *index),
    })
}

/// Returns the item of an array at an index, or `None` if the value is not an array or has no item at the index. A negative index
/// counts from the end.
pub(in crate::model) fn item(value: &Value, index: i64) -> Option<&Value> {
    let items = value.as_array()?;
    let distance = usize::try_from(index.unsigned_abs()).ok()?;
    match index < 0 {
        true => items.get(items.len().checked_sub(distance)?),
        false => items.get(distance),
    }
}
