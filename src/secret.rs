use std::fmt;

/// An API key or an access token, which is never printed. Its `Debug` output is `Secret(..)`.
///
/// Pass it to the builders of models and stores. The memory is not erased when the value is
/// dropped.
///
/// ```
/// use universal_executor::Secret;
///
/// let key = Secret::new("sk-1234");
/// assert_eq!(format!("{key:?}"), "Secret(..)");
/// ```
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret from an API key or an access token. Removes leading and trailing white space, for example the line end of
    /// a key file.
    ///
    /// The characters are checked where the secret is used: a model with a key that an HTTP header
    /// cannot contain is not built.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Secret;
    ///
    /// let key = Secret::new("sk-1234\n"); // the content of a key file
    /// assert!(!format!("{key:?}").contains("sk-1234"));
    /// ```
    #[must_use]
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().trim().to_owned())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
