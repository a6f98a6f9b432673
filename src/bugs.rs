//! Mistakes made on purpose, with the private feature `_bugs`: `torture/` has to find each of them, or its finding
//! nothing says nothing. Which one is made is chosen by the environment variable `UX_BUG`. Without the feature there
//! are none.

/// Whether the mistake of this name is made.
#[cfg(feature = "_bugs")]
pub(crate) fn planted(bug: &str) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("UX_BUG").ok());
    CHOSEN.as_deref() == Some(bug)
}

#[cfg(not(feature = "_bugs"))]
pub(crate) const fn planted(_: &str) -> bool {
    false
}
