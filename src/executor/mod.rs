//! Executors: code that runs when a breadcrumb matches a trigger subscription.
//!
//! For each event, an executor reads the trigger, fetches its context, calls `execute` and `respond`, and commits the
//! response. Implement [`UniversalExecutor`], whose default methods do all of this except `execute` and `respond`, or pass a
//! closure to [`executor`](fn@executor). An executor keeps no state between events: all state is in the store.
//!
//! Use this module to write the work of a service as executors, to set their retries, limits and
//! ordering, and to read their context. Start with [`executor`](fn@executor), [`ExecutionContext`]
//! and [`Response`].
//!
//! | to | use |
//! |---|---|
//! | read the trigger and the sources | [`ExecutionContext`], [`Source`] |
//! | write breadcrumbs at the end of a run | [`Response`] |
//! | wait for a person or for days | [`suspend`] |
//! | set retries, limits and ordering | [`Profile`], [`RetryPolicy`], [`OrderingKey`], [`Rate`] |
//! | show the context to a model | [`ModelContext`], [`ContextBudget`], [`Format`] |
//! | find out how an event ended | [`Outcome`], [`ExecutorError`] |
//!
//! ```
//! use serde_json::{Value, json};
//! use universal_executor::{
//!     BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext, MemoryStore, NewBreadcrumb,
//!     Outcome, Response, Subscription, Subscriptions, UniversalExecutor, async_trait,
//! };
//!
//! struct Greeter {
//!     store: MemoryStore,
//!     subscriptions: Subscriptions,
//! }
//!
//! #[async_trait]
//! impl UniversalExecutor for Greeter {
//!     fn id(&self) -> &str { "greeter" }
//!     fn subscriptions(&self) -> &Subscriptions { &self.subscriptions }
//!     fn store(&self) -> &dyn BreadcrumbStore { &self.store }
//!
//!     async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
//!         Ok(json!({"message": format!("Hello, {}!", trigger.context.text("name").unwrap_or("you"))}))
//!     }
//!
//!     async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
//!         Ok(Response::create(NewBreadcrumb::new("greeting.v1").context(output)))
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let store = MemoryStore::default();
//! let subscriptions = Subscriptions::new([Subscription::trigger("visitor.v1")])?;
//! let greeter = Greeter { store: store.clone(), subscriptions };
//! let visitor = store.create(NewBreadcrumb::new("visitor.v1").context(json!({"name": "Ann"}))).await?;
//!
//! let outcome = greeter.process_event(&Event::created(&visitor)).await?;
//! assert!(matches!(outcome, Outcome::Responded { .. }));
//!
//! let again = greeter.process_event(&Event::created(&visitor)).await?;
//! assert!(matches!(again, Outcome::AlreadyDone { .. }));
//! # Ok::<(), BoxError>(())
//! # })?;
//! # Ok::<(), BoxError>(())
//! ```

mod answer;
mod answer_check;
mod assemble;
mod bound;
mod check;
mod claimed_run;
mod closure;
mod context;
mod context_error;
mod decide;
mod earlier_response;
mod error;
mod finalize;
mod for_model;
#[cfg(feature = "agents")]
mod from_user;
mod handle;
mod heartbeat;
#[cfg(feature = "workflows")]
mod inner;
mod lease_requests;
mod ordering;
mod outcome;
mod own_writes;
mod pages;
mod profile;
mod provenance;
mod rate;
mod resumed;
mod run;
mod runtime_context;
mod sources;
mod state_storage;
mod store_timeout;
mod turn_events;
mod versions;
mod waits;
mod withheld;

pub use assemble::Fetched;
pub use check::{InvalidExecutor, check};
pub use closure::{BoundExecutor, Executor, ExecutorBuilder, NoState, WithState, executor};
pub use context::ExecutionContext;
pub use context_error::ContextError;
pub use error::ExecutorError;
#[cfg(feature = "workflows")]
pub(crate) use for_model::label;
pub use for_model::{
    BudgetError, ContextBudget, EstimatedTokens, FenceKey, Format, ModelContext, ModelItem,
    ModelSource, TokenCounter,
};
pub(crate) use for_model::{CHAT_MESSAGE, user_text_of};
#[cfg(feature = "agents")]
pub(crate) use for_model::{fenced, fenced_lines, line};
pub use ordering::OrderingKey;
pub use outcome::{Failure, Outcome, Response, Suspension, suspend};
pub use profile::{Execution, Profile, RetryPolicy};
pub use rate::{BadRate, Rate};
pub use resumed::Resumed;
pub use sources::{Bound, MissingReason, MissingSource, Source};
pub use waits::WaitError;
pub use withheld::{HintsOf, WithheldBy};

