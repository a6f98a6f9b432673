//! Recording of the execution contexts that an executor under test receives.

use crate::error::BoxError;
use crate::executor::{
    ExecutionContext, ExecutorError, Failure, Fetched, Profile, Response, UniversalExecutor,
};
use crate::model::{Breadcrumb, Subscription, Subscriptions};
use crate::store::{BreadcrumbStore, StoreError};
use async_trait::async_trait;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An executor for tests that wraps another executor and records the context of each attempt.
///
/// The recorder works like the inner executor, except that it uses the default
/// [`process_event`](UniversalExecutor::process_event). So it is not suitable for an executor that overrides this method, such as
/// [`ToolDispatcher`](crate::tool::ToolDispatcher).
///
/// ```
/// use serde_json::json;
/// use universal_executor::testing::{Recorded, TestStore};
/// use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, Response, Runtime, Subscription, executor};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = TestStore::new()?;
/// let quote = executor("quote")
///     .on(Subscription::trigger("order.v1"))
///     .reads(Subscription::context("price.v1").key("price"))
///     .execute(|_| async { Ok(Response::none()) });
/// let quote = Recorded::new(quote.bind(&store)?);
/// let contexts = quote.contexts();
/// let worker = Runtime::on(&store).executor(quote).build()?;
///
/// store.create(NewBreadcrumb::new("price.v1").context(json!({"cents": 250}))).await?;
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
/// store.run_until_idle(&worker).await?;
///
/// let context = contexts.last().ok_or("no run")?;
/// assert_eq!(context.trigger().id, order.id);
/// assert_eq!(context.require("price")?["cents"], 250);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct Recorded<E> {
    inner: E,
    contexts: Contexts,
}

impl<E> Recorded<E> {
    /// Wraps an executor to record the contexts that the executor receives. The executor is your own type, or an
    /// [`executor`](fn@crate::executor) or [`Agent`](crate::agent::Agent) after `bind`.
    #[must_use]
    pub fn new(inner: E) -> Self {
        Self {
            inner,
            contexts: Contexts::default(),
        }
    }

    /// Returns the execution contexts that the executor has received, one for each attempt of a run. The returned handle
    /// also contains contexts that are recorded later.
    #[must_use]
    pub fn contexts(&self) -> Contexts {
        self.contexts.clone()
    }

    /// Returns the executor whose execution contexts are recorded.
    #[must_use]
    pub const fn inner(&self) -> &E {
        &self.inner
    }
}

/// The execution contexts that a [`Recorded`] executor has received, one for each attempt of a run. Each context has the
/// attempt's trigger, sources and resumed state. A clone is another handle on the same contexts.
///
/// The methods of a context that need its run, such as `save` and `for_model`, return an error once the run has ended.
///
/// [`Recorded::contexts`] returns it before the executor moves into a runtime.
#[derive(Clone, Debug, Default)]
pub struct Contexts(Arc<Mutex<VecDeque<ExecutionContext>>>);

impl Contexts {
    /// Maximum number of execution contexts that a [`Recorded`] executor retains. A further context replaces the oldest one.
    pub const MOST: usize = 1_000;

    /// Returns the recorded execution contexts of the executor's attempts, the oldest first.
    ///
    /// Of more than 1,000 contexts, the newest 1,000 are returned.
    #[must_use]
    pub fn all(&self) -> Vec<ExecutionContext> {
        self.recorded().iter().cloned().collect()
    }

    /// Returns the execution context of the newest recorded attempt, or `None` if no attempt was recorded.
    #[must_use]
    pub fn last(&self) -> Option<ExecutionContext> {
        self.recorded().back().cloned()
    }

    fn add(&self, context: &ExecutionContext) {
        let mut recorded = self.recorded();
        if recorded.len() >= Self::MOST {
            recorded.pop_front();
        }
        recorded.push_back(context.clone());
    }

    fn recorded(&self) -> MutexGuard<'_, VecDeque<ExecutionContext>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<E: UniversalExecutor> UniversalExecutor for Recorded<E> {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.inner.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        self.inner.store()
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        self.contexts.add(context);
        self.inner.execute(trigger, context).await
    }

    async fn execute_and_respond(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Response, ExecutorError> {
        self.contexts.add(context);
        self.inner.execute_and_respond(trigger, context).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.inner.respond(trigger, output).await
    }

    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        self.inner.respond_failure(trigger, failure).await
    }

    async fn assemble_context(
        &self,
        trigger: &Arc<Breadcrumb>,
    ) -> Result<ExecutionContext, ExecutorError> {
        self.inner.assemble_context(trigger).await
    }

    async fn fetch_source(
        &self,
        subscription: &Subscription,
        trigger: &Breadcrumb,
    ) -> Result<Fetched, StoreError> {
        self.inner.fetch_source(subscription, trigger).await
    }

    fn search_query(&self, trigger: &Breadcrumb) -> String {
        self.inner.search_query(trigger)
    }
}

impl<E> fmt::Debug for Recorded<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded")
            .field("contexts", &self.contexts.recorded().len())
            .finish_non_exhaustive()
    }
}
