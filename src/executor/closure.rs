//! Executors whose work is a closure, and the builder that creates them.

use super::{
    ExecutionContext, ExecutorError, InvalidExecutor, OrderingKey, Profile, Response,
    UniversalExecutor, check,
};
use crate::error::{BoxError, permanent};
use crate::model::{Breadcrumb, Role, Subscription, Subscriptions};
use crate::store::BreadcrumbStore;
use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Returns a builder of an executor whose work is a closure.
///
/// `id` is the executor ID: 1 to 256 bytes without control characters, and unique among the executors of a store.
///
/// ```
/// use serde_json::json;
/// use universal_executor::{
///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Response, Subscription, UniversalExecutor, executor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let summarizer = executor("summarizer")
///     .on(Subscription::trigger("user.message.v1"))
///     .reads(Subscription::context("web.page.v1").key("page"))
///     .responds_with(["summary.v1"])
///     .execute(|cx| async move {
///         let title = cx.require("page")?.text("title").ok_or("the page has no title")?;
///         Ok(Response::create(NewBreadcrumb::new("summary.v1").context(json!({"summary": title}))))
///     });
///
/// let store = MemoryStore::default();
/// store.create(NewBreadcrumb::new("web.page.v1").context(json!({"title": "Rust"}))).await?;
/// let message = store.create(NewBreadcrumb::new("user.message.v1")).await?;
/// summarizer.bind(&store)?.process_event(&Event::created(&message)).await?;
///
/// let summary = store.latest("summary.v1").await?.ok_or("no summary")?;
/// assert_eq!(summary.context.text("summary"), Some("Rust"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub fn executor(id: impl Into<String>) -> ExecutorBuilder<NoState> {
    ExecutorBuilder {
        id: id.into(),
        triggers: Vec::new(),
        sources: Vec::new(),
        profile: Profile::default(),
        state: NoState,
    }
}

/// Builder of an [`Executor`], created by [`executor`](fn@executor).
///
/// `S` is [`NoState`], or [`WithState`] after a call of [`state`](Self::state).
///
/// The builder checks nothing. [`Executor::bind`] and [`Runtime`](crate::Runtime) report mistakes,
/// such as a missing trigger. Only [`on`](Self::on) and `execute` are needed.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::{MemoryStore, Response, Subscription, executor};
///
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .reads(Subscription::context("price.v1").key("price").required())
///     .timeout(Duration::from_secs(10))
///     .attempts(3)
///     .execute(|_| async { Ok(Response::none()) });
/// assert!(clerk.bind(&MemoryStore::default()).is_ok());
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder makes no executor until `execute` is called"]
pub struct ExecutorBuilder<S> {
    id: String,
    triggers: Vec<Subscription>,
    sources: Vec<Subscription>,
    profile: Profile,
    state: S,
}

/// Marks an [`ExecutorBuilder`] whose closure takes only the [`ExecutionContext`].
#[derive(Clone, Copy, Debug)]
pub struct NoState;

/// Marks an [`ExecutorBuilder`] whose closure also takes a clone of the value that the builder method `state` sets.
#[derive(Clone, Debug)]
pub struct WithState<T>(T);

impl<S> ExecutorBuilder<S> {
    /// Adds a trigger subscription to the executor. Each breadcrumb version that matches starts a run.
    ///
    /// Call this method once for each trigger. An executor needs at least one. A context
    /// subscription here is refused as [`InvalidExecutor::WrongRole`].
    pub fn on(mut self, trigger: Subscription) -> Self {
        self.triggers.push(trigger);
        self
    }

    /// Adds a context subscription to the executor. The context of each run has the matching breadcrumbs under the subscription's
    /// key.
    ///
    /// The sources are fetched concurrently before each attempt. A trigger subscription here is
    /// refused as [`InvalidExecutor::WrongRole`].
    pub fn reads(mut self, source: Subscription) -> Self {
        self.sources.push(source);
        self
    }

    /// Sets the schemas that the executor may write. Defaults to any schema.
    ///
    /// A response with another schema ends the run with an error. Set the schemas to prevent
    /// mistakes, and loops of executors that trigger one another.
    pub fn responds_with<T: Into<String>>(self, schemas: impl IntoIterator<Item = T>) -> Self {
        self.profile(|profile| profile.responds_with(schemas))
    }

