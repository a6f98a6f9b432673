use crate::hex::hex;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::OnceLock;
use uuid::Uuid;

/// Secret key for the marks that delimit data in a rendered context. Without the key, the author of the data cannot forge a mark.
///
/// A mark is a hash of this key, the name of a section and the content of the section. The mark stays the same from call to call,
/// so prompt caches hit, and a writer of the content cannot predict the mark. Workers that share a prompt cache should use the
/// same key, so that they render the same bytes. [`render`](super::ModelContext::render) uses a random key for each process.
///
/// ```
/// use universal_executor::executor::FenceKey;
///
/// let fences = FenceKey::from_secret("a long random text from the configuration");
/// assert_eq!(format!("{fences:?}"), "FenceKey(..)");
/// ```
#[derive(Clone)]
pub struct FenceKey([u8; 32]);

impl FenceKey {
    /// Creates a key for the marks that delimit data in a rendered context, from 32 random bytes.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Creates a key for the marks that delimit data in a rendered context, from a secret string. Use a random string of at least
    /// 32 characters: a writer who guesses the string can forge marks.
    #[must_use]
    pub fn from_secret(secret: &str) -> Self {
        Self(digest([b"fence key", secret.as_bytes()]))
    }

    /// Returns this process's default key for the marks that delimit data in a rendered context, derived from 244 random bits.
    pub(super) fn of_process() -> &'static Self {
        static KEY: OnceLock<FenceKey> = OnceLock::new();
        KEY.get_or_init(|| {
            let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
            Self(digest([one.as_bytes(), other.as_bytes()]))
        })
    }

    /// Returns the mark that delimits a section's data in a rendered context, derived from the key and the section's kind, name
    /// and content.
    pub(super) fn mark(&self, kind: &str, name: &str, content: &str) -> String {
        let hash = digest([
            &self.0,
            kind.as_bytes(),
            name.as_bytes(),
            content.as_bytes(),
        ]);
        hex(hash.get(..MARK_BYTES / 2).unwrap_or_default())
    }
}

/// Length of a mark that delimits data in a rendered context, in hexadecimal digits, and so in bytes.
pub(super) const MARK_BYTES: usize = 16;

/// Returns one SHA-256 hash of several byte strings. Each is prefixed with its length, so moving bytes between them changes the
/// hash.
fn digest<const N: usize>(parts: [&[u8]; N]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

impl fmt::Debug for FenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FenceKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_depends_on_key_kind_name_and_content_and_on_nothing_else() {
        let fences = FenceKey::new([7; 32]);
        let mark = fences.mark("source", "page", "1");

        let others = [
            FenceKey::new([8; 32]).mark("source", "page", "1"),
            fences.mark("trigger", "page", "1"),
            fences.mark("source", "pag", "e1"),
            fences.mark("source", "page", "2"),
        ];

        assert_eq!(mark, FenceKey::new([7; 32]).mark("source", "page", "1"));
        assert_eq!(mark.len(), MARK_BYTES);
        assert!(mark.bytes().all(|byte| byte.is_ascii_hexdigit()), "{mark}");
        assert!(!others.contains(&mark), "{mark} {others:?}");
    }

    #[test]
    fn a_secret_text_always_makes_the_same_key_and_another_text_another() {
        let mark = |secret: &str| FenceKey::from_secret(secret).mark("source", "page", "1");

        assert_eq!(mark("one"), mark("one"));
        assert_ne!(mark("one"), mark("two"));
    }

    #[test]
    fn the_key_of_a_process_stays_the_same_and_is_not_made_of_nothing() {
        let (one, again) = (FenceKey::of_process(), FenceKey::of_process());

        assert_eq!(one.0, again.0);
        assert_ne!(one.0, digest([&[0; 16], &[0; 16]]));
    }

    #[test]
    fn debug_shows_nothing_of_a_key() {
        let text = format!(
            "{:?} {:#?}",
            FenceKey::new([0x41; 32]),
            FenceKey::of_process()
        );

        assert_eq!(text, "FenceKey(..) FenceKey(..)");
    }
}
