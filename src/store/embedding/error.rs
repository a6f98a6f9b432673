use crate::error::{BoxError, Retry};
use std::time::Duration;

/// Why texts have no vectors. Variants name what the caller can do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The embedder sheds load or takes too long, whatever the texts are: a store waits for it.
    #[error("the embedder {model:?} is unavailable")]
    Unavailable {
        /// Its model.
        model: String,
        /// When to try again.
        retry_after: Duration,
        /// What it says.
        source: BoxError,
    },
    /// The embedder failed or cannot be reached. A store finds out whether that is because of one of the texts.
    #[error("the embedder {model:?} failed")]
    Failed {
        /// Its model.
        model: String,
        /// What it says.
        source: BoxError,
    },
    /// One of the texts is nothing that the embedder takes; others may be.
    #[error("the embedder {model:?} refuses a text")]
    Refused {
        /// Its model.
        model: String,
        /// What it says.
        source: BoxError,
    },
    /// The embedder cannot be used as it is: the key, the model or its files have to change.
    #[error("the embedder {model:?} cannot be used")]
    Unusable {
        /// Its model.
        model: String,
        /// What it says.
        source: BoxError,
    },
    /// What the embedder answers is not one vector for each text.
    #[error("the embedder {model:?} answers with {problem}")]
    BadAnswer {
        /// Its model.
        model: String,
        /// What is wrong: `2 vectors for 3 texts`.
        problem: String,
    },
    /// The vectors of a store come from another model, and those of two models cannot be compared: use that one again, or
    /// have the store forget its vectors.
    #[error(
        "the vectors of the store are by {kept_model:?} with {kept_dimensions} dimensions, the embedder is {model:?} with \
         {dimensions}; open the store with the former, or once with `forget_vectors` to have all of them made anew"
    )]
    OtherModel {
        /// The model of the vectors.
        kept_model: String,
        /// Their length.
        kept_dimensions: usize,
        /// The model of the embedder.
        model: String,
        /// The length of its vectors.
        dimensions: usize,
    },
}

impl EmbedError {
    /// Whether embedding the same again could succeed.
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
