//! What must not be printed: the token of a session, and what the environment of its program was given.

use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt::Write as _;
use uuid::Uuid;

/// What a program shows to be let in. It has no `Debug`, so that nothing that holds it can print it.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// A token of 244 random bits from the operating system, as 64 hexadecimal digits.
    pub(super) fn new() -> Self {
        let mut hash = Sha256::new();
        hash.update(Uuid::new_v4());
        hash.update(Uuid::new_v4());
        let mut text = String::new();
        for byte in hash.finalize() {
            // Writing to a text cannot fail.
            write!(text, "{byte:02x}").ok();
        }
        Self(text)
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether this is the token. It takes as long wherever the first difference is.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differences = own.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
        own.len() == given.len() && std::hint::black_box(differences) == 0
    }
}

/// Texts that are taken out of whatever a program prints.
pub(super) struct Secrets(Vec<String>);

/// Values that are shorter are no secrets, and would be found in the middle of words.
const MIN_BYTES: usize = 8;

impl Secrets {
    /// Values of several lines are kept line by line, as they are printed.
    pub(super) fn new<'a>(values: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        let mut secrets = Vec::new();
        for value in values {
            let lines = value.lines().map(str::trim);
            secrets.extend(
                lines
                    .filter(|line| line.len() >= MIN_BYTES)
                    .map(str::to_owned),
            );
        }
        // One that is part of another would leave the rest of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    pub(super) fn hide(&self, text: &str) -> String {
        let hide = |text: String, secret: &String| text.replace(secret, "[secret]");
        self.0.iter().fold(text.to_owned(), hide)
    }

    /// The bytes of the longest one.
    pub(super) fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
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
        assert!(one.is(text));
        assert!(!one.is(other.reveal().as_bytes()));
        assert!(!one.is(&text[..63]));
        assert!(!one.is(&[text, b"0"].concat()));
        assert!(!one.is(b""));
    }

    #[test]
    fn every_secret_is_taken_out_the_longest_first() {
        let values = [
            "sk-12345",
            "sk-12345-longer",
            "two lines\nof a key  ",
            "short",
        ];
        let secrets = Secrets::new(values.map(Cow::from));

        let text = secrets.hide("sk-12345-longer sk-12345 two lines of a key short");

        assert_eq!(text, "[secret] [secret] [secret] [secret] short");
    }
}
