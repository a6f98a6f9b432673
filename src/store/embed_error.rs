use crate::error::{BoxError, Retry};
use std::time::Duration;

/// Error of an [`Embedder`](super::embedding::Embedder). Each variant permits a different reaction of the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The embedder is overloaded or too slow, regardless of the strings. A store retries after `retry_after`.
    #[error("the embedder {model:?} is unavailable")]
    Unavailable {
        /// Model name of the embedder.
        model: String,
        /// Delay before the next attempt.
        retry_after: Duration,
        /// Cause, as reported by the embedder.
        source: BoxError,
    },
    /// The embedder failed or is unreachable. A store then embeds smaller batches to find out if one of the strings is the cause.
    #[error("the embedder {model:?} failed")]
    Failed {
        /// Model name of the embedder.
        model: String,
        /// Cause, as reported by the embedder.
        source: BoxError,
    },
    /// The embedder rejects one of the strings, and may accept the others.
    #[error("the embedder {model:?} rejected one of the strings")]
    Refused {
        /// Model name of the embedder.
        model: String,
        /// Cause, as reported by the embedder.
        source: BoxError,
    },
    /// The configuration of the embedder is invalid: the API key, the model name or the model files must change.
    #[error(
        "the embedder {model:?} is misconfigured; check the API key, the model name and the model files"
    )]
    Unusable {
        /// Model name of the embedder.
        model: String,
        /// Cause, as reported by the embedder.
        source: BoxError,
    },
    /// The response of the embedder is not one finite vector of [`dimensions`](super::embedding::Embedder::dimensions) numbers per string.
    #[error("the embedder {model:?} returned {problem}")]
    BadAnswer {
        /// Model name of the embedder.
        model: String,
        /// Description of the error, such as `2 vectors for 3 texts`.
        problem: String,
    },
    /// The store's vectors come from another model, and vectors of two models cannot be compared. Open the store with the stored
    /// model again, or delete its vectors with `forget_vectors`.
    #[error(
        "the store has vectors of model {kept_model:?} with {kept_dimensions} dimensions, and the embedder is {model:?} with \
         {dimensions}; open the store with {kept_model:?}, or once with `forget_vectors` to embed all breadcrumbs again"
    )]
    OtherModel {
        /// Model name of the stored vectors.
        kept_model: String,
        /// Number of dimensions of the stored vectors.
        kept_dimensions: usize,
        /// Model name of the embedder.
        model: String,
        /// Number of dimensions of the embedder's vectors.
        dimensions: usize,
    },
}

impl EmbedError {
    /// Returns whether the same call can succeed later, and after which delay.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable { retry_after, .. } => Retry::after(*retry_after),
            Self::Failed { .. } => Retry::After(Duration::ZERO),
            Self::Refused { .. }
            | Self::Unusable { .. }
            | Self::BadAnswer { .. }
            | Self::OtherModel { .. } => Retry::Never,
        }
    }
}
