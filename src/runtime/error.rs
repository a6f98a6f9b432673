#[cfg(feature = "agents")]
use crate::agent::AgentError;
use crate::error::{BoxError, Retry};
use crate::executor::InvalidExecutor;
#[cfg(feature = "agents")]
use crate::services::NotRegistered;
use crate::source::SourceError;
use crate::store::StoreError;
use std::sync::Arc;

/// Error returned when a [`Runtime`](super::Runtime) cannot be built or started, or cannot carry out a command.
///
/// | source | variants |
/// |---|---|
/// | executors in [`build`](super::RuntimeBuilder::build) | `DuplicateId`, `Invalid`, `Agent` |
/// | stores in `build` | `NoStore`, `OtherStore` |
/// | settings in `build` | `ZeroSetting`, `NotADefinition`, `ServedTool` |
/// | the start | `OlderTriggers`, `Source`, `Store`, `Signals` |
/// | the state of the runtime | `AlreadyRunning`, `NotStarted` |
/// | [`Running`](super::Running) | `Task` |
/// | commands on a run, such as `redo` | `UnknownExecutor`, `NoLedger`, `Store` |
/// | `pause` and `resume` | `UnknownExecutor`, `NoLedger`, `Pause` |
///
/// The errors of `build` are mistakes in the program. [`retry`](Self::retry) returns if a retry can
/// help.
///
/// # Examples
/// ```
/// use universal_executor::runtime::RuntimeError;
/// use universal_executor::{MemoryStore, Response, Runtime, Subscription, executor};
///
/// let first = || {
///     executor("clerk")
///         .on(Subscription::trigger("order.v1"))
///         .execute(|_| async { Ok(Response::none()) })
/// };
/// let store = MemoryStore::default();
/// let built = Runtime::on(&store).executor(first()).executor(first()).build();
/// assert!(matches!(built, Err(RuntimeError::DuplicateId { id }) if id == "clerk"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Two executors have the same ID, so the ledger could not distinguish their runs.
    #[error("two executors have the ID {id:?}; give one of them another ID")]
    DuplicateId {
        /// ID of the two executors.
        id: String,
    },
    /// An executor's settings are invalid, or its store lacks a feature that the executor needs.
    ///
    /// The cause is an [`InvalidExecutor`], which names the executor and the problem.
    #[error(
        "cannot add an executor to the runtime: the executor's settings are invalid, or its store lacks a feature that the executor \
         needs; see the cause"
    )]
    Invalid(#[from] InvalidExecutor),
    /// An agent that was added to the runtime cannot be created.
    ///
    /// The cause names the problem, for example a model name without
    /// [`services`](super::RuntimeBuilder::services).
    #[cfg(feature = "agents")]
    #[error("cannot create the executor of an agent that was added to the runtime; see the cause")]
    Agent(#[from] AgentError),
    /// An executor is not bound to a store, and the runtime was built without a store.
    #[error(
        "executor {id:?} has no store; call .bind(&store) on it, or build the runtime with Runtime::on(&store)"
    )]
    NoStore {
        /// ID of the executor without a store.
        id: String,
    },
    /// An executor has another store than its runtime.
    #[error(
        "executor {id:?} is bound to the store {other}, and its runtime runs on {store}; bind the executor to a clone of the \
         runtime's store, or run it in a separate runtime"
    )]
    OtherStore {
        /// ID of the executor that is bound to another store.
        id: String,
        /// The store to which the executor is bound.
        other: String,
        /// The store on which the runtime runs.
        store: String,
    },
    /// An executor starts for the first time, from the default start position one hour ago, and the store has older breadcrumbs
    /// that match its triggers.
    ///
    /// Only a runtime with the default [`FirstStart::LastHour`](super::FirstStart::LastHour) on a
    /// store with a ledger fails like this. Choose another
    /// [`first_start`](super::RuntimeBuilder::first_start).
    #[error(
        "executor {executor:?} starts for the first time, and {}{count} breadcrumbs that match its triggers are older than an hour; call \
         .first_start with FirstStart::Oldest to process all of them, with FirstStart::Now to skip them, or with FirstStart::Since(time) \
         to process those since a time",
        if *is_exact { "" } else { "at least " }
    )]
    OlderTriggers {
        /// ID of the executor that starts for the first time.
        executor: String,
        /// The number of breadcrumbs older than one hour that match the executor's triggers, at most 10,000.
        count: usize,
        /// If `false`, the count reached its maximum of 10,000, and the store can have more breadcrumbs that are older than one hour and
        /// match the triggers.
        is_exact: bool,
    },
    /// The runtime was stopped before its start was complete.
    ///
    /// [`start`](super::RuntimeBuilder::start) returns it if the task stopped during the start.
    #[error("the runtime was stopped before its start was complete")]
    NotStarted,
    /// The runtime's task panicked, or tokio shut down.
    ///
    /// The running work was dropped, and another worker continues it.
    #[error("the runtime ended without a report, because its task panicked or tokio shut down")]
    Task {
        /// The error of the runtime's tokio task.
        source: BoxError,
    },
    /// The signal handlers for Ctrl-C and SIGTERM cannot be installed.
    #[error("cannot install the handlers for Ctrl-C and SIGTERM, so the runtime did not start")]
    Signals {
        /// The operating system's error for the handlers of Ctrl-C and SIGTERM.
        source: std::io::Error,
    },
    /// A setting of the runtime builder is zero, and must be more.
    #[error("cannot build the runtime: {setting} must be more than zero")]
    ZeroSetting {
        /// The builder method whose argument is zero, for example `concurrency`.
        setting: &'static str,
    },
    /// A function that creates executors was registered for a schema whose name has no part `def`. Agents without
    /// `can_spawn_agents` could write breadcrumbs of such a schema.
    #[cfg(feature = "agents")]
    #[error(
        "cannot create executors from breadcrumbs of schema {schema:?}, because no part of the name is \"def\"; use a schema name such \
         as \"playbook.def.v1\""
    )]
    NotADefinition {
        /// The rejected schema name, whose breadcrumbs would have defined executors.
        schema: String,
    },
    /// [`StoredDefinitions::tools`](super::definitions::StoredDefinitions::tools) names a tool that is not registered in the
    /// [`Services`](crate::Services) of these definitions.
    #[cfg(feature = "agents")]
    #[error(
        "cannot run tool.v1 definitions: StoredDefinitions::tools names a tool that its services do not have; add the tool to the \
         services, or remove the name"
    )]
    ServedTool {
        /// The error with the unknown tool name and the registered names.
        source: NotRegistered,
    },
    /// The runtime is already running. A runtime that has ended can run again.
    ///
    /// [`Runtime::run_until`](super::Runtime::run_until) was called while an earlier call was
    /// running.
    #[error("the runtime is already running; build a second runtime to run two")]
    AlreadyRunning,
    /// The runtime has no executor with the ID that a command names.
    ///
    /// An executor of a definition is unknown while its definition is not loaded.
    /// [`Runtime::executors`](super::Runtime::executors) lists the IDs.
    #[error(
        "the runtime has no executor with ID {id:?}; check the ID, or add the executor to the runtime"
    )]
    UnknownExecutor {
        /// The executor ID that the command names.
        id: String,
    },
    /// The store of the executor that a command names has no run ledger.
    ///
    /// The ledger in memory that a runtime adds to such a store accepts no commands.
    #[error(
        "the store of executor {id:?} has no run ledger, so its runs cannot be redone, cancelled or skipped, and the executor cannot \
         be paused; add a ledger with WithLedger"
    )]
    NoLedger {
        /// ID of the executor without a run ledger.
        id: String,
    },
    /// The store failed, or refused a command on a run.
    ///
    /// For a command, the source is often [`StoreError::UnknownRun`] or [`StoreError::WrongState`],
    /// which a retry cannot change.
    #[error("cannot {operation}; see the cause")]
    Store {
        /// The command that failed, for example `redo the run`.
        operation: &'static str,
        /// The store's error for the command on a run.
        source: Arc<StoreError>,
    },
    /// The store failed to pause or resume an executor.
    #[error("cannot pause or resume executor {id:?}, because its store failed; see the cause")]
    Pause {
        /// ID of the executor to pause or resume.
        id: Box<str>,
        /// The store's error for the pause or the resumption of the executor.
        source: StoreError,
    },
    /// The runtime cannot subscribe to the event source.
    ///
    /// Check the address and the credentials of the source. The program can start the runtime again
    /// after the delay of [`retry`](Self::retry).
    #[error("the runtime cannot subscribe to its event source; see the cause")]
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

    /// Returns [`Retry::After`] if a retry of the failed operation could succeed, and [`Retry::Never`] otherwise.
    ///
    /// [`Store`](Self::Store), [`Pause`](Self::Pause) and [`Source`](Self::Source) return the
    /// decision of their cause. All other errors return [`Retry::Never`].
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
