//! The one pattern: event, subscriptions, context, execute, respond.
//!
//! Implement [`UniversalExecutor`]; its defaults are the pattern. An executor keeps no state between events: the
//! store does.
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
mod assemble;
mod bound;
mod check;
mod closure;
mod context;
mod context_error;
mod decide;
mod earlier;
mod error;
mod finalize;
mod for_model;
mod handle;
mod heartbeat;
mod held;
#[cfg(feature = "workflows")]
mod inner;
mod keep_state;
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
mod standing;
mod store_timeout;
mod turn_events;
mod versions;
mod waits;
mod withheld;
#[cfg(feature = "agents")]
mod words;

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
pub(crate) use for_model::{CHAT_MESSAGE, words_of};
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
#[cfg(feature = "agents")]
pub(crate) use bound::Share;
pub(crate) use check::check_id;
#[cfg(feature = "agents")]
pub(crate) use closure::check_roles;
pub(crate) use decide::is_suspect;
pub(crate) use finalize::{NEVER_ENDED, log_dead_letter, never_ended};
#[cfg(feature = "workflows")]
pub(crate) use inner::Inner;
#[cfg(feature = "workflows")]
pub(crate) use keep_state::KeepState;
pub(crate) use ordering::{ordering_key, session_of_turn};
#[cfg(feature = "agents")]
pub(crate) use pages::Pages;
pub(crate) use run::give_up;
pub(crate) use runtime_context::{Commits, LentStore, RunScope, Untaken, under};
pub(crate) use standing::{Asked, QUESTION, is_changed, may_be_for};
pub(crate) use turn_events::{Record, Segment, turn_segments_tag, turn_tag};
#[cfg(feature = "agents")]
pub(crate) use turn_events::{TurnEvents, is_turn_of};
pub(crate) use versions::leave_unmatched;
pub(crate) use waits::Waits;
#[cfg(feature = "workloads")]
pub(crate) use words::DATA_TAG;

use crate::error::BoxError;
use crate::model::{Breadcrumb, Event, Subscription, Subscriptions};
use crate::store::{BreadcrumbStore, StoreError};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;

/// An agent, a tool or a workflow: an id, subscriptions, and what to do with what they find.
///
/// Only [`execute`](Self::execute) and [`respond`](Self::respond) differ from one executor to the next; the defaults
/// do the rest and may be overridden one by one. `Arc<dyn UniversalExecutor>` is the common form.
///
/// # Promises
/// On a store with a [`RunLedger`](crate::store::RunLedger):
/// - **At least once.** A trigger is processed until its run is done, failed with a dead letter, skipped or superseded.
/// - **Effectively once.** One set of responses for each tenant, executor, trigger and trigger version. `execute` may
///   run more than once (after a crash, a lost lease or an error); pass
///   [`idempotency_key`](ExecutionContext::idempotency_key) on to what it calls.
/// - **Cancel safe.** A dropped `process_event` writes nothing; its run is claimed again when its lease is over.
///
/// # When it fails
/// A run that gives up leaves a dead letter (`executor.failed.v1`) with the class and code of its error. What an error of
/// yours says is kept out of logs and dead letters, which many may read: log it yourself in
/// [`execute`](Self::execute), or write it in [`respond_failure`](Self::respond_failure). Everything else is said through
/// `tracing`: spans `event`, `fetch`, `execute` and `commit`, a warning for each run that fails.
///
/// On a store without a ledger the crate adds one in memory, see [`BreadcrumbStore::ledger`]: the promises hold while the
/// process lives. After a restart a trigger may be executed again.
#[async_trait]
pub trait UniversalExecutor: Send + Sync {
    /// The executor ID, unique among the executors on one store: 1 to 256 bytes without control characters.
    fn id(&self) -> &str;

    /// What sets it off and what it works with.
    fn subscriptions(&self) -> &Subscriptions;

    /// Where it reads and writes.
    fn store(&self) -> &dyn BreadcrumbStore;

    /// Does the work; the only step that truly differs.
    ///
    /// It may run more than once for one trigger, and be dropped at any `.await`.
    ///
    /// # Errors
    /// [`permanent`](crate::permanent) ends the run, [`retry_after`](crate::retry_after) is a rate limit,
    /// [`suspend`] ends the turn; anything else is tried again.
    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError>;

    /// Does the work and returns the response. By default it calls [`execute`](Self::execute), then [`respond`](Self::respond).
    ///
    /// Override it if the work returns the response itself. It may run more than once for one trigger, and its future can be
    /// dropped at any `.await`.
    ///
    /// # Errors
    /// [`ExecutorError::Execute`] and [`ExecutorError::Respond`] with the error of the method, and
    /// [`ExecutorError::BadResponse`] if the output of `execute` nests too deep.
    async fn execute_and_respond(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Response, ExecutorError> {
        answer::execute_and_respond(self, trigger, context).await
    }

    /// Describes what to write; the executor stamps it and commits it together with the end of the run.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute).
    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError>;

    /// What kind of executor it is, and how its runs are leased, timed and retried.
    fn profile(&self) -> &Profile {
        Profile::standard()
    }

    /// Describes what to write when a run ends as failed, beside the dead letter: an answer to whoever asked.
    ///
    /// Called once. Not called when the hop limit ends a chain, since its answer would lengthen it.
    ///
    /// # Errors
    /// An error is logged and the dead letter stands alone.
    async fn respond_failure(
        &self,
        _trigger: &Breadcrumb,
        _failure: &Failure,
    ) -> Result<Response, BoxError> {
        Ok(Response::none())
    }

    /// Takes one event from arrival to response: route, claim, assemble, execute, respond, commit.
    ///
    /// Needs a tokio runtime with time enabled. In a [`Runtime`](crate::Runtime) the run is claimed before this is called. An
    /// executor that overrides this method passes the event to `process_event` of an executor with the same ID and store,
    /// which takes the claimed run, in the same task; another claim finds it [running](crate::store::Claim::Running).
    ///
    /// # Errors
    /// Only for what may be tried again. Nothing was written then: the commit at the end is atomic and fenced by the
    /// lease of the run. [`ExecutorError::Postponed`] says when the ledger lets it be tried.
    async fn process_event(&self, event: &Event) -> Result<Outcome, ExecutorError> {
        run::process(self, event).await
    }

    /// Fetches all context subscriptions at once with [`fetch_source`](Self::fetch_source).
    ///
    /// A source that fails is left out and listed in [`ExecutionContext::missing`].
    ///
    /// # Errors
    /// If a required source fails, or the trigger and the required sources alone are too large.
    async fn assemble_context(
        &self,
        trigger: &Arc<Breadcrumb>,
    ) -> Result<ExecutionContext, ExecutorError> {
        assemble::assemble(self, trigger).await
    }

    /// Fetches what one context subscription selects. A source that would select the trigger itself holds only what
    /// is older than it.
    ///
    /// # Errors
    /// If the store fails.
    async fn fetch_source(
        &self,
        subscription: &Subscription,
        trigger: &Breadcrumb,
    ) -> Result<Fetched, StoreError> {
        assemble::fetch(self, subscription, trigger).await
    }

    /// The text that a vector fetch looks near to: by default the trigger's `message`, else `content`, else its JSON.
    ///
    /// A vector fetch hands in the trigger as hints leave it, since an embedder may see no more than a model.
    fn search_query(&self, trigger: &Breadcrumb) -> String {
        assemble::own_text(trigger)
    }
}

/// Every method of the executor behind a pointer, those with defaults included.
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
