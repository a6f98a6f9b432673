//! Generators of JSON strings for fuzz tests, from valid to broken. A JSON value could not represent most of the fragments that
//! break parsers.

use super::known::{DEPTHS, ESCAPES, INVALID, KEYS, NUMBERS, SIZES};
use super::tape::Tape;
use super::words::{NAMES, WORDS};
use std::fmt;
use std::ops::Deref;

/// Size in bytes of a fuzz test's input above which the input gets no further deeply nested part.
const LARGE: usize = 3 << 20;

/// Writes a JSON value of any type into a fuzz test's input, with names and strings that the crate's formats use.
pub(crate) fn any_json(tape: &mut Tape, out: &mut String) {
    if tape.is_bad() {
        return bad(tape, out);
    }
    match tape.below(9) {
        0 => out.push_str("null"),
        1 => out.push_str(tape.word(&["1", "0", "true", "false", "-3", "2.5", "1e2"])),
        2 | 3 => text(tape, WORDS, out),
        4 => out.push_str("{}"),
        5 => list(tape, out),
        _ => object(tape, out),
    }
}

fn list(tape: &mut Tape, out: &mut String) {
    out.push('[');
    for item in 0..tape.below(4) {
        if item > 0 {
            out.push(',');
        }
        any_json(tape, out);
    }
    out.push(']');
}

fn object(tape: &mut Tape, out: &mut String) {
    out.push('{');
    for field in 0..tape.below(4) {
        if field > 0 {
            out.push(',');
        }
        text(tape, NAMES, out);
        out.push(':');
        any_json(tape, out);
    }
    out.push('}');
}

/// Writes one of `words` as a JSON string into a fuzz test's input, sometimes with a fragment that is known to break parsers.
pub(super) fn text(tape: &mut Tape, words: &[&'static str], out: &mut String) {
    let word = *tape.pick(words);
    out.push('"');
    if tape.is_bad() {
        bad_text(tape, word, out);
    } else {
        escaped(word, out);
    }
    out.push('"');
}

/// Writes a word into a fuzz test's input as the content of a JSON string, with JSON escapes. A word has no characters that JSON
/// escapes, except quotes, backslashes and line feeds.
fn escaped(word: &'static str, out: &mut String) {
    for c in word.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

fn bad_text(tape: &mut Tape, word: &'static str, out: &mut String) {
    escaped(word, out);
    match tape.below(8) {
        0..4 => {
            let (name, piece) = *tape.pick(&ESCAPES);
            tape.note(name);
            out.push_str(piece);
        }
        4 => out.push(tape.pick(&INVALID).0),
        5 | 6 => {
            let (name, size) = size(tape);
            tape.note(name);
            let written = word.len().min(size);
            out.extend(std::iter::repeat_n('x', size - written));
        }
        _ => escaped(tape.word(&KEYS), out),
    }
    if tape.once_in(2) {
        escaped(word, out);
    }
}

/// Returns one of [`SIZES`] for a JSON string in a fuzz test's input: a size near a limit, with its name. Large sizes are rare, because
/// each takes milliseconds.
fn size(tape: &mut Tape) -> (&'static str, usize) {
    let known = if tape.once_in(12) {
        &SIZES[..]
    } else {
        &SIZES[..9]
    };
    *tape.pick(known)
}

/// Writes a fragment that is known to break parsers into a fuzz test's input, in place of a JSON value.
pub(super) fn bad(tape: &mut Tape, out: &mut String) {
    match tape.below(10) {
        0 => out.push_str("null"),
        1..4 => number(tape, out),
        4 | 5 => {
            out.push('"');
            bad_text(tape, "", out);
            out.push('"');
        }
        6..8 => special(tape, out),
        8 if out.len() < LARGE => nested(tape, out),
        _ => out.push_str(tape.word(&[
            "[]",
            "{}",
            "",
            "}",
            "\"",
            ",",
            "{\"a\":1,\"a\":2}",
            "[1,]",
            "tru",
        ])),
    }
}

fn number(tape: &mut Tape, out: &mut String) {
    let (name, text) = *tape.pick(&NUMBERS);
    tape.note(name);
    match text {
        "" => out.extend(std::iter::repeat_n('7', 400)),
        text => out.push_str(text),
    }
}

/// Writes a JSON object with one of [`KEYS`], such as `$ref`, as a key in a fuzz test's input. Libraries treat such keys specially, and
/// may parse the value, so the value is often a string with JSON.
fn special(tape: &mut Tape, out: &mut String) {
    let key = *tape.pick(&KEYS);
    tape.note(key);
    out.push_str(&format!("{{\"{key}\":"));
    match tape.below(6) {
        0 => out.push_str("\"1\""),
        1 => out.push_str("\"[[[[\""),
        2 => out.push_str("\"1e400\""),
        3 if out.len() < LARGE => {
            let (name, depth) = depth(tape);
            tape.note(name);
            out.push_str(&format!("\"{}{}\"", "[".repeat(depth), "]".repeat(depth)));
        }
        4 => out.push_str("{\"$serde_json::private::RawValue\":\"{}\"}"),
        _ => any_json(tape, out),
    }
    if tape.once_in(3) {
        out.push_str(",\"a\":1");
    }
    out.push('}');
}

/// Returns one of [`DEPTHS`] for nested JSON in a fuzz test's input: a depth, with its name. Great depths are rare, because each takes
/// milliseconds.
fn depth(tape: &mut Tape) -> (&'static str, usize) {
    let known = if tape.once_in(6) {
        &DEPTHS[..]
    } else {
        &DEPTHS[..5]
    };
    *tape.pick(known)
}

/// Writes JSON lists or objects, nested to one of the depths that are known to break parsers, into a fuzz test's input.
pub(super) fn nested(tape: &mut Tape, out: &mut String) {
    let (name, depth) = depth(tape);
    tape.note(name);
    let (open, close) = *tape.pick(&[("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]"), ("[", "")]);
    let times = depth / open.matches(['[', '{']).count();
    out.extend(std::iter::repeat_n(open, times));
    out.push_str(tape.word(&["1", "null", "\"a\"", "{}"]));
    out.extend(std::iter::repeat_n(close, times));
}

/// Bytes of a fuzz test's input, which can contain invalid UTF-8. The debug form escapes bytes that are not ASCII.
pub(crate) struct Bytes(Vec<u8>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

/// Returns a fuzz test's input as bytes, with invalid UTF-8 in place of the characters of [`INVALID`].
pub(crate) fn bytes(tape: &mut Tape, text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c| INVALID.iter().any(|(mark, _, _)| *mark == c)) {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        let mut chars = after.chars();
        let mark = chars.next();
        let invalid = INVALID.iter().find(|(known, _, _)| Some(*known) == mark);
        if let Some((_, name, bytes)) = invalid {
            tape.note(name);
            out.extend_from_slice(bytes);
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
    Bytes(out)
}
