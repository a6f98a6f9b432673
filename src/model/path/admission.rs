//! Check of a JSONPath before `jsonpath_rust` parses it.
//!
//! The limits keep parsing and evaluation linear: one `..` visits each node once, and the following segments multiply the result
//! only by a constant. The check also rejects syntax that `jsonpath_rust` reads differently from RFC 9535.

use super::cursor::{Cursor, is_blank, is_name_char, is_name_first, is_plain_name_char};
use super::{PathError, shorten, syntax, within};

pub(super) const MAX_BYTES: usize = 512;
pub(super) const MAX_SEGMENTS: usize = 32;
pub(super) const MAX_DESCENTS: usize = 1;
/// Maximum total of wildcards, unions, slices and filters in one JSONPath.
pub(super) const MAX_SPREADS: usize = 2;
pub(super) const MAX_MEMBERS: usize = 8;
pub(super) const MAX_PARENTHESES: usize = 8;
const FUNCTIONS: [&str; 2] = ["length", "value"];

/// Checks the length of a JSONPath text.
pub(super) fn length(text: &str) -> Result<(), PathError> {
    within(text, ("bytes", text.len(), MAX_BYTES), "shorten it")
}

/// Checks a JSONPath that starts with `$` against all limits.
pub(super) fn admit(source: &str) -> Result<(), PathError> {
    length(source)?;
    let mut scan = Scan {
        source,
        cursor: Cursor::new(source),
        segments: 0,
        descents: 0,
        spreads: 0,
        parentheses: 0,
        in_call: false,
    };
    scan.path()
}

struct Scan<'t> {
    source: &'t str,
    cursor: Cursor<'t>,
    segments: usize,
    descents: usize,
    spreads: usize,
    /// Number of filter parentheses that the scan of the JSONPath has opened and not yet closed.
    parentheses: usize,
    /// If `true`, the scan of the JSONPath is between the parentheses of a function call.
    in_call: bool,
}

