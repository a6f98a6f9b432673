//! Finding the values at a few paths in a JSON text, in one pass that also vouches for the rest.

use super::paths::Paths;
use super::slot::Slot;
use crate::model::json_check::{self, MAX_DEPTH};

/// The longest number, and the most digits of an exponent, that are certain to be in range.
const SURE_NUMBER: usize = 100;
const SURE_EXPONENT: usize = 2;

/// What a text has at the paths in use, ordered by the number of the path.
///
/// The text is JSON as far as its syntax goes. `None` where only a parser can tell: what no value may be able to
/// hold (large numbers, surrogates that are no pair, too many levels) and a key that counts and is there twice.
pub(super) fn scan<'e>(text: &'e str, paths: &Paths) -> Option<Vec<Slot<'e>>> {
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
    found.sort_by_key(Slot::path);
    let is_repeated = |pair: &[Slot<'_>]| match pair {
        [one, other] => one.path() == other.path(),
        _ => false,
    };
    if found.windows(2).any(is_repeated) {
        return None;
    }
    found.retain(|slot| paths.is_used(slot.path()));
    Some(found)
}

struct Scanner<'e, 'p> {
    text: &'e str,
    at: usize,
    depth: usize,
    paths: &'p Paths,
    /// Also what is on the way to the paths in use, so that a key there twice is noticed.
    found: Vec<Slot<'e>>,
}

impl Scanner<'_, '_> {
    /// Reads the value at a path.
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
                self.found.push(Slot::owned(path, item.clone()));
            });
        }
        self.found.push(Slot::text(path, text));
        Some(())
    }

    /// Reads an object with fields that count. Recursion ends with the longest path.
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

    /// Goes past one value. Every turn takes at least one byte.
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

/// The end of the string at a place, and whether it has escapes.
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

/// The end of the number at a place, if it is one of usual size.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'.');
    let mut length = 1 + run(bytes, at + 1, is_part);
    if let Some(b'e' | b'E') = bytes.get(at + length) {
        length += 1;
        if let Some(b'+' | b'-') = bytes.get(at + length) {
            length += 1;
        }
        let digits = run(bytes, at + length, u8::is_ascii_digit);
        if digits > SURE_EXPONENT {
            return None;
        }
        length += digits;
    }
    (length <= SURE_NUMBER).then_some(at + length)
}

/// How many bytes in a row are of a kind.
fn run(bytes: &[u8], from: usize, is_of_kind: impl Fn(&u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.iter().take_while(|byte| is_of_kind(byte)).count()
}

/// How many bytes there are before the next quote or backslash, looking at eight at a time.
fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xFF;
    // The lowest bit set marks the first byte that is equal.
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

/// The length of the escape at the start, or of the pair of them that makes a character.
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
