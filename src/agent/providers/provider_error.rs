use crate::error::{BoxError, Retry};
use std::time::Duration;

/// Error returned when a model of a provider cannot be built. No message contains the API key.
///
/// The builders of `OpenAiCompatible`, `OpenAiEmbedder` and `GenaiModel` return it before a request
/// is sent. Errors of requests are [`ModelError`](crate::agent::ModelError)s.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The name of the model provider is unknown.
    ///
    /// Only `GenaiModel` returns it. Names are in lower case.
    #[error(
        "unknown model provider {name:?}; GenaiModel supports {known}; use OpenAiCompatible for providers with chat completions"
    )]
    UnknownProvider {
        /// The unknown name of the model provider.
        name: String,
        /// The names of the supported model providers, separated by commas.
        known: String,
    },
    /// The base URL of the model endpoint is invalid.
    #[error("the base URL of the model endpoint {problem}; use one like https://api.openai.com/v1")]
    BadUrl {
        /// The problem with the base URL. It does not contain the URL, because the URL can contain credentials.
        problem: &'static str,
    },
    /// The environment variable with the API key is missing or empty.
    #[error("the environment variable {name:?} is missing or empty; set it to the API key")]
    NoKey {
        /// The name of the environment variable with the API key.
        name: String,
    },
    /// The API key contains characters that cannot be sent in an HTTP header.
    ///
    /// Spaces inside of the key and characters outside of ASCII are examples. White space at the
    /// ends is removed before.
    #[error(
        "the API key of the model provider contains characters that are not allowed in an HTTP header; check it for spaces"
    )]
    BadKey,
    /// The configuration of an embedder names no model.
    ///
    /// Only `OpenAiCompatibleBuilder::embedder` returns it.
    #[error(
        "an embedder needs a model, but none is set; set one with OpenAiCompatibleBuilder::model"
    )]
    NoModel,
    /// The HTTP client for the model endpoint cannot be created.
    #[error("cannot create the HTTP client for the model endpoint; see the cause")]
    Http(#[source] BoxError),
    /// The operating system lacks the resources to start the thread that reads the model's answers.
    ///
    /// Only `GenaiModel` returns it. It is the only variant with a [retry](Self::retry), after one
    /// second.
    #[error(
        "cannot start the thread that reads the model's answers; free system resources and build the model again"
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
