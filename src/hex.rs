//! Bytes and SHA-256 digests as hexadecimal digits.

use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 digest of a list of strings, as hexadecimal digits. Each string is hashed with its length, so different
/// lists have different digests.
pub(crate) fn hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// Returns the bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{hash, hex};

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn lists_with_equal_text_in_other_parts_have_different_digests() {
        let digests = [hash(&["ab", ""]), hash(&["a", "b"]), hash(&["ab"])];

        assert_eq!(hash(&["a", "b"]), digests[1]);
        assert_ne!(digests[0], digests[1]);
        assert_ne!(digests[0], digests[2]);
        assert_eq!(digests[0].len(), 64);
    }
}
