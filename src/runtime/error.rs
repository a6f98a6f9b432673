use crate::error::Retry;
use crate::executor::InvalidExecutor;
use crate::source::SourceError;
use crate::store::StoreError;

/// A runtime cannot be built or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Two executors have one id, so their runs could not be told apart.
    #[error("two executors are named {id:?}; give one of them another id")]
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
    /// A maker has a schema that is not recognisable as a definition, so agents could write such breadcrumbs without
    /// `can_spawn_agents`.
    #[error(
        "no executors can be made of breadcrumbs of schema {schema:?}: the name does not mark a definition; \
         name the schema like \"playbook.def.v1\""
    )]
    NotADefinition {
        /// The schema.
        schema: String,
    },
    /// It runs already; one that has ended can run again.
    #[error("the runtime is running already; build another one to run two")]
    AlreadyRunning,
    /// No executor has this id here.
    #[error("no executor is named {id:?} here")]
    UnknownExecutor {
        /// The id.
        id: String,
    },
    /// The store of an executor keeps no runs.
    #[error(
        "the store of executor {id:?} has no run ledger, so its runs cannot be redone, cancelled or skipped, and the executor cannot \
         be paused; add a ledger with WithLedger"
    )]
    NoLedger {
        /// The executor's id.
        id: String,
    },
    /// A run cannot be done again.
    #[error("the run cannot be done again")]
    Redo {
        /// What its ledger says.
        source: StoreError,
    },
    /// A run cannot be cancelled.
    #[error("cannot cancel the run")]
    Cancel {
        /// Error of the store.
        source: StoreError,
    },
    /// A run cannot be skipped.
    #[error(
        "cannot skip the run; only a run that waits for another version of its executor can be skipped"
    )]
    Skip {
        /// Error of the store.
        source: StoreError,
    },
    /// An executor cannot be paused or resumed.
    #[error("cannot pause or resume executor {id:?}")]
    Pause {
        /// The executor ID.
        id: Box<str>,
        /// Error of the store.
        source: StoreError,
    },
    /// The source cannot be subscribed to.
    #[error("the source of events cannot be subscribed to")]
    Source(#[source] SourceError),
}

impl RuntimeError {
    pub(super) fn pause(executor: &str, source: StoreError) -> Self {
        Self::Pause {
            id: executor.into(),
            source,
        }
    }

    /// Whether trying again could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::DuplicateId { .. }
            | Self::Invalid(_)
            | Self::ZeroSetting { .. }
            | Self::NotADefinition { .. }
            | Self::AlreadyRunning
            | Self::UnknownExecutor { .. }
            | Self::NoLedger { .. } => Retry::Never,
            Self::Redo { source, .. }
            | Self::Cancel { source, .. }
            | Self::Skip { source, .. }
            | Self::Pause { source, .. } => source.retry(),
            Self::Source(error) => error.retry(),
        }
    }
}