pub(crate) use crate::store::schema_hints::SchemaHints;
pub(crate) use answer_check::{QUESTION, SentRequest, is_changed, may_answer};
#[cfg(feature = "agents")]
pub(crate) use bound::WriteRestriction;
pub(crate) use check::check_id;
#[cfg(feature = "agents")]
pub(crate) use closure::check_roles;
pub(crate) use decide::is_suspect;
pub(crate) use finalize::{NEVER_ENDED, log_dead_letter, never_ended};
#[cfg(feature = "workloads")]
pub(crate) use from_user::DATA_TAG;
#[cfg(feature = "workflows")]
pub(crate) use inner::InnerRun;
pub(crate) use ordering::{ordering_key, session_of_turn};
#[cfg(feature = "agents")]
pub(crate) use pages::PagedSearch;
pub(crate) use run::give_up;
pub(crate) use runtime_context::{
    CommitCounter, PendingClaim, RunScope, SharedStoreState, in_scope,
};
#[cfg(feature = "workflows")]
pub(crate) use state_storage::StateStorage;
pub(crate) use turn_events::{Record, Segment, turn_segments_tag, turn_tag};
#[cfg(feature = "agents")]
pub(crate) use turn_events::{TurnEvents, is_turn_of};
pub(crate) use versions::transfer_or_skip;
pub(crate) use waits::Waits;

use crate::error::BoxError;
use crate::model::{Breadcrumb, Event, Subscription, Subscriptions};
use crate::store::{BreadcrumbStore, StoreError};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;

/// An executor, such as an agent, a tool or a workflow: an ID, subscriptions, a store, and the work for each trigger.
///
/// An implementation provides [`execute`](Self::execute) and [`respond`](Self::respond). The default methods do everything else,
/// and each can be overridden. Executors are mostly shared as `Arc<dyn UniversalExecutor>`.
///
/// Most programs build an executor with [`executor`](fn@executor) or `agent::Agent`. Implement the
/// trait for work with several methods, or to override a default method. Pass the executor to a
/// [`Runtime`](crate::Runtime), or call [`process_event`](Self::process_event) in a test.
///
/// # Promises
/// On a store with a [`RunLedger`](crate::store::RunLedger):
/// - **At least once.** A trigger is processed until its run is done, failed with a dead letter, skipped or superseded.
/// - **Effectively once.** Each tenant, executor, trigger and trigger version gets one set of responses. `execute` may run more
///   than once (after a crash, a lost lease or an error), so pass
///   [`idempotency_key`](ExecutionContext::idempotency_key) to external services.
/// - **Cancel safe.** If `process_event` is dropped, its response is committed in full or not at all. Without a commit, the run is
///   claimed again after its lease expires.
///
/// On a store without a ledger the crate adds one in memory, see [`BreadcrumbStore::ledger`]. The promises then hold while the
/// process lives. After a restart a trigger may be executed again.
///
/// # Failures
/// A run that fails for good leaves a dead letter (`executor.failed.v1`) with the class, code and cause of its error. Log lines
/// and dead letters contain the text of the executor's errors, without recognised credentials, unless
/// [`Profile::hide_errors`] is set. The requester receives the response of [`respond_failure`](Self::respond_failure).
///
/// The crate emits `tracing` spans named `event`, `fetch`, `execute` and `commit`, a `WARN` line for each failed attempt and an
/// `ERROR` line for each dead letter.
#[async_trait]
pub trait UniversalExecutor: Send + Sync {
    /// Returns the executor ID. It has 1 to 256 bytes and no control characters, and is unique among the executors on one store.
    ///
    /// The ID is part of each run and of its idempotency key. A new ID therefore makes a new
    /// executor, which does not know the runs of the old one.
    fn id(&self) -> &str;

