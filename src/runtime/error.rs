use crate::error::Retry;
use crate::executor::InvalidExecutor;
use crate::source::SourceError;

/// A runtime cannot be built or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Two executors have one id, so their runs could not be told apart.
    #[error("two executors are named {id:?}")]
    DuplicateId {
        /// The id.
        id: String,
    },
    /// An executor can never work on its store.
    #[error("an executor cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
    /// A setting must be more than zero.
    #[error("{setting} must be more than zero")]
    ZeroSetting {
        /// The builder method.
        setting: &'static str,
    },
    /// The source cannot be subscribed to.
    #[error("the source of events cannot be subscribed to")]
    Source(#[source] SourceError),
}

impl RuntimeError {
    /// Whether trying again could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::DuplicateId { .. } | Self::Invalid(_) | Self::ZeroSetting { .. } => Retry::Never,
            Self::Source(error) => error.retry(),
        }
    }
}
