//! Workloads: whatever runs turn by turn for a session and streams what happens.
//!
//! An agent, a flow, a closure and any [`UniversalExecutor`](crate::UniversalExecutor) are run by one protocol. A
//! [`Definition`] describes a workload, and creates a [`Workload`] for each turn. A workload takes a [`WorkloadMessage`] and returns a
//! stream of [`WorkloadEvent`]s. A [`WorkloadExecutor`] makes an executor of any definition, whose runs are durable.
//!
//! With the feature `workloads`, a `WorkloadManager` loads definitions from files, the store or code, a `Supervisor` runs the turns of
//! many sessions without an executor, and `NativeDefinition` and `ExecutorDefinition` make workloads of closures and executors.
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
//! # Events
//! The events of nested runs are told while they happen. A run stands still while nobody reads its stream, and what it tells
//! between two reads waits in a buffer of 1,024 events: beyond that texts are put together, and other details (calls of tools,
//! costs) are left out, which [`Missed`](WorkloadEventKind::Missed) says. Where a run is, its steps and its end, is always told: that
//! is bounded by the [limit of steps](crate::workflow::WorkflowLimits::steps).
//!
//! # Sessions
//! A [`Conversation`] is a log in the store. Each turn adds the message and the answer; an agent sees the log, with the calls
//! it made itself. In a flow each agent has a conversation of its own as well, by the path of its step. It is shown what was said in
//! the turns before its own, also if that starts again after a crash. The text of the user's message is a user message in later
//! turns. Any other input of a turn or an agent, and the summary of a long conversation, is data: models see it in a fence, as in
//! the [context of an agent](crate::executor::ModelContext::render). A turn that fails adds nothing. Two workers cannot interleave
//! a session: the one that comes second fails with a conflict, and may begin again, as the `Restart` of its supervisor or its
//! [`Profile`](crate::Profile) says. Only a durable turn, of which steps are done
//! already, then goes on with these, and is added to what was said meanwhile.
//!
//! # Turns that wait
//! A turn whose flow asks a person, or waits for a breadcrumb, is suspended. A [`WorkloadExecutor`] in a
//! [`Runtime`](crate::Runtime) is woken. A `Supervisor` ends the turn as [`Suspended`](TurnStatus::Suspended) until its method `resume`
//! is called. A [question to a person](crate::workflow#questions-to-people) is a `human.request.v1` in the store.

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
mod telling;
mod turn;
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

/// Something that runs turn by turn and streams what happens.
///
/// # Contract
/// - **One run at a time.** The stream borrows the workload: the next run begins when it is gone.
/// - **Lazy.** A run goes on only while its stream is read, and dropping the stream stops it where it is.
/// - **Well formed.** The events of a stream keep to the grammar of [`WorkloadEventKind`], which [`RunCx::stream`] sees to.
/// - **Closed.** The code that creates a workload closes it, as [`WorkloadScope`] does; closing again does nothing.
#[async_trait]
pub trait Workload: Send {
    /// Runs one turn. Without a message a suspended run goes on.
    fn run(&mut self, cx: RunCx, message: Option<WorkloadMessage>) -> EventStream<'_>;

    /// Ends all it has under way, and waits until that has ended.
    ///
    /// # Errors
    /// Says what did not end. It is not closed again all the same.
    async fn close(&mut self) -> Result<(), BoxError>;
}

/// Definition of a workload. Any number of independent workloads can be made from it.
///
/// Its methods get the services that it may name and the store that it reads and writes.
pub trait Definition: Send + Sync {
    /// Returns its name and other data that needs no workload.
    fn meta(&self) -> &Meta;

    /// Checks that a workload can be made.
    ///
    /// Executors and supervisors do not call this method if [`prepare`](Self::prepare) returns a definition: that call has the same
    /// errors.
    ///
    /// # Errors
    /// Names the missing item, such as a model or a tool: a definition can name only items of `services`.
    fn check(&self, services: &Services, store: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError>;

    /// Returns `true` if durable runs of it need a store with a run ledger, because they wait for others. Defaults to `false`.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn needs_a_ledger(
        &self,
        _services: &Services,
        _store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<bool, BoxError> {
        Ok(false)
    }

    /// Returns the schemas that runs of it write besides their responses, or `None` (the default) if these are not known, as for code.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn writes(
        &self,
        _services: &Services,
        _store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Option<Vec<String>>, BoxError> {
        Ok(None)
    }

    /// Returns `true` if the clients of a chat may see the text of models while they write it, and `false` if guardrails check it at
    /// the end. Defaults to `true`.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn streams_text(
        &self,
        _services: &Services,
        _store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<bool, BoxError> {
        Ok(true)
    }

    /// Returns warnings about the definition. `has_sessions` is `false` for runs without a conversation. Defaults to none.
    fn warnings(&self, _has_sessions: bool) -> Vec<WorkflowWarning> {
        Vec::new()
    }

    /// Finds the models, tools and guardrails that the definition names, and returns a definition that holds them. An executor or
    /// supervisor calls this method once, then [`instantiate`](Self::instantiate) of the returned definition for each turn.
    ///
    /// Defaults to `None`: the executor or supervisor calls [`check`](Self::check) once, then `instantiate` of this definition for each
    /// turn.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn prepare(
        &self,
        _services: &Services,
        _store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Option<Arc<dyn Definition>>, BoxError> {
        Ok(None)
    }

    /// Makes a workload.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn instantiate(
        &self,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Box<dyn Workload>, BoxError>;
}

/// What is known of a workload without making one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub description: Option<String>,
    /// What names its content: another content has another. Empty if nobody can tell.
    pub hash: String,
    /// The flow or agent with which a run begins. Empty for a workload that is no flow.
    pub entry: String,
}

impl Meta {
    /// A workload of this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Sets what it is good for.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}