    /// Sets the maximum duration of one call of the executor's closure. Defaults to 120 s.
    ///
    /// An attempt that reaches the timeout counts as a failed attempt, and the run is retried.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.profile(|profile| profile.timeout(timeout))
    }

    /// Sets the maximum number of attempts of one run. Defaults to 5. The error of the last attempt ends the run with a dead letter.
    ///
    /// Each execution counts, also one that a crash ended. A rate limit uses no attempt, and
    /// neither does an error before `execute` in the first 60 s.
    pub fn attempts(self, attempts: u32) -> Self {
        self.profile(|profile| profile.attempts(attempts))
    }

    /// Sets the ordering key of the executor's runs: runs whose triggers have the same key execute one at a time, in the order of
    /// their events. Defaults to no order.
    ///
    /// A run that waits for a retry or is suspended blocks the later runs with the same key.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::executor::OrderingKey;
    /// use universal_executor::{Response, Subscription, executor};
    ///
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .ordered_by(OrderingKey::tag("customer:"))
    ///     .execute(|_| async { Ok(Response::none()) });
    /// assert_eq!(clerk.id(), "clerk");
    /// ```
    pub fn ordered_by(self, key: OrderingKey) -> Self {
        self.profile(|profile| profile.ordering(key))
    }

    /// Makes the executor run at most once: the closure is not called again for the same trigger version after a crash, a lost
    /// lease or an error. A run that a crash interrupts ends as failed, with the class
    /// [`OutcomeUnknown`](crate::store::FailureClass::OutcomeUnknown). Needs a store with a run ledger.
    ///
    /// Use it for work without an idempotency key, where a repetition is worse than a failure. A
    /// person then decides about the failed run.
    pub fn at_most_once(self) -> Self {
        self.profile(Profile::at_most_once)
    }

    /// Changes the [`Profile`] of the executor, for settings that have no builder method, such as the lease or a rate limit.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::executor::Rate;
    /// use universal_executor::{Response, Subscription, executor};
    ///
    /// let mailer = executor("mailer")
    ///     .on(Subscription::trigger("mail.v1"))
    ///     .profile(|profile| profile.rate(Rate::per(10, Duration::from_secs(1))).max_inflight(4))
    ///     .execute(|_| async { Ok(Response::none()) });
    /// assert_eq!(mailer.id(), "mailer");
    /// ```
    pub fn profile(mut self, change: impl FnOnce(Profile) -> Profile) -> Self {
        self.profile = change(self.profile);
        self
    }

    /// Sets the state that the executor passes to its closure, for example a connection pool. Each call of the closure receives a clone.
    ///
    /// A state in memory is lost at a restart. Wrap a type without a cheap `Clone` in an `Arc`.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Response, Subscription,
    ///     UniversalExecutor, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let calls = Arc::new(AtomicU32::new(0));
    /// let counter = executor("counter")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .state(Arc::clone(&calls))
    ///     .execute(|_, calls: Arc<AtomicU32>| async move {
    ///         calls.fetch_add(1, Ordering::Relaxed);
    ///         Ok(Response::none())
    ///     });
    ///
    /// let store = MemoryStore::default();
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// counter.bind(&store)?.process_event(&Event::created(&order)).await?;
    /// assert_eq!(calls.load(Ordering::Relaxed), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn state<T: Clone + Send + Sync + 'static>(
        self,
        state: T,
    ) -> ExecutorBuilder<WithState<T>> {
        ExecutorBuilder {
            id: self.id,
            triggers: self.triggers,
            sources: self.sources,
            profile: self.profile,
            state: WithState(state),
        }
    }

    fn build(self, run: Arc<Run>) -> Executor {
        let subscriptions = subscriptions(&self.id, &self.triggers, &self.sources);
        Executor {
            id: self.id,
            subscriptions,
            profile: self.profile,
            run,
        }
    }
}

