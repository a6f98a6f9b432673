use crate::error::{BoxError, Retry};

/// A model of a provider cannot be made. No text in it has the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// There is no provider of that name.
    #[error(
        "the provider {name:?} is not known; known are {known}, and OpenAiCompatible asks all that speak chat completions"
    )]
    UnknownProvider {
        /// What was asked for.
        name: String,
        /// The names there are, with commas between them.
        known: String,
    },
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
