use crate::error::{BoxError, Retry};
use std::time::Duration;

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
    /// The operating system refuses the thread, or the timers, with which a model reads answers.
    #[error(
        "cannot start the thread that reads the answers of the model; free system resources and build it again"
    )]
    Thread(#[source] std::io::Error),
}

impl ProviderError {
    /// Returns [`Retry::After`] if the operating system lacked resources, and [`Retry::Never`] if the configuration is wrong.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Thread(_) => Retry::After(Duration::from_secs(1)),
            Self::UnknownProvider { .. }
            | Self::BadUrl { .. }
            | Self::NoKey { .. }
            | Self::BadKey
            | Self::NoModel
            | Self::Http(_) => Retry::Never,
        }
    }
}
