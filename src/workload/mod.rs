//! Workloads: agents, flows and code that answer the messages of a session turn by turn, and stream their events.
//!
//! Use this module for conversations with an agent or a flow, and for durable runs of workflows. A [`Definition`]
//! describes a workload, and creates a [`Workload`] for each turn. A workload receives a [`WorkloadMessage`] and
//! returns a stream of [`WorkloadEvent`]s. A [`WorkloadExecutor`] runs any definition as an executor, whose runs are
//! durable.
//!
//! With the feature `workloads`, a `WorkloadManager` loads definitions from files, the store or code, a `Supervisor`
//! runs the turns of many sessions without an executor, and `NativeDefinition` and `ExecutorDefinition` make workloads
//! of closures and executors.
//!
//! ```
//! use serde_json::json;
//! use std::sync::Arc;
//! use universal_executor::agent::ScriptedModel;
//! use universal_executor::workflow::Workflow;
//! use universal_executor::workload::{FlowDefinition, WorkloadExecutor};
//! use universal_executor::{
//!     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Services, Subscription, Subscriptions, UniversalExecutor,
//! };
//!
//! let greeter = Workflow::from_json(&json!({
//!     "name": "greeter",
//!     "agents": {"main": {"instruction": "Greet the user."}},
//! }))?;
//! let model = ScriptedModel::new(["Hello, Ann!", "You are Ann."]);
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let (services, store) = (Services::new().default_model(model), MemoryStore::default());
//! let greeter = Arc::new(FlowDefinition::new("greeter", greeter)?);
//! let messages = Subscriptions::new([Subscription::trigger("user.message.v1")])?;
//! let greeter = WorkloadExecutor::new("greeter", greeter, &services, &store, messages)?;
//!
//! for (text, answer) in [("I am Ann.", "Hello, Ann!"), ("Who am I?", "You are Ann.")] {
//!     let message = NewBreadcrumb::new("user.message.v1").tag("session:1").context(json!({"message": text}));
//!     let message = store.create(message).await?;
//!     greeter.process_event(&Event::created(&message)).await?;
//!     let result = store.latest("workload.result.v1").await?.ok_or("no result")?;
//!     assert_eq!(result.context["output"], answer);
//! }
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```
//!
//! # Types to start with
//! | to | use |
//! |---|---|
//! | answer requests to a workflow durably | [`WorkloadExecutor::of_workflow`] |
//! | answer messages of sessions durably | [`WorkloadExecutor::new`] with a [`FlowDefinition`] |
//! | run sessions in one process, without an executor | `Supervisor` (feature `workloads`) |
//! | load workloads by name, from files or the store | `WorkloadManager` (feature `workloads`) |
//! | make a workload of a closure or an executor | `NativeDefinition`, `ExecutorDefinition` |
//! | write a kind of workload | [`Definition`], [`Workload`], [`RunCx`] |
//! | read the messages of a session | [`SessionStore`] |
//!
//! # Events
//! A run emits its events, and the events of its nested runs, while they happen. The run makes no progress while its
//! stream is not read. Events between two reads wait in a buffer of 1,024 events. When the buffer is full, further text
//! is joined to the last text event, and other details (tool calls, usage) are dropped, which
//! [`Missed`](WorkloadEventKind::Missed) reports. The starts and ends of steps and of the run are never dropped: their
//! number is bounded by the [limit of steps](crate::workflow::WorkflowLimits::steps).
//!
//! # Sessions
//! A [`Conversation`] is a log in the store. Each turn adds its message and its answer. An agent sees the log, with its
//! own tool calls. In a flow, each agent also has a separate conversation, identified by the path of its step. A turn
//! sees the messages of earlier turns, also if it starts again after a crash. A turn that fails adds nothing.
//!
//! The text of the user's message is a user message in later turns. Any other input of a turn or an agent, and the
//! summary of a long conversation, is data: models see it in a fence, as in the
//! [context of an agent](crate::executor::ModelContext::render).
//!
//! Two workers cannot interleave the entries of a session. The second writer fails with a conflict, and the turn may
//! start again, as the supervisor's `Restart` or the executor's [`Profile`](crate::Profile) specifies. Only a durable
//! turn with finished steps continues after these steps, and its entry is added after the other writer's entry.
//!
//! # Suspended turns
//! A turn whose flow asks a person, or waits for a breadcrumb, is suspended. A [`Runtime`](crate::Runtime) wakes the
//! suspended runs of a [`WorkloadExecutor`]. A `Supervisor` ends the turn as [`Suspended`](TurnStatus::Suspended), and
//! continues it when its method `resume` is called. A [question to a person](crate::workflow#questions-to-people) is a
//! `human.request.v1` breadcrumb in the store.

#[cfg(feature = "workloads")]
mod by_executor;
mod conversations;
mod cx;
mod entry;
mod event;
mod executor;
mod flow;
#[cfg(feature = "workloads")]
mod manager;
#[cfg(feature = "workloads")]
mod native;
mod scope;
mod session;
mod sink;
mod stream;
#[cfg(feature = "workloads")]
mod supervisor;
mod turn;
mod turn_emitter;
mod turn_status;

pub use crate::session_log::SessionError;
#[cfg(feature = "workloads")]
pub use by_executor::ExecutorDefinition;
pub use cx::{RunCx, WorkloadMessage};
pub(crate) use entry::{Entry, select_entry, select_entry_of_request};
pub use entry::{EntryError, EntryPolicy};
pub use event::{WorkloadEvent, WorkloadEventKind};
pub(crate) use executor::check_fields;
pub use executor::{WorkloadError, WorkloadExecutor};
pub use flow::FlowDefinition;
#[cfg(feature = "workloads")]
pub use manager::{
    BrokenPolicy, Ident, IdentError, Listed, Listing, Loader, LoaderSource, ManagerError, Tried,
    WorkloadLoadError, WorkloadManager, WorkloadManagerBuilder, WorkloadOrigin,
};
#[cfg(feature = "workloads")]
pub use native::NativeDefinition;
pub use scope::{CloseError, WorkloadScope, with_workload};
pub use session::{Conversation, Log, LogEntry, SessionStore};
pub use stream::EventStream;
#[cfg(feature = "workloads")]
pub use supervisor::{
    Restart, Subscriber, SubscriberItem, SupervisedTurn, Supervisor, SupervisorBuilder,
    SupervisorError, SupervisorHealth, TurnAnswerError,
};
pub use turn::TurnOutcome;
pub use turn_status::TurnStatus;

use crate::error::BoxError;
use crate::services::Services;
use crate::store::BreadcrumbStore;
use crate::workflow::WorkflowWarning;
use async_trait::async_trait;
use std::sync::Arc;

/// An instance of a workload, which runs one turn after another and streams their events.
///
/// # Contract
/// - **One run at a time.** The stream borrows the workload, so the next run starts after the stream was dropped.
/// - **Lazy.** A run makes progress only while its stream is read. Dropping the stream stops the run.
/// - **Well formed.** The events of a stream follow the order that [`WorkloadEventKind`] describes. [`RunCx::stream`]
///   enforces this.
/// - **Closed.** The code that creates a workload closes it, as [`WorkloadScope`] does. A second call of
///   [`close`](Self::close) does nothing.
///
/// Implement it for a new kind of workload. A closure needs no implementation: `NativeDefinition`
/// of the feature `workloads` makes a workload of it.
///
/// # Examples
/// ```
/// use futures::StreamExt;
/// use serde_json::json;
/// use universal_executor::workload::{EventStream, RunCx, Workload};
/// use universal_executor::workload::{WorkloadEventKind, WorkloadMessage};
/// use universal_executor::{BoxError, ExecutionContext, NewBreadcrumb, async_trait};
///
/// struct Echo;
///
/// #[async_trait]
/// impl Workload for Echo {
///     fn run(&mut self, cx: RunCx, message: Option<WorkloadMessage>) -> EventStream<'_> {
///         cx.stream(async move {
///             let output = message.unwrap_or_default().content;
///             WorkloadEventKind::Final { output }
///         })
///     }
///
///     async fn close(&mut self) -> Result<(), BoxError> {
///         Ok(())
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let trigger = NewBreadcrumb::new("user.message.v1");
/// let cx = RunCx::new("run-1", ExecutionContext::for_trigger(trigger));
/// let mut echo = Echo;
/// let events: Vec<_> = echo.run(cx, Some("hi".into())).collect().await;
///
/// assert_eq!(events[0].kind, WorkloadEventKind::Started);
/// assert_eq!(events[1].kind, WorkloadEventKind::Final { output: json!("hi").into() });
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[async_trait]
pub trait Workload: Send {
    /// Runs one turn of the workload with a message. Without a message, continues a suspended run.
    ///
    /// The state of a suspended run is in [`resumed`](crate::ExecutionContext::resumed) of the
    /// [context](RunCx::context).
    fn run(&mut self, cx: RunCx, message: Option<WorkloadMessage>) -> EventStream<'_>;

