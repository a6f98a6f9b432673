//! Reader of a JSONPath text from left to right.

/// The unread rest of a JSONPath text.
pub(super) struct Cursor<'t> {
    rest: &'t str,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Cursor { rest: text }
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let found = chars.next();
        self.rest = chars.as_str();
        found
    }

    pub(super) fn eat(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.bump();
        }
        found
    }

    pub(super) fn take_while(&mut self, is_matching: impl Fn(char) -> bool) -> &'t str {
        let end = self
            .rest
            .find(|c| !is_matching(c))
            .unwrap_or(self.rest.len());
        let (matching, rest) = self.rest.split_at(end);
        self.rest = rest;
        matching
    }

    /// Skips blanks of a JSONPath text. Returns `true` if there were any.
    pub(super) fn skip_blanks(&mut self) -> bool {
        !self.take_while(is_blank).is_empty()
    }

    /// Reads a quoted string of a JSONPath and decodes the escapes of RFC 9535. The error is the reason.
    pub(super) fn quoted(&mut self) -> Result<String, &'static str> {
        let quote = self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                None => return Err("a quoted name is not closed"),
                found if found == quote => return Ok(text),
                Some('\\') => text.push(self.escaped(quote)?),
                Some('\0'..='\u{1f}') => {
                    return Err("a quoted name contains an unescaped control character");
                }
                Some(other) => text.push(other),
            }
        }
    }

    fn escaped(&mut self, quote: Option<char>) -> Result<char, &'static str> {
        match self.bump() {
            Some('b') => Ok('\u{8}'),
            Some('t') => Ok('\t'),
            Some('n') => Ok('\n'),
            Some('f') => Ok('\u{c}'),
            Some('r') => Ok('\r'),
            Some(same @ ('/' | '\\')) => Ok(same),
            Some(same) if Some(same) == quote => Ok(same),
            Some('u') => self
                .unicode()
                .ok_or("a \\u escape does not encode a character"),
            Some(_) | None => Err("an escape is not defined in RFC 9535"),
        }
    }

    /// Reads the hexadecimal digits after `\u` in a quoted string, and the second half of a surrogate pair if there is one.
    fn unicode(&mut self) -> Option<char> {
        let unit = self.hex4()?;
        if !(0xD800..=0xDBFF).contains(&unit) {
            // `from_u32` returns `None` for a lone low surrogate.
            return char::from_u32(unit);
        }
        if !(self.eat('\\') && self.eat('u')) {
            return None;
        }
        let low = self.hex4().filter(|low| (0xDC00..=0xDFFF).contains(low))?;
        char::from_u32(0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
    }

    fn hex4(&mut self) -> Option<u32> {
        (0..4).try_fold(0, |code, _| Some(code * 16 + self.bump()?.to_digit(16)?))
    }
}

/// Returns `true` for a blank character of RFC 9535 (JSONPath).
pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Returns `true` if an unquoted name in a JSONPath can start with the character.
pub(super) fn is_name_first(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

/// Returns `true` if an unquoted name in a JSONPath can contain the character after the first one.
pub(super) fn is_name_char(c: char) -> bool {
    is_name_first(c) || c.is_ascii_digit()
}

/// Returns `true` if an unquoted name in a plain JSONPath (only names and indexes) can contain the character after the first one. `-` is
/// allowed.
pub(super) fn is_plain_name_char(c: char) -> bool {
    is_name_char(c) || c == '-'
}
