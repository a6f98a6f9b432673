use super::{OpenAiCompatible, Secret};
use crate::agent::providers::ProviderError;
use crate::agent::providers::key::{Key, KeySource};
use crate::agent::providers::web::{Timeouts, base_url};
use crate::error::BoxError;
use reqwest::Url;
use std::fmt;
use std::time::Duration;

/// Builder of an [`OpenAiCompatible`].
///
/// [`OpenAiCompatible::builder`] creates it. Only the URL is required. A server can also
/// need a key and a model name.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use universal_executor::agent::OpenAiCompatible;
///
/// let model = OpenAiCompatible::builder("http://localhost:11434/v1")
///     .model("llama3.2")
///     .read_timeout(Duration::from_secs(300))
///     .build()?;
/// # drop(model);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[must_use]
pub struct OpenAiCompatibleBuilder {
    base_url: String,
    key: KeySource,
    model: Option<String>,
    timeouts: Timeouts,
    max_bytes: usize,
    joins_user_messages: bool,
}

impl OpenAiCompatibleBuilder {
    pub(super) fn new(base_url: String) -> Self {
        Self {
            base_url,
            key: KeySource::Key(Key::Absent),
            model: None,
            timeouts: Timeouts::default(),
            max_bytes: 16 << 20,
            joins_user_messages: false,
        }
    }

