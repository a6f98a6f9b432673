//! The token of a session with an agent's program.

use crate::hex::hex;
use sha2::{Digest, Sha256};
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
}