    /// Returns the trigger and context subscriptions of the executor.
    fn subscriptions(&self) -> &Subscriptions;

    /// Returns the store that the executor reads from and writes to.
    ///
    /// Return the handle of the tenant in which the executor works.
    fn store(&self) -> &dyn BreadcrumbStore;

    /// Does the work of the executor for one trigger, and returns the output for [`respond`](Self::respond).
    ///
    /// This method may run more than once for one trigger, see [`Execution`].
    ///
    /// # Errors
    /// The kind of error decides how the run continues:
    /// - [`permanent`](crate::permanent): the run fails at once.
    /// - [`retry_after`](crate::retry_after): the run is retried after the delay, without using an attempt.
    /// - [`suspend`]: the run is suspended until a breadcrumb or a time wakes it.
    /// - Any other error: the run is retried with a growing delay, until its attempts are used up.
    ///
    /// # Cancel safety
    /// The future can be dropped at any `.await`: after [`Profile::timeout`], when the lease is lost, or when the future of
    /// [`process_event`](Self::process_event) is dropped.
    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError>;

    /// Does the work for one trigger and returns the response. The default calls [`execute`](Self::execute), then
    /// [`respond`](Self::respond).
    ///
    /// Override this method if the work returns the response itself. Like `execute`, this method may run more than once for one
    /// trigger, and its future can be dropped at any `.await`.
    ///
    /// # Errors
    /// [`ExecutorError::Execute`] and [`ExecutorError::Respond`] with the error of the method, and
    /// [`ExecutorError::BadResponse`] if the output of `execute` nests too deeply.
    async fn execute_and_respond(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Response, ExecutorError> {
        answer::execute_and_respond(self, trigger, context).await
    }

    /// Converts the output of [`execute`](Self::execute) to the breadcrumbs that the run writes.
    ///
    /// The crate stamps these writes with their creator, and commits them together with the end of the run.
    ///
    /// # Errors
    /// Errors have the same effect as those of [`execute`](Self::execute), except that [`suspend`] is not supported here.
    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError>;

    /// Returns the kind of the executor and the settings of its runs: lease, timeouts, retries and limits. Defaults to
    /// [`Profile::default`].
    ///
    /// Store the profile in the executor and return a reference to it. The crate calls this method
    /// several times for each run.
    fn profile(&self) -> &Profile {
        Profile::standard()
    }

    /// Returns the breadcrumbs to write when a run fails for good, in addition to the dead letter: an answer to the requester.
    /// Defaults to no breadcrumbs.
    ///
    /// The crate does not call this method when the hop limit ends a chain of runs, because the answer would lengthen the chain. If
    /// the commit of the dead letter fails, the run is retried, and this method may be called again.
    ///
    /// # Errors
    /// The crate logs an error, and commits the dead letter without an answer.
    async fn respond_failure(
        &self,
        _trigger: &Breadcrumb,
        _failure: &Failure,
    ) -> Result<Response, BoxError> {
        Ok(Response::none())
    }

    /// Processes one event: routes it, claims its run, assembles the context, executes, responds and commits.
    ///
    /// Needs a tokio runtime with time enabled. A [`Runtime`](crate::Runtime) claims the run before it calls this method. An
    /// override therefore has to pass the event, in the same task, to `process_event` of an executor with the same ID and store,
    /// which takes the claimed run. A second claim of the run would return [`Claim::Running`](crate::store::Claim::Running).
    ///
    /// # Errors
    /// An error means that this attempt did not end the run. The final commit is atomic and fenced by the lease of the run, so calling
    /// this method again is safe. [`ExecutorError::Postponed`] has the earliest time of the retry.
    ///
    /// # Cancel safety
    /// If the future is dropped, the response is committed in full or not at all. Without a commit, the run can be claimed again after
    /// its lease expires.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::FailureClass;
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, Subscription,
    ///     UniversalExecutor, executor, permanent,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Err(permanent("the order has no items")) })
    ///     .bind(&store)?;
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    ///
    /// let outcome = clerk.process_event(&Event::created(&order)).await?;
    /// assert!(matches!(outcome, Outcome::Failed { class: FailureClass::Permanent, .. }));
    /// let letter = store.latest("executor.failed.v1").await?.ok_or("no dead letter")?;
    /// assert_eq!(letter.context["class"], "permanent");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn process_event(&self, event: &Event) -> Result<Outcome, ExecutorError> {
        run::process(self, event).await
    }