impl ExecutorBuilder<NoState> {
    /// Returns an executor that calls the closure for each trigger.
    ///
    /// The closure returns the [`Response`], which the crate commits together with the end of the run. The closure can run again
    /// for the same trigger after a crash or an error. See [`UniversalExecutor::execute`] for the effect of its errors.
    ///
    /// The closure receives an owned [`ExecutionContext`], with the trigger and the sources. The
    /// result is an [`Executor`], which a [`Runtime`](crate::Runtime) or [`bind`](Executor::bind)
    /// takes.
    ///
    /// # Cancel safety
    /// The crate can drop the future of the closure at any `.await`: after the timeout, or when the lease of the run is lost.
    pub fn execute<F, R>(self, run: F) -> Executor
    where
        F: Fn(ExecutionContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Response, BoxError>> + Send + 'static,
    {
        self.build(Arc::new(move |context| Box::pin(run(context))))
    }
}

impl<T: Clone + Send + Sync + 'static> ExecutorBuilder<WithState<T>> {
    /// Returns an executor that calls the closure for each trigger. The second argument of the closure is a clone of the state.
    ///
    /// The closure returns the [`Response`], which the crate commits together with the end of the run. The closure can run again
    /// for the same trigger after a crash or an error. See [`UniversalExecutor::execute`] for the effect of its errors.
    ///
    /// # Cancel safety
    /// The crate can drop the future of the closure at any `.await`: after the timeout, or when the lease of the run is lost.
    pub fn execute<F, R>(self, run: F) -> Executor
    where
        F: Fn(ExecutionContext, T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Response, BoxError>> + Send + 'static,
    {
        let state = self.state.0.clone();
        self.build(Arc::new(move |context| {
            Box::pin(run(context, state.clone()))
        }))
    }
}

/// The closure that does the work of an executor, together with the state that it receives.
type Run = dyn Fn(ExecutionContext) -> BoxFuture<'static, Result<Response, BoxError>> + Send + Sync;

/// An executor built from a closure, not yet bound to a store. [`bind`](Self::bind) adds the store.
///
/// Pass it to a [`Runtime`](crate::Runtime), which binds it to its store, or call
/// [`bind`](Self::bind) in a unit test.
#[derive(Clone)]
#[must_use = "an executor does nothing until a runtime runs it"]
pub struct Executor {
    id: String,
    subscriptions: Result<Subscriptions, InvalidExecutor>,
    profile: Profile,
    run: Arc<Run>,
}

impl Executor {
    /// Returns the executor ID.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Binds the executor to a store, for a [`Runtime`](crate::Runtime) or for a unit test that calls
    /// [`process_event`](UniversalExecutor::process_event). Clones the store handle.
    ///
    /// # Errors
    /// [`InvalidExecutor`] if the ID or a setting is invalid, if a subscription has the wrong role or is invalid, if no trigger
    /// was added, and if the executor needs a capability that the store does not have.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::executor::InvalidExecutor;
    /// use universal_executor::{MemoryStore, Response, Subscription, executor};
    ///
    /// let store = MemoryStore::default();
    /// let unnamed = executor("")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::none()) });
    /// assert_eq!(unnamed.bind(&store).err(), Some(InvalidExecutor::NoId));
    ///
    /// let idle = executor("clerk").execute(|_| async { Ok(Response::none()) });
    /// assert!(matches!(idle.bind(&store), Err(InvalidExecutor::NoTrigger { .. })));
    /// ```
    pub fn bind<B>(self, store: &B) -> Result<BoundExecutor, InvalidExecutor>
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        let bound = BoundExecutor {
            subscriptions: self.subscriptions?,
            id: self.id,
            profile: self.profile,
            run: self.run,
            store: Arc::new(store.clone()),
        };
        check(&bound)?;
        Ok(bound)
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("id", &self.id)
            .field("subscriptions", &self.subscriptions)
            .finish_non_exhaustive()
    }
}

/// An [`Executor`] that is bound to a store.
///
/// It implements [`UniversalExecutor`]. A clone shares the closure and the store.
#[derive(Clone)]
pub struct BoundExecutor {
    id: String,
    subscriptions: Subscriptions,
    profile: Profile,
    run: Arc<Run>,
    store: Arc<dyn BreadcrumbStore>,
}

#[async_trait]
impl UniversalExecutor for BoundExecutor {
    fn id(&self) -> &str {
        &self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute_and_respond(
        &self,
        _: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Response, ExecutorError> {
        let response = (self.run)(context.clone()).await;
        response.map_err(ExecutorError::Execute)
    }

    /// Calls the closure and returns its [`Response`] as JSON.
    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        let response = (self.run)(context.clone()).await?;
        serde_json::to_value(response).map_err(permanent)
    }

    /// Converts the output of [`execute`](Self::execute) from JSON back to a [`Response`].
    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        serde_json::from_value(output).map_err(permanent)
    }
}

impl fmt::Debug for BoundExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundExecutor")
            .field("id", &self.id)
            .field("subscriptions", &self.subscriptions)
            .finish_non_exhaustive()
    }
}

/// Checks the trigger and context subscriptions of an executor builder, and returns them as [`Subscriptions`].
fn subscriptions(
    id: &str,
    triggers: &[Subscription],
    sources: &[Subscription],
) -> Result<Subscriptions, InvalidExecutor> {
    let subscriptions = check_roles(id, triggers, sources)?;
    let subscriptions = subscriptions.into_iter().cloned();
    Subscriptions::new(subscriptions).map_err(|source| InvalidExecutor::Subscriptions {
        executor: id.to_owned(),
        source,
    })
}

/// Checks the roles of an executor builder's subscriptions, and returns the subscriptions, the triggers first. Each subscription must
/// have been passed to the method for its role.
///
/// # Errors
/// [`InvalidExecutor::WrongRole`] and [`InvalidExecutor::NoTrigger`].
pub(crate) fn check_roles<'s>(
    id: &str,
    triggers: &'s [Subscription],
    sources: &'s [Subscription],
) -> Result<Vec<&'s Subscription>, InvalidExecutor> {
    for (role, subscriptions) in [(Role::Trigger, triggers), (Role::Context, sources)] {
        if let Some(wrong) = subscriptions.iter().find(|one| one.role != role) {
            return Err(InvalidExecutor::WrongRole {
                executor: id.to_owned(),
                schema: wrong.selector.schema_name().unwrap_or("*").to_owned(),
                role: wrong.role,
            });
        }
    }
    if triggers.is_empty() {
        return Err(InvalidExecutor::NoTrigger {
            executor: id.to_owned(),
        });
    }
    Ok(triggers.iter().chain(sources).collect())
}
