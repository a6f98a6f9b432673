#[cfg(feature = "agents")]
use crate::agent::AgentError;
use crate::error::{BoxError, Retry};
use crate::executor::InvalidExecutor;
#[cfg(feature = "agents")]
use crate::services::NotRegistered;
use crate::source::SourceError;
use crate::store::StoreError;
use std::sync::Arc;

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
    /// An agent cannot be made.
    #[cfg(feature = "agents")]
    #[error("cannot make an agent of the runtime")]
    Agent(#[from] AgentError),
    /// An executor has no store, and the runtime has none for it.
    #[error(
        "executor {id:?} has no store; call .bind(&store) on it, or build the runtime with Runtime::on(&store)"
    )]
    NoStore {
        /// The executor ID.
        id: String,
    },
    /// An executor has another store than its runtime.
    #[error(
        "executor {id:?} is bound to the store {other}, and its runtime runs on {store}; bind the executor to a clone of the \
         runtime's store, or run it in a runtime of its own"
    )]
    OtherStore {
        /// The executor ID.
        id: String,
        /// The store of the executor.
        other: String,
        /// The store of the runtime.
        store: String,
    },
    /// An executor starts for the first time, and the store has triggers for it that are older than an hour.
    #[error(
        "executor {executor:?} starts for the first time, and {}{count} breadcrumbs that match its triggers are older than an hour; \
         choose with .first_start(FirstStart::Oldest), (FirstStart::Now) or (FirstStart::Since(time)) whether it answers them",
        if *is_exact { "" } else { "at least " }
    )]
    OlderTriggers {
        /// The executor ID.
        executor: String,
        /// The number of these breadcrumbs, at most 10,000.
        count: usize,
        /// `true` if there are no more.
        is_exact: bool,
    },
    /// The runtime was stopped before it had started.
    #[error("the runtime was stopped before it had started")]
    NotStarted,
    /// The task of the runtime panicked, or tokio shut down.
    #[error("the task of the runtime ended early")]
    Task {
        /// Error of the task.
        source: BoxError,
    },
    /// The handlers for signals of the operating system cannot be installed.
    #[error("cannot listen for Ctrl-C and SIGTERM")]
    Signals {
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A setting must be more than zero.
    #[error("{setting} must be more than zero")]
    ZeroSetting {
        /// The builder method.
        setting: &'static str,
    },
    /// A maker has a schema that is not recognisable as a definition, so agents could write such breadcrumbs without
    /// `can_spawn_agents`.
    #[cfg(feature = "agents")]
    #[error(
        "no executors can be made of breadcrumbs of schema {schema:?}: the name does not mark a definition; \
         name the schema like \"playbook.def.v1\""
    )]
    NotADefinition {
        /// The schema.
        schema: String,
    },
    /// [`StoredDefinitions::tools`](super::definitions::StoredDefinitions::tools) names a tool that its services do not have.
    #[cfg(feature = "agents")]
    #[error(
        "cannot run tool.v1 definitions: StoredDefinitions::tools names a tool that its services do not have; add the tool to the \
         services, or remove the name"
    )]
    ServedTool {
        /// The unknown name and the registered names.
        source: NotRegistered,
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
    /// The store failed, or refused an operation on a run.
    #[error("cannot {operation}")]
    Store {
        /// The operation, for example `redo the run`.
        operation: &'static str,
        /// Error of the store.
        source: Arc<StoreError>,
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
    pub(super) fn of_store(operation: &'static str) -> impl Fn(StoreError) -> Self + Copy {
        move |source| Self::Store {
            operation,
            source: Arc::new(source),
        }
    }

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
            | Self::NoStore { .. }
            | Self::OtherStore { .. }
            | Self::OlderTriggers { .. }
            | Self::NotStarted
            | Self::Task { .. }
            | Self::Signals { .. }
            | Self::AlreadyRunning
            | Self::UnknownExecutor { .. }
            | Self::NoLedger { .. } => Retry::Never,
            #[cfg(feature = "agents")]
            Self::Agent(_) | Self::NotADefinition { .. } | Self::ServedTool { .. } => Retry::Never,
            Self::Store { source, .. } => source.retry(),
            Self::Pause { source, .. } => source.retry(),
            Self::Source(error) => error.retry(),
        }
    }
}