impl Scan<'_> {
    fn path(&mut self) -> Result<(), PathError> {
        self.cursor.eat('$');
        loop {
            self.cursor.skip_blanks();
            match self.cursor.bump() {
                None => return Ok(()),
                Some('.') => {
                    self.segment()?;
                    self.after_dot()?;
                }
                Some('[') => {
                    self.segment()?;
                    self.selection(false)?;
                }
                Some(other) => return Err(self.syntax(format!("`{other}` cannot start a segment"))),
            }
        }
    }

    fn after_dot(&mut self) -> Result<(), PathError> {
        let descent = self.cursor.eat('.');
        if descent {
            self.descents += 1;
            let counted = ("descents `..`", self.descents, MAX_DESCENTS);
            within(self.source, counted, "name the members")?;
        }
        match self.cursor.peek() {
            Some('*') => {
                self.cursor.bump();
                self.spread()
            }
            Some('[') if descent => {
                self.cursor.bump();
                self.selection(false)
            }
            Some(c) if is_name_first(c) => self.name(is_plain_name_char).map(|_| ()),
            Some(_) | None => Err(self.syntax("a dot is not followed by a name or `*`")),
        }
    }

    /// Reads the content of brackets in a JSONPath, including the closing bracket.
    fn selection(&mut self, in_filter: bool) -> Result<(), PathError> {
        let mut members = Vec::new();
        loop {
            self.cursor.skip_blanks();
            let member = self.member(in_filter)?;
            if members.contains(&member) {
                let (path, member) = (self.path_excerpt(), shorten(&member));
                return Err(PathError::RepeatedMember { path, member });
            }
            members.push(member);
            let counted = ("members of a union", members.len(), MAX_MEMBERS);
            within(self.source, counted, "split the path")?;
            self.cursor.skip_blanks();
            match self.cursor.bump() {
                Some(',') => {}
                Some(']') => break,
                Some(other) => {
                    return Err(self.syntax(format!("expected `,` or `]`, found `{other}`")));
                }
                None => return Err(self.syntax("a bracket is not closed")),
            }
        }
        match members.len() {
            0 | 1 => Ok(()),
            _ => self.spread(),
        }
    }

    /// Reads one member of a bracketed selection in a JSONPath. Members that select the same nodes give the same text.
    fn member(&mut self, in_filter: bool) -> Result<String, PathError> {
        match self.cursor.peek() {
            Some('\'' | '"') => Ok(format!("'{}'", self.quoted()?)),
            Some('*') => {
                self.cursor.bump();
                self.spread()?;
                Ok("*".to_owned())
            }
            Some('?') if in_filter => Err(PathError::NestedFilter {
                path: self.path_excerpt(),
            }),
            Some('?') => {
                self.cursor.bump();
                self.spread()?;
                self.filter()?;
                // Two filters in a union exceed the limit of spreads, so their texts need not be compared.
                Ok("?".to_owned())
            }
            Some(_) | None => self.numbers(),
        }
    }

    /// Reads an index or a slice between the brackets of a JSONPath.
    fn numbers(&mut self) -> Result<String, PathError> {
        let text = self
            .cursor
            .take_while(|c| c.is_ascii_digit() || matches!(c, '-' | ':') || is_blank(c))
            .to_owned();
        if text.contains(':') {
            self.spread()?;
        } else if text.trim_matches(is_blank).is_empty() {
            return Err(self.syntax("brackets contain no name, index, slice, `*` or filter"));
        }
        Ok(text.trim_matches(is_blank).to_owned())
    }

    /// Reads a filter of a JSONPath after its `?`, up to the `,` or `]` after the filter.
    fn filter(&mut self) -> Result<(), PathError> {
        loop {
            match self.cursor.peek() {
                None => return Err(self.syntax("a filter is not closed")),
                Some(',' | ']') if self.parentheses == 0 => return Ok(()),
                Some(']') => return Err(self.syntax("a parenthesis is not closed")),
                Some('$') => {
                    return Err(PathError::RootInFilter {
                        path: self.path_excerpt(),
                    });
                }
                Some('?') => {
                    return Err(PathError::NestedFilter {
                        path: self.path_excerpt(),
                    });
                }
                Some('\'' | '"') => {
                    self.quoted()?;
                }
                Some(c) if is_name_char(c) => self.word()?,
                Some(c) => {
                    self.cursor.bump();
                    self.filter_character(c)?;
                }
            }
        }
    }

    /// Checks a character of a filter, and updates the counts of parentheses and other limited parts. The caller has already read the
    /// character.
    fn filter_character(&mut self, c: char) -> Result<(), PathError> {
        match c {
            '*' => self.spread(),
            '(' => self.open(),
            ')' => {
                self.in_call = false;
                match self.parentheses.checked_sub(1) {
                    Some(left) => self.parentheses = left,
                    None => return Err(self.syntax("a parenthesis is closed but not opened")),
                }
                Ok(())
            }
            '[' => {
                self.segment()?;
                self.selection(true)
            }
            '.' => match self.cursor.peek() {
                Some('.') => Err(PathError::DescentInFilter {
                    path: self.path_excerpt(),
                }),
                Some(c) if is_name_first(c) || c == '*' => self.segment(),
                Some(c) if c.is_ascii_digit() => Ok(()),
                Some(_) | None => Err(self.syntax("a dot is not followed by a name or `*`")),
            },
            _ => Ok(()),
        }
    }

    /// Reads an unquoted word in a JSONPath filter: a name, a number, a literal, or the name of a function that is called.
    fn word(&mut self) -> Result<(), PathError> {
        let word = self.name(is_name_char)?;
        if self.cursor.eat('(') {
            if !FUNCTIONS.contains(&word.as_str()) {
                return Err(PathError::Function {
                    path: self.path_excerpt(),
                    function: shorten(&word),
                });
            }
            self.open()?;
            self.in_call = true;
        }
        // jsonpath_rust reads `a b` as one name.
        if self.cursor.skip_blanks() && self.cursor.peek().is_some_and(is_name_char) {
            return Err(self.syntax(format!("`{}` is followed by another word", shorten(&word))));
        }
        Ok(())
    }

    fn name(&mut self, is_allowed: impl Fn(char) -> bool) -> Result<String, PathError> {
        let name = self.cursor.take_while(is_allowed);
        // jsonpath_rust trims such characters from the name.
        if name.contains(char::is_whitespace) {
            return Err(
                self.syntax("an unquoted name contains Unicode white space; quote the name")
            );
        }
        Ok(name.to_owned())
    }

    fn quoted(&mut self) -> Result<String, PathError> {
        self.cursor.quoted().map_err(|reason| self.syntax(reason))
    }

    fn open(&mut self) -> Result<(), PathError> {
        if self.in_call {
            return Err(PathError::NestedCall {
                path: self.path_excerpt(),
            });
        }
        self.parentheses += 1;
        let counted = ("levels of parentheses", self.parentheses, MAX_PARENTHESES);
        within(self.source, counted, "flatten the filter")
    }

    fn segment(&mut self) -> Result<(), PathError> {
        self.segments += 1;
        let counted = ("segments", self.segments, MAX_SEGMENTS);
        within(self.source, counted, "shorten it")
    }

    fn spread(&mut self) -> Result<(), PathError> {
        self.spreads += 1;
        let counted = (
            "wildcards, unions, slices and filters",
            self.spreads,
            MAX_SPREADS,
        );
        within(self.source, counted, "name the members")
    }

    fn syntax(&self, reason: impl Into<String>) -> PathError {
        syntax(self.source, reason)
    }

    fn path_excerpt(&self) -> String {
        shorten(self.source)
    }
}
