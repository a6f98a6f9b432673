//! Values that must not be printed: the token of a session with an agent's program, and the environment variables that are set for the
//! program.

use crate::hex::hex;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::ops::Range;
use uuid::Uuid;

/// The token with which an agent's program authenticates to the HTTP server for its tool calls. The type has no `Debug`, so that no type
/// that contains the token can print it.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// Creates a token with 244 random bits from the operating system, as 64 hexadecimal digits.
    pub(super) fn new() -> Self {
        let mut hash = Sha256::new();
        hash.update(Uuid::new_v4());
        hash.update(Uuid::new_v4());
        Self(hex(&hash.finalize()))
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns `true` if `bytes` is the token of the agent's program. The comparison takes constant time.
    pub(super) fn matches(&self, bytes: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differences = own.iter().zip(bytes).fold(0, |sum, (a, b)| sum | (a ^ b));
        own.len() == bytes.len() && std::hint::black_box(differences) == 0
    }
}

/// The text that replaces a secret in the output of an agent's program.
const REPLACEMENT: &str = "[secret]";

/// Strings that are replaced by `[secret]` in everything that the agent's program prints.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// Creates the list of secrets from `values`, without blank values. Short values count too, because each can be a password. Values of
    /// several lines are stored line by line, because output is checked line by line.
    pub(super) fn new<'a>(values: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        let mut secrets = Vec::new();
        for value in values {
            let lines = value.lines().map(str::trim);
            secrets.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
        }
        secrets.sort_unstable();
        secrets.dedup();
        Self(secrets)
    }

    /// Returns text that an agent's program printed, with each secret replaced by `[secret]`. All secrets are searched in the
    /// original text, because a short secret could otherwise match in the replacement of another.
    pub(super) fn redact(&self, text: &str) -> String {
        let mut ranges = self.secret_ranges(text);
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut redacted, mut end) = (String::new(), 0);
        for range in ranges {
            if range.start > end || redacted.is_empty() {
                redacted.push_str(text.get(end..range.start).unwrap_or_default());
                redacted.push_str(REPLACEMENT);
            }
            end = end.max(range.end);
        }
        redacted.push_str(text.get(end..).unwrap_or_default());
        redacted
    }

    /// Returns the byte ranges of all secrets in text that an agent's program printed. The ranges can overlap.
    fn secret_ranges(&self, text: &str) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        for secret in &self.0 {
            let mut from = 0;
            while let Some(at) = text.get(from..).and_then(|rest| rest.find(&**secret)) {
                let start = from + at;
                ranges.push(start..start + secret.len());
                // The next occurrence can overlap this one.
                from = start + secret.chars().next().map_or(1, char::len_utf8);
            }
        }
        ranges
    }

    /// Returns the length of the longest secret in bytes.
    pub(super) fn longest(&self) -> usize {
        self.0.iter().map(String::len).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_new_and_equal_only_to_itself() {
        let (one, other) = (Token::new(), Token::new());
        let text = one.reveal().as_bytes();

        assert_eq!(text.len(), 64);
        assert!(one.matches(text));
        assert!(!one.matches(other.reveal().as_bytes()));
        assert!(!one.matches(&text[..63]));
        assert!(!one.matches(&[text, b"0"].concat()));
        assert!(!one.matches(b""));
    }

    #[test]
    fn every_secret_is_removed_however_short_it_is() {
        let values = [
            "sk-12345",
            "sk-12345-longer",
            "two lines\nof a key  ",
            "short",
            "7",
            "",
            " \n",
        ];
        let secrets = Secrets::new(values.map(Cow::from));

        let text = secrets.redact("sk-12345-longer sk-12345 two lines of a key short 7 x");

        assert_eq!(
            text,
            "[secret] [secret] [secret] [secret] [secret] [secret] x"
        );
        assert_eq!(secrets.redact(""), "");
        assert_eq!(secrets.redact("7"), "[secret]");
        assert_eq!(secrets.longest(), "sk-12345-longer".len());
    }

    #[test]
    fn overlapping_secrets_leave_nothing_of_each_other() {
        let secrets = Secrets::new(["abcd", "cdefgh", "ghg"].map(Cow::from));

        let text = secrets.redact("x abcdefgh y ghghg z");

        assert_eq!(text, "x [secret] y [secret] z");
    }

    #[test]
    fn a_replacement_is_not_searched_for_secrets() {
        let letters = "secrt[]".chars().map(|letter| letter.to_string().into());
        let secrets = Secrets::new(letters);

        let text = secrets.redact(&"secret ".repeat(100));

        assert_eq!(text, "[secret] ".repeat(100));
    }
}