    /// Fetches all context subscriptions of the executor concurrently, each by a call of [`fetch_source`](Self::fetch_source).
    ///
    /// A source whose fetch fails is omitted and listed in [`ExecutionContext::missing`].
    ///
    /// The fetch of one source takes at most [`Profile::source_timeout`], 5 s by default.
    ///
    /// # Errors
    /// [`ExecutorError::RequiredSource`] if the fetch of a required source fails, [`ExecutorError::RequiredNotFound`] if a required
    /// source of one item found no breadcrumb, and [`ExecutorError::ContextTooLarge`] if the trigger and the required sources exceed
    /// [`Profile::context_bytes`].
    async fn assemble_context(
        &self,
        trigger: &Arc<Breadcrumb>,
    ) -> Result<ExecutionContext, ExecutorError> {
        assemble::assemble(self, trigger).await
    }

    /// Fetches the breadcrumbs that one context subscription selects for a trigger.
    ///
    /// If the subscription also selects the trigger, only breadcrumbs that are older than the trigger are returned.
    ///
    /// # Errors
    /// The error of the store.
    async fn fetch_source(
        &self,
        subscription: &Subscription,
        trigger: &Breadcrumb,
    ) -> Result<Fetched, StoreError> {
        assemble::fetch(self, subscription, trigger).await
    }

    /// Returns the search text that the executor's vector search subscriptions use for a trigger. Defaults to the string in the
    /// trigger's `message`, else in `content`, else the JSON of the trigger's context.
    ///
    /// The context of `trigger` is shaped by its hints, because an embedder may not see more than a model.
    fn search_query(&self, trigger: &Breadcrumb) -> String {
        assemble::message_text(trigger)
    }
}

/// Implements [`UniversalExecutor`] for a pointer to an executor. Every method forwards, also those with a default.
macro_rules! forward {
    ($pointer:ident) => {
        #[async_trait]
        impl<E: UniversalExecutor + ?Sized> UniversalExecutor for $pointer<E> {
            fn id(&self) -> &str {
                (**self).id()
            }

            fn subscriptions(&self) -> &Subscriptions {
                (**self).subscriptions()
            }

            fn store(&self) -> &dyn BreadcrumbStore {
                (**self).store()
            }

            async fn execute(
                &self,
                trigger: &Breadcrumb,
                context: &ExecutionContext,
            ) -> Result<Value, BoxError> {
                (**self).execute(trigger, context).await
            }

            async fn respond(
                &self,
                trigger: &Breadcrumb,
                output: Value,
            ) -> Result<Response, BoxError> {
                (**self).respond(trigger, output).await
            }

            async fn execute_and_respond(
                &self,
                trigger: &Breadcrumb,
                context: &ExecutionContext,
            ) -> Result<Response, ExecutorError> {
                (**self).execute_and_respond(trigger, context).await
            }

            fn profile(&self) -> &Profile {
                (**self).profile()
            }

            async fn respond_failure(
                &self,
                trigger: &Breadcrumb,
                failure: &Failure,
            ) -> Result<Response, BoxError> {
                (**self).respond_failure(trigger, failure).await
            }

            async fn process_event(&self, event: &Event) -> Result<Outcome, ExecutorError> {
                (**self).process_event(event).await
            }

            async fn assemble_context(
                &self,
                trigger: &Arc<Breadcrumb>,
            ) -> Result<ExecutionContext, ExecutorError> {
                (**self).assemble_context(trigger).await
            }

            async fn fetch_source(
                &self,
                subscription: &Subscription,
                trigger: &Breadcrumb,
            ) -> Result<Fetched, StoreError> {
                (**self).fetch_source(subscription, trigger).await
            }

            fn search_query(&self, trigger: &Breadcrumb) -> String {
                (**self).search_query(trigger)
            }
        }
    };
}

forward!(Arc);
forward!(Box);
