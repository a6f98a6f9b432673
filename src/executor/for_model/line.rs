//! Data and names on one line each: nothing that came from elsewhere begins or ends a line of a rendered text.

use crate::model::Json;
use serde_json::Value;

/// Stands in for JSON that cannot be printed.
const TOO_DEEP: &str = "\"(nests too deeply to be shown)\"";

/// What ends a line for some reader, has a meaning of its own in a terminal, or is not seen by people where a model reads
/// it. U+0000 to U+001F and U+007F to U+009F are controls.
fn is_unruly(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Appends a character as JSON escapes it.
fn push_escaped(c: char, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

/// Appends JSON without blanks between its tokens and without line breaks; in markup also without `<`, `>` and `&`, which
/// occur in strings only. It therefore begins with one of `{["-tfn` or a digit.
pub(super) fn push_json(json: &Json, in_markup: bool, out: &mut String) {
    if json.size() == usize::MAX {
        return out.push_str(TOO_DEEP);
    }
    let is_escaped = |c| is_unruly(c) || (in_markup && matches!(c, '<' | '>' | '&'));
    let (mut in_string, mut after_backslash) = (false, false);
    for c in json.to_string().chars() {
        match c {
            ' ' | '\t' | '\n' | '\r' if !in_string => {}
            c if is_escaped(c) => push_escaped(c, out),
            c => out.push(c),
        }
        in_string ^= c == '"' && !after_backslash;
        after_backslash = c == '\\' && !after_backslash;
    }
}

/// Whether a name needs no quotes anywhere: 1 to 128 of `A-Za-z0-9._:-`.
pub(super) fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(is_plain)
}

/// A text as a JSON string on one line.
pub(super) fn quoted(text: &str) -> String {
    let mut line = String::with_capacity(text.len() + 2);
    push_json(&Value::from(text).into(), false, &mut line);
    line
}

/// A text as it may stand in an attribute or between tags, on one line.
pub(super) fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => line.push_str("&amp;"),
            '<' => line.push_str("&lt;"),
            '>' => line.push_str("&gt;"),
            '"' => line.push_str("&quot;"),
            c if is_unruly(c) => line.push_str(&format!("&#x{:x};", u32::from(c))),
            c => line.push(c),
        }
    }
    line
}
