//! Scanner that reads a JSON text once, returns the values at a few paths, and checks that a parser would accept the whole text.

use super::path_value::PathValue;
use super::paths::Paths;
use crate::model::json_check::{self, MAX_DEPTH};

/// Maximum length in bytes of a JSON number that the scanner accepts without a parser, because the number is certainly in range.
const PARSEABLE_NUMBER_BYTES: usize = 100;
/// Maximum number of exponent digits of a JSON number that the scanner accepts without a parser, because the number is certainly
/// in range.
const PARSEABLE_EXPONENT_DIGITS: usize = 2;

/// Returns the values of a JSON text at the paths that the indexed conditions use, sorted by path number.
///
/// The syntax of the text must be valid JSON. Returns `None` if only a parser can decide: for a text that a `Value` may not be
/// able to hold (long numbers, lone surrogates, too many levels), and for a duplicate key on the path of an indexed condition.
pub(super) fn scan<'e>(text: &'e str, paths: &Paths) -> Option<Vec<PathValue<'e>>> {
    let mut scanner = Scanner {
        text,
        at: 0,
        depth: 0,
        paths,
        found: Vec::new(),
    };
    scanner.value(Paths::ROOT)?;
    scanner.blanks();
    if scanner.at != text.len() {
        return None;
    }
    let mut found = scanner.found;
    found.sort_by_key(PathValue::path);
    let is_repeated = |pair: &[PathValue<'_>]| match pair {
        [one, other] => one.path() == other.path(),
        _ => false,
    };
    if found.windows(2).any(is_repeated) {
        return None;
    }
    found.retain(|value| paths.is_used(value.path()));
    Some(found)
}

struct Scanner<'e, 'p> {
    text: &'e str,
    at: usize,
    depth: usize,
    paths: &'p Paths,
    /// The values of the event's context that the scanner has found so far, at the JSONPaths of indexed conditions and at
    /// prefixes of these paths. The prefixes are needed to detect duplicate keys.
    found: Vec<PathValue<'e>>,
}

impl Scanner<'_, '_> {
    /// Reads the JSON value that comes next in the scanned text. `path` is the number of the value's JSONPath in the tree.
    fn value(&mut self, path: usize) -> Option<()> {
        self.blanks();
        let start = self.at;
        let first = self.peek()?;
        if first == b'{' && self.paths.has_names(path) {
            self.object(path)?;
        } else {
            self.skip()?;
        }
        let text = self.text.get(start..self.at)?;
        if first == b'[' && self.paths.has_indexes(path) {
            let items = json_check::parse(text).ok()?;
            self.paths.walk_items(path, &items, &mut |path, item| {
                self.found.push(PathValue::owned(path, item.clone()));
            });
        }
        self.found.push(PathValue::text(path, text));
        Some(())
    }

    /// Reads a JSON object that can contain values at the JSONPaths of indexed conditions. The longest path limits the recursion.
    fn object(&mut self, path: usize) -> Option<()> {
        self.open()?;
        loop {
            match self.peek()? {
                b'"' => {
                    let start = self.at;
                    let (end, escaped) = string(self.text.as_bytes(), start)?;
                    self.at = end;
                    let child = if escaped {
                        let key: String =
                            serde_json::from_str(self.text.get(start..self.at)?).ok()?;
                        self.paths.name(path, &key)
                    } else {
                        let key = self.text.get(start + 1..self.at.checked_sub(1)?)?;
                        self.paths.name(path, key)
                    };
                    self.blanks();
                    if self.peek()? != b':' {
                        return None;
                    }
                    self.at += 1;
                    match child {
                        Some(child) => self.value(child)?,
                        None => self.skip()?,
                    }
                }
                b'}' => return self.close(),
                b',' | b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                _ => return None,
            }
        }
    }

    /// Skips one JSON value. Each iteration consumes at least one byte.
    fn skip(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let (mut at, mut depth) = (self.at, self.depth);
        loop {
            match *bytes.get(at)? {
                b'"' => at = string(bytes, at)?.0,
                b'{' | b'[' => {
                    at += 1;
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return None;
                    }
                }
                b'}' | b']' => {
                    at += 1;
                    depth = depth.checked_sub(1)?;
                }
                b'-' | b'0'..=b'9' => at = number(bytes, at)?,
                b'a'..=b'z' => at += 1 + run(bytes, at + 1, u8::is_ascii_lowercase),
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => {
                    at += 1;
                    continue;
                }
                _ => return None,
            }
            if depth <= self.depth {
                (self.at, self.depth) = (at, depth);
                return Some(());
            }
        }
    }

    fn open(&mut self) -> Option<()> {
        self.at += 1;
        self.depth += 1;
        (self.depth <= MAX_DEPTH).then_some(())
    }

    fn close(&mut self) -> Option<()> {
        self.at += 1;
        self.depth = self.depth.checked_sub(1)?;
        Some(())
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

/// Returns the byte offset after the JSON string that starts at byte offset `at`, and `true` if the string has escapes.
fn string(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let mut rest = bytes.get(at + 1..)?;
    let mut escaped = false;
    loop {
        rest = rest.get(plain_run(rest)..)?;
        if let [b'"', after @ ..] = rest {
            return Some((bytes.len() - after.len(), escaped));
        }
        escaped = true;
        rest = rest.get(escape_length(rest)?..)?;
    }
}

/// Returns the byte offset after the JSON number that starts at byte offset `at`, or `None` if the number may be out of range.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'.');
    let mut length = 1 + run(bytes, at + 1, is_part);
    if let Some(b'e' | b'E') = bytes.get(at + length) {
        length += 1;
        if let Some(b'+' | b'-') = bytes.get(at + length) {
            length += 1;
        }
        let digits = run(bytes, at + length, u8::is_ascii_digit);
        if digits > PARSEABLE_EXPONENT_DIGITS {
            return None;
        }
        length += digits;
    }
    (length <= PARSEABLE_NUMBER_BYTES).then_some(at + length)
}

/// Returns the number of consecutive bytes from the byte offset `from` for which `is_of_kind` returns `true`.
fn run(bytes: &[u8], from: usize, is_of_kind: impl Fn(&u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.iter().take_while(|byte| is_of_kind(byte)).count()
}

/// Returns the number of bytes of a JSON string before the next quote or backslash. Compares eight bytes at a time.
fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xFF;
    // The lowest set bit marks the first equal byte.
    let equal = |word: u64, byte: u8| {
        let zero_where_equal = word ^ (ONES * u64::from(byte));
        zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & (ONES << 7)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let hits = equal(word, b'"') | equal(word, b'\\');
        if hits != 0 {
            return index * 8 + hits.trailing_zeros() as usize / 8;
        }
    }
    let tail = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    bytes.len() - rest.len() + tail.unwrap_or(rest.len())
}

/// Returns the length of the JSON escape at the start of `bytes`. A surrogate pair counts with both escapes. Returns `None` for a lone
/// surrogate.
fn escape_length(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [
            b'\\',
            b'u',
            b'd' | b'D',
            b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B',
            _,
            _,
            b'\\',
            b'u',
            b'd' | b'D',
            b'c'..=b'f' | b'C'..=b'F',
            _,
            _,
            ..,
        ] => Some(12),
        [
            b'\\',
            b'u',
            b'd' | b'D',
            b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F',
            ..,
        ] => None,
        [b'\\', b'u', _, _, _, _, ..] => Some(6),
        [b'\\', _, ..] => Some(2),
        _ => None,
    }
}
