//! Conversion of data and names to single lines, so that no breadcrumb can start or end a line of a rendered text.

use crate::model::Json;
use serde_json::Value;

/// Placeholder for JSON that nests too deeply to be printed.
const TOO_DEEP: &str = "\"(nests too deeply to be shown)\"";

/// Returns `true` for characters that some readers treat as a line end, that control a terminal, or that are invisible to people
/// but not to a model. The control characters are U+0000 to U+001F and U+007F to U+009F.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Appends a character as a JSON escape sequence, for example `\u003c`.
fn push_escaped(c: char, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

/// Appends JSON on one line, without whitespace between tokens. In markup, `<`, `>` and `&`, which occur only in strings, are
/// escaped. The first character is therefore one of `{["-tfn` or a digit.
pub(super) fn push_json(json: &Json, in_markup: bool, out: &mut String) {
    if json.size() == usize::MAX {
        return out.push_str(TOO_DEEP);
    }
    let is_escaped = |c| needs_escape(c) || (in_markup && matches!(c, '<' | '>' | '&'));
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

/// Returns `true` if a name never needs quotes in a rendered context: 1 to 128 characters of `A-Za-z0-9._:-`.
pub(super) fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns a string as a JSON string on one line, for a heading or a note in a rendered context.
pub(super) fn quoted(text: &str) -> String {
    let mut line = String::with_capacity(text.len() + 2);
    push_json(&Value::from(text).into(), false, &mut line);
    line
}

/// Returns a string on one line, escaped for an XML attribute or for the text between XML tags.
pub(super) fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => line.push_str("&amp;"),
            '<' => line.push_str("&lt;"),
            '>' => line.push_str("&gt;"),
            '"' => line.push_str("&quot;"),
            c if needs_escape(c) => line.push_str(&format!("&#x{:x};", u32::from(c))),
            c => line.push(c),
        }
    }
    line
}
