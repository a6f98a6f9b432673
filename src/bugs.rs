//! Deliberate bugs that the test program `torture/` must detect. The bugs need the private feature `_bugs`, and the environment variable
//! `UX_BUG` selects the active bug. Without the feature, no bug is active.

/// Returns `true` if the deliberate bug with this name is active.
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
