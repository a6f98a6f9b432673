use super::{Key, OpenAiCompatible, Secret};
use crate::error::{BoxError, Retry};
use futures::FutureExt;
use reqwest::{Client, Url, redirect, retry};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Makes an [`OpenAiCompatible`].
#[must_use]
pub struct OpenAiCompatibleBuilder {
    base_url: String,
    key: Wanted,
    model: Option<String>,
    connect_timeout: Duration,
    read_timeout: Duration,
    total_timeout: Duration,
    max_bytes: usize,
}

/// Where the key shall come from.
enum Wanted {
    Key(Key),
    Variable(String),
}

/// An [`OpenAiCompatible`] cannot be made. No text in it has the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The base URL is none.
    #[error("the base URL {problem}; use one like https://api.openai.com/v1")]
    BadUrl {
        /// What is wrong with it. The URL is not repeated, as there may be credentials in it.
        problem: &'static str,
    },
    /// The environment has no key.
    #[error("the environment variable {name:?} is not set, or empty")]
    NoKey {
        /// The variable.
        name: String,
    },
    /// The key cannot be sent.
    #[error("the key has characters that no HTTP header may have")]
    BadKey,
    /// An embedder is to be of one model.
    #[error("no model is named, and an embedder has one; name it with `model`")]
    NoModel,
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made")]
    Http(#[source] BoxError),
}

impl ProviderError {
    /// Never: the configuration has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl OpenAiCompatibleBuilder {
    pub(super) fn new(base_url: String) -> Self {
        Self {
            base_url,
            key: Wanted::Key(Key::Absent),
            model: None,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(120),
            total_timeout: Duration::from_secs(600),
            max_bytes: 16 << 20,
        }
    }

    /// Sends this key with every request; none is sent by default.
    pub fn key(mut self, key: Secret) -> Self {
        self.key = Wanted::Key(Key::Fixed(key));
        self
    }

    /// Sends the key that an environment variable has when the model is built.
    pub fn key_from_env(mut self, variable: impl Into<String>) -> Self {
        self.key = Wanted::Variable(variable.into());
        self
    }

    /// Asks for the key before every request, for keys that change. An error of the function is
    /// [`ModelError::Unavailable`](crate::agent::ModelError::Unavailable), so it must not have the key in it.
    pub fn key_from<F, T>(mut self, ask: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Secret, BoxError>> + Send + 'static,
    {
        self.key = Wanted::Key(Key::Asked(Arc::new(move || ask().boxed())));
        self
    }

    /// The model that is asked where a request names none.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// How long a connection may take; ten seconds by default.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long the endpoint may say nothing, before it answers or in the middle; two minutes by default, as a model may
    /// think for long before the first word.
    pub fn read_timeout(mut self, limit: Duration) -> Self {
        self.read_timeout = limit;
        self
    }

    /// How long a whole answer may take, a streamed one included; ten minutes by default.
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.total_timeout = limit;
        self
    }

    /// How many bytes of a body are read; 16 MiB by default. A streamed answer has many times the bytes of its text.
    pub fn max_bytes(mut self, limit: usize) -> Self {
        self.max_bytes = limit;
        self
    }

    /// The model.
    ///
    /// # Errors
    /// [`ProviderError`] if the URL or the key cannot be used.
    pub fn build(self) -> Result<OpenAiCompatible, ProviderError> {
        self.build_at(&["chat", "completions"])
    }

    /// A client of what is at a path below the base URL.
    pub(super) fn build_at(self, path: &[&str]) -> Result<OpenAiCompatible, ProviderError> {
        let key = match self.key {
            Wanted::Key(key) => key,
            Wanted::Variable(name) => {
                let key = std::env::var(&name).unwrap_or_default();
                if key.trim().is_empty() {
                    return Err(ProviderError::NoKey { name });
                }
                Key::Fixed(Secret::new(key))
            }
        };
        if let Key::Fixed(key) = &key
            && key.reveal().contains(|c: char| !c.is_ascii_graphic())
        {
            return Err(ProviderError::BadKey);
        }
        let client = Client::builder()
            .connect_timeout(self.connect_timeout)
            .read_timeout(self.read_timeout)
            .timeout(self.total_timeout)
            // A redirect would take the key elsewhere, and whether to try again is the run's to say.
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .user_agent(concat!("universal-executor/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ProviderError::Http(error.into()))?;
        Ok(OpenAiCompatible {
            client,
            endpoint: endpoint(&self.base_url, path)?,
            key,
            model: self.model,
            max_bytes: self.max_bytes,
        })
    }
}

fn endpoint(base: &str, added: &[&str]) -> Result<Url, ProviderError> {
    let bad = |problem| ProviderError::BadUrl { problem };
    let mut url = Url::parse(base.trim()).map_err(|_| bad("cannot be read"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(bad("is not one of http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("has credentials in it, which belong into the key"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad("has a query or a fragment"));
    }
    let mut path = url.path_segments_mut().map_err(|()| bad("has no path"))?;
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
    fn the_path_of_chat_completions_is_added_whether_or_not_the_url_ends_with_a_slash() {
        for base in ["http://localhost:1/v1", "http://localhost:1/v1/"] {
            let url = endpoint(base, &["chat", "completions"]).unwrap();
            assert_eq!(url.as_str(), "http://localhost:1/v1/chat/completions");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_and_not_repeated() {
        let bases = [
            "",
            "localhost",
            "ftp://host/v1",
            "https://ann:s3cret@host/v1",
            "https://host/v1?key=s3cret",
        ];

        for base in bases {
            let error = endpoint(base, &["embeddings"]).unwrap_err();

            assert!(matches!(error, ProviderError::BadUrl { .. }), "{base}");
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }
}
