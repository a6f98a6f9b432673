use crate::error::{BoxError, Retry};
use std::time::Duration;

/// Error of an [`Embedder`](super::embedding::Embedder), which computes the vectors of strings. Each variant permits a different
/// reaction of the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The embedder is overloaded or too slow, whichever strings it receives. A store retries after `retry_after`.
    #[error("the embedder {model:?} is unavailable or too slow; retry in {retry_after:?}")]
    Unavailable {
        /// Model name of the embedder.
        model: String,
        /// Delay before the next call of the embedder.
        retry_after: Duration,
        /// Cause of the outage, as reported by the embedder.
        source: BoxError,
    },
    /// The embedder failed or is unreachable. A store then embeds smaller batches to find out if one of the strings is the cause.
    #[error("the embedder {model:?} failed or is unreachable; see the cause")]
    Failed {
        /// Model name of the embedder.
        model: String,
        /// Cause of the failure, as reported by the embedder.
        source: BoxError,
    },
    /// The embedder rejects one of the strings that it must embed, and may accept the others.
    #[error("the embedder {model:?} rejected one of the strings that it must embed; see the cause")]
    Refused {
        /// Model name of the embedder.
        model: String,
        /// Cause of the rejection, as reported by the embedder.
        source: BoxError,
    },
    /// The configuration of the embedder is invalid: the API key, the model name or the model files must change.
    #[error(
        "the embedder {model:?} is misconfigured; check the API key, the model name and the model files"
    )]
    Unusable {
        /// Model name of the embedder.
        model: String,
        /// Cause of the misconfiguration, as reported by the embedder.
        source: BoxError,
    },
    /// The response of the embedder is not one finite vector of [`dimensions`](super::embedding::Embedder::dimensions) numbers per string.
    #[error("the embedder {model:?} returned an invalid response: {problem}")]
    BadAnswer {
        /// Model name of the embedder.
        model: String,
        /// Description of the invalid response, such as `2 vectors for 3 texts`.
        problem: String,
    },
    /// The vectors in the store were computed by a different model than the model of the embedder. Vectors of two models cannot be
    /// compared. Open the store with the stored model again, or delete the stored vectors with `forget_vectors`.
    #[error(
        "the store has vectors of model {kept_model:?} with {kept_dimensions} dimensions, and the embedder uses model {model:?} with \
         {dimensions} dimensions; use an embedder with the stored model, or open the store once with `forget_vectors`, which embeds all \
         breadcrumbs again"
    )]
    OtherModel {
        /// Name of the model that computed the stored vectors.
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
    /// Returns whether the same call of the embedder can succeed later, and after which delay.
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