    /// Stops all work of the workload, and waits until the work has stopped.
    ///
    /// # Errors
    /// Returns an error that names the work that did not stop. The caller does not call `close` again.
    async fn close(&mut self) -> Result<(), BoxError>;
}

/// Definition of a workload, from which any number of independent workloads can be created.
///
/// Its methods receive the services that the definition can name, and the store that its workloads read and write.
///
/// [`FlowDefinition`] is the usual implementation. Pass a definition to a [`WorkloadExecutor`], a
/// [`WorkloadScope`] or, with the feature `workloads`, to a `Supervisor` or a `WorkloadManager`.
pub trait Definition: Send + Sync {
    /// Returns the description of the workload: its name, purpose and hash, and the flow or agent that a run starts with.
    fn meta(&self) -> &Meta;

    /// Checks that a workload can be created from this definition.
    ///
    /// Executors and supervisors do not call this method if [`prepare`](Self::prepare) returns a definition: that call has the same
    /// errors.
    ///
    /// # Errors
    /// Returns an error that names the missing item, such as a model or a tool. A definition can name only items of
    /// `services`.
    fn check(&self, services: &Services, store: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError>;

    /// Returns `true` if runs of the workload in an executor need a store with a run ledger, for example because they wait for
    /// people or breadcrumbs. Defaults to `false`.
    ///
    /// # Errors
    /// Returns the errors of [`check`](Self::check).
    fn needs_a_ledger(
        &self,
        _services: &Services,
        _store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<bool, BoxError> {
        Ok(false)
    }

    /// Returns the schemas that runs of the workload write in addition to their responses. Returns `None`, the default,
    /// if these are not known, as for code.
    ///
    /// # Errors
    /// Returns the errors of [`check`](Self::check).
    fn writes(
        &self,
        _services: &Services,
        _store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Option<Vec<String>>, BoxError> {
        Ok(None)
    }

    /// Returns `true` if chat clients may receive a model's answer while the model writes the answer. Returns `false`
    /// if guardrails first check the complete answer. Defaults to `true`.
    ///
    /// # Errors
    /// Returns the errors of [`check`](Self::check).
    fn streams_text(
        &self,
        _services: &Services,
        _store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<bool, BoxError> {
        Ok(true)
    }

    /// Returns warnings about the workload definition. `has_sessions` is `false` for runs without a conversation.
    /// Defaults to none.
    fn warnings(&self, _has_sessions: bool) -> Vec<WorkflowWarning> {
        Vec::new()
    }

    /// Finds the models, tools and guardrails that the workload definition names, and returns a workload definition that holds
    /// them. An executor or supervisor calls this method once, then [`instantiate`](Self::instantiate) of the returned definition
    /// for each turn.
    ///
    /// Defaults to `None`: the executor or supervisor calls [`check`](Self::check) once, then `instantiate` of this definition for each
    /// turn.
    ///
    /// # Errors
    /// Returns the errors of [`check`](Self::check).
    fn prepare(
        &self,
        _services: &Services,
        _store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Option<Arc<dyn Definition>>, BoxError> {
        Ok(None)
    }

    /// Creates a workload from this definition.
    ///
    /// # Errors
    /// Returns the errors of [`check`](Self::check).
    fn instantiate(
        &self,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Box<dyn Workload>, BoxError>;
}

/// Description of a workload (such as its name, purpose and hash), available without creating the workload.
///
/// ```
/// use universal_executor::workload::Meta;
///
/// let meta = Meta::new("writer").description("Writes articles.");
/// assert_eq!(meta.name, "writer");
/// assert_eq!(meta.description.as_deref(), Some("Writes articles."));
/// assert!(meta.hash.is_empty() && meta.entry.is_empty());
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Meta {
    /// The name of the workload.
    pub name: String,
    /// The purpose of the workload, if the workload definition states it.
    pub description: Option<String>,
    /// Hash of the content of the workload definition, which changes with each change of the content. Empty if unknown.
    pub hash: String,
    /// The flow or agent that a run starts with. Empty for a workload that is not a flow.
    pub entry: String,
}

impl Meta {
    /// Creates the description of a workload with a name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Sets the purpose of the workload.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}