    /// Sets the API key of the model endpoint. By default no key is sent.
    ///
    /// A later call of a method for keys replaces the key. Requests over plain `http` to another
    /// machine log a warning.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::agent::{OpenAiCompatible, Secret};
    ///
    /// let model = OpenAiCompatible::builder("https://api.openai.com/v1")
    ///     .key(Secret::new("sk-1234"))
    ///     .model("gpt-5-mini")
    ///     .build()?;
    /// assert!(!format!("{model:?}").contains("sk-1234"));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn key(mut self, key: Secret) -> Self {
        self.key = KeySource::Key(Key::Fixed(key));
        self
    }

    /// Sets the name of the environment variable with the API key. [`build`](Self::build) reads the variable.
    ///
    /// A missing or empty variable is [`ProviderError::NoKey`]. A later change of the variable has
    /// no effect.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{OpenAiCompatible, ProviderError};
    ///
    /// let builder = OpenAiCompatible::builder("https://api.openai.com/v1");
    /// let error = builder.key_from_env("NO_SUCH_KEY_VARIABLE").build().unwrap_err();
    /// assert!(matches!(error, ProviderError::NoKey { .. }));
    /// ```
    pub fn key_from_env(mut self, variable: impl Into<String>) -> Self {
        self.key = KeySource::Variable(variable.into());
        self
    }

    /// Sets a function that returns the API key before each model request. Use it for an API key that changes. An error of the
    /// function becomes the source of [`ModelError::Unavailable`](crate::agent::ModelError::Unavailable), so it must not contain
    /// the key.
    ///
    /// The time of the function is not part of the timeouts of the request. A key with characters
    /// that an HTTP header cannot contain is
    /// [`ModelError::Unauthorized`](crate::agent::ModelError::Unauthorized).
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::agent::{OpenAiCompatible, Secret};
    ///
    /// let model = OpenAiCompatible::builder("https://api.example.com/v1")
    ///     .key_from(|| async { Ok(Secret::new(std::fs::read_to_string("/run/secrets/key")?)) })
    ///     .build()?;
    /// # drop(model);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn key_from<F, T>(mut self, ask: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Secret, BoxError>> + Send + 'static,
    {
        self.key = KeySource::Key(Key::from_function(ask));
        self
    }

    /// Sets the model name for requests without a model name. By default, such requests contain no model name.
    ///
    /// A request with its own name, for example from the field `model` of an agent definition, has
    /// precedence. An embedder needs a model.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sets the maximum time to connect to the endpoint. Defaults to ten seconds.
    ///
    /// After the limit the error is [`ModelError::TimedOut`](crate::agent::ModelError::TimedOut).
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.connect = limit;
        self
    }

    /// Sets the maximum time without data from the model endpoint, before and during a model answer. Defaults to two minutes,
    /// because a model may think for a long time before its first word.
    ///
    /// Raise it for a local model that loads slowly. The timeout of the run's
    /// [profile](crate::Profile::timeout), 120 s by default, also limits each attempt.
    pub fn read_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.read = limit;
        self
    }

    /// Sets the maximum time of a whole model answer, including a streamed one. Defaults to ten minutes.
    ///
    /// The timeout of the run's [profile](crate::Profile::timeout), 120 s by default, also limits
    /// each attempt.
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.total = limit;
        self
    }

    /// Sets the maximum size of a response body in bytes. Defaults to 16 MiB. A streamed body is many times larger than its text.
    ///
    /// A larger body is [`ModelError::TooLarge`](crate::agent::ModelError::TooLarge). The text and
    /// calls of an answer have the separate limit
    /// [`ChatResponse::MAX_BYTES`](crate::agent::ChatResponse::MAX_BYTES), 4 MiB.
    pub fn max_bytes(mut self, limit: usize) -> Self {
        self.max_bytes = limit;
        self
    }

    /// Joins consecutive messages of the role `user` into one, for endpoints that require alternating roles. By default each is a
    /// separate message.
    ///
    /// An agent sends the context and the user's text as two messages. Some endpoints reject such a request, because the roles `user`
    /// and `assistant` must alternate in their chat templates.
    pub fn join_user_messages(mut self) -> Self {
        self.joins_user_messages = true;
        self
    }

    /// Builds the [`OpenAiCompatible`] model.
    ///
    /// The method sends no request, so it does not detect a wrong key or model name.
    ///
    /// # Errors
    /// [`ProviderError`] if the URL or the key cannot be used, or the HTTP client cannot be created.
    ///
    /// - [`ProviderError::BadUrl`]: the URL is invalid, not http or https, or has credentials or a
    ///   query.
    /// - [`ProviderError::NoKey`]: the environment variable of the key is missing or empty.
    /// - [`ProviderError::BadKey`]: the key has characters that an HTTP header cannot contain.
    /// - [`ProviderError::Http`]: the HTTP client cannot be created.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::agent::{OpenAiCompatible, ProviderError};
    ///
    /// assert!(OpenAiCompatible::builder("http://localhost:8000/v1").build().is_ok());
    /// let error = OpenAiCompatible::builder("localhost:8000").build().unwrap_err();
    /// assert!(matches!(error, ProviderError::BadUrl { .. }));
    /// ```
    pub fn build(self) -> Result<OpenAiCompatible, ProviderError> {
        self.build_at(&["chat", "completions"])
    }

    /// Builds a client for one API of the endpoint, such as chat completions or embeddings. `path` is the API's path below the base URL.
    pub(super) fn build_at(self, path: &[&str]) -> Result<OpenAiCompatible, ProviderError> {
        let key = self.key.resolve()?;
        let client = self.timeouts.client()?;
        let endpoint = endpoint(&self.base_url, path)?;
        key.warn_if_exposed(&endpoint);
        Ok(OpenAiCompatible {
            client,
            endpoint,
            key,
            model: self.model,
            max_bytes: self.max_bytes,
            joins_user_messages: self.joins_user_messages,
        })
    }
}

fn endpoint(base: &str, added: &[&str]) -> Result<Url, ProviderError> {
    let mut url = base_url(base)?;
    let mut path = url
        .path_segments_mut()
        .map_err(|()| ProviderError::BadUrl {
            problem: "has no path",
        })?;
    path.pop_if_empty().extend(added);
    drop(path);
    Ok(url)
}

impl fmt::Debug for OpenAiCompatibleBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiCompatibleBuilder")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_completions_path_is_appended_with_or_without_a_trailing_slash() {
        for base in ["http://localhost:1/v1", "http://localhost:1/v1/"] {
            let url = endpoint(base, &["chat", "completions"]).unwrap();
            assert_eq!(url.as_str(), "http://localhost:1/v1/chat/completions");
        }
    }
}
