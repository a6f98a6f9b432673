use crate::error::{BoxError, Retry};
use std::time::Duration;

/// Error of an [`Embedder`](super::embedding::Embedder), which computes the vectors of strings. Each variant permits a different
/// reaction of the caller.
///
/// Return the variant that fits the failure, because the store reacts to it:
///
/// - [`Unavailable`](Self::Unavailable): the store retries after `retry_after`.
/// - [`Failed`](Self::Failed), [`Refused`](Self::Refused), [`Unusable`](Self::Unusable) and
///   [`BadAnswer`](Self::BadAnswer): the store splits the batch to find a string that is the cause,
///   and stores no vector for it.
/// - [`OtherModel`](Self::OtherModel): a store returns it when it opens, an embedder does not.
///
/// If the embedder also fails for a plain test string, no string counts as the cause, and the store
/// retries in the background.
///
/// ```
/// use std::time::Duration;
/// use universal_executor::error::Retry;
/// use universal_executor::store::embedding::EmbedError;
///
/// let busy = EmbedError::Unavailable {
///     model: "my-model".to_owned(),
///     retry_after: Duration::from_secs(20),
///     source: "status 429".into(),
/// };
/// assert_eq!(busy.retry(), Retry::After(Duration::from_secs(20)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The embedder is overloaded or too slow, regardless of the strings that it receives. A store retries after `retry_after`.
    ///
    /// Use it for rate limits, timeouts and overload.
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
    ///
    /// Use it for errors whose cause is unknown, such as a status 500.
    #[error("the embedder {model:?} failed or is unreachable; see the cause")]
    Failed {
        /// Model name of the embedder.
        model: String,
        /// Cause of the failure, as reported by the embedder.
        source: BoxError,
    },
    /// The embedder rejects one of the strings that it must embed, and may accept the others.
    ///
    /// Use it for a string that the model does not accept, such as one that is too long for it.
    #[error("the embedder {model:?} rejected one of the strings that it must embed; see the cause")]
    Refused {
        /// Model name of the embedder.
        model: String,
        /// Cause of the rejection, as reported by the embedder.
        source: BoxError,
    },
    /// The configuration of the embedder is invalid: the API key, the model name or the model files must change.
    ///
    /// A retry cannot help until the configuration changes.
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
    ///
    /// A delay is at most one hour.
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
