use super::answer::{self, CallSettings};
use super::entry::ApprovalState;
use super::progress::PROGRESS;
use super::{RetrySafety, ToolError, ToolExecutor, ToolRegistry, ToolSettings};
use crate::clock::within;
use crate::error::{BoxError, excerpt, retry_after};
use crate::executor::{
    Execution, ExecutionContext, ExecutorError, Failure, Outcome, Profile, Response,
    UniversalExecutor, check,
};
use crate::model::{Breadcrumb, Event, Route, Subscription, Subscriptions};
use crate::store::BreadcrumbStore;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An executor that serves all tools of a registry with one subscription to `tool.request.v1`. It answers each request like a
/// [`ToolExecutor`] of the requested tool.
///
/// The dispatcher reads the stored request before it claims the run, so the settings of the requested tool determine the timeout and
/// the retries of the run. Requests for tools that are not in the registry are ignored, unless
/// [`answering_unknown`](Self::answering_unknown) is set.
///
/// Use it instead of one [`ToolExecutor`] for each tool: the service then has one executor ID, and
/// a new tool needs only a new entry in the registry.
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::tool::{ToolDispatcher, ToolRegistry, json_tool};
/// use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor};
///
/// let echo = json_tool("echo", "Says it again.", json!({}), |input, _| async move { Ok(input) });
/// let upper = json_tool("upper", "Says it aloud.", json!({"type": "string"}), |input, _| async move {
///     Ok(input.as_str().unwrap_or_default().to_uppercase().into())
/// });
/// let registry = ToolRegistry::default().with(echo.idempotent())?.with(upper)?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let tools = ToolDispatcher::new("tools", registry, Arc::new(store.clone()))?;
/// let request = NewBreadcrumb::new("tool.request.v1").context(json!({"tool": "upper", "input": "hi"}));
/// let request = store.create(request).await?;
/// tools.process_event(&Event::created(&request)).await?;
///
/// let response = store.latest("tool.response.v1").await?.ok_or("no response")?;
/// assert_eq!(response.context["output"], "HI");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct ToolDispatcher {
    id: String,
    registry: ToolRegistry,
    /// Names of the registry's remote tools, which other services serve.
    remote_tools: Vec<String>,
    store: Arc<dyn BreadcrumbStore>,
    subscriptions: Subscriptions,
    profile: Profile,
    approval: ApprovalState,
}

impl ToolDispatcher {
    /// Creates a dispatcher for the tools of a registry. `id` is the executor ID, which must be unique among the executors on the store.
    ///
    /// # Errors
    /// [`ToolError::Invalid`] if the ID is invalid, or if a tool runs at most once and the store has no run ledger.
    /// [`ToolError::Subscriptions`] if the subscription to the tool names exceeds the limits of subscriptions.
    pub fn new(
        id: impl Into<String>,
        registry: ToolRegistry,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        let (registry, remote_tools) = registry.split_remote();
        let known = Subscription::trigger(ToolExecutor::REQUEST)
            .matching("$.tool", "in", json!(registry.names()))
            .key("request");
        let mut dispatcher = Self {
            id: id.into(),
            registry,
            remote_tools,
            store,
            subscriptions: Subscriptions::default(),
            profile: Profile::new("tool").responds_with([ToolExecutor::RESPONSE, PROGRESS]),
            approval: ApprovalState::Missing,
        };
        dispatcher.subscribe(known)?;
        let (safety, time) = dispatcher.strictest();
        // The runtime uses this profile: the longest timeout and the strictest retry safety of all tools, and retries if one
        // tool permits them. Each run then has the profile of its tool.
        let attempts = match dispatcher.has_retry_safety(RetrySafety::Idempotent) {
            true => Profile::default().retry.attempts,
            false => 1,
        };
        let profile = safety.apply(dispatcher.profile.timeout(time));
        dispatcher.profile = profile.attempts(attempts);
        check(&dispatcher)?;
        Ok(dispatcher)
    }

    /// Makes the dispatcher also answer requests for unknown tools, with the error `unknown_tool` and the nearest known name.
    ///
    /// Set this option on only one dispatcher of a tenant, because other dispatchers may serve the tools that are unknown here. Requests
    /// for a [remote tool](super::remote_tool) of the registry are still left to the service that serves the tool.
    ///
    /// # Errors
    /// [`ToolError::Subscriptions`] if the subscription exceeds the limits of subscriptions.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use universal_executor::tool::{ToolDispatcher, ToolRegistry, json_tool};
    /// use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore};
    /// use universal_executor::{NewBreadcrumb, UniversalExecutor};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let echo = json_tool("echo", "Echoes.", json!({}), |input, _| async move { Ok(input) });
    /// let registry = ToolRegistry::default().with(echo)?;
    /// let tools = ToolDispatcher::new("tools", registry, Arc::new(store.clone()))?;
    /// let tools = tools.answering_unknown()?;
    /// let request = NewBreadcrumb::new("tool.request.v1").context(json!({"tool": "print"}));
    /// let request = store.create(request).await?;
    /// tools.process_event(&Event::created(&request)).await?;
    ///
    /// let response = store.latest("tool.response.v1").await?.ok_or("no response")?;
    /// assert_eq!(response.context["code"], "unknown_tool");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn answering_unknown(mut self) -> Result<Self, ToolError> {
        let requests = Subscription::trigger(ToolExecutor::REQUEST).key("request");
        let others = self.remote_tools.iter();
        let requests = others.fold(requests, |requests, other| {
            requests.matching("$.tool", "ne", other.as_str())
        });
        self.subscribe(requests)?;
        Ok(self)
    }

    /// Adds schemas that the tools may write through [`ToolContext::store`](super::ToolContext::store). Defaults to the response and
    /// `tool.progress.v1`.
    #[must_use]
    pub fn also_writes<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        let allowed = self.profile.responds_with.get_or_insert_default();
        allowed.extend(schemas.into_iter().map(Into::into));
        self
    }

    /// Omits the text of errors and panics of the tools from log lines, runs and dead letters. See [`Profile::hide_errors`].
    #[must_use]
    pub fn hide_errors(mut self) -> Self {
        self.profile = self.profile.hide_errors();
        self
    }

    /// Makes the dispatcher treat every tool request as approved by a person.
    ///
    /// Use this method only if all requests are written by people, or by agents that ask a person first. By default, a call that
    /// [needs an approval](super::ToolSettings::approvals) is answered with the error `approval_required`.
    #[must_use]
    pub fn trusting_requests(mut self) -> Self {
        self.approval = ApprovalState::Given;
        self
    }

    /// Returns the tools that the dispatcher serves: all tools of its registry except [remote tools](super::remote_tool).
    #[must_use]
    pub fn registry(&self) -> &ToolRegistry {
        &self.registry
    }

    fn subscribe(&mut self, requests: Subscription) -> Result<(), ToolError> {
        let subscriptions = Subscriptions::new([requests]);
        self.subscriptions = subscriptions.map_err(|source| ToolError::Subscriptions {
            name: self.id.clone(),
            source,
        })?;
        Ok(())
    }

    fn has_retry_safety(&self, safety: RetrySafety) -> bool {
        self.registry.settings().any(|tool| tool.retry == safety)
    }

    /// Returns the [`RetrySafety`] that allows the fewest retries, and the longest timeout, among the tools of the dispatcher.
    fn strictest(&self) -> (RetrySafety, Duration) {
        let tools = || self.registry.settings();
        let safety = tools().map(|tool| tool.retry).max();
        let time = tools().map(|tool| tool.timeout).max();
        let defaults = ToolSettings::standard();
        (safety.unwrap_or_default(), time.unwrap_or(defaults.timeout))
    }

    fn may_trigger(&self, event: &Event) -> bool {
        match self.subscriptions.route(event) {
            Route::Trigger { .. } | Route::NeedsContext => true,
            Route::Unmatched | Route::Context => false,
        }
    }

    /// Returns the executor for a tool request, with the settings of the requested tool. If the request cannot be read now, the
    /// strictest settings apply.
    async fn executor_for(&self, event: &Event) -> RequestExecutor<'_> {
        let (mut safety, mut time) = self.strictest();
        // No heartbeat extends the lease during this read, so a store that hangs must not delay it for long.
        let read = within(self.profile.lease / 4, self.store.get(event.breadcrumb_id));
        if self.may_trigger(event)
            && let Some(Ok(request)) = read.await
            && let Some(tool) = self.registry.get(requested_tool(&request))
        {
            (safety, time) = (tool.settings().retry, tool.settings().timeout);
        }
        RequestExecutor {
            dispatcher: self,
            profile: safety.apply(Profile {
                execution: Execution::AtLeastOnce,
                ..self.profile.clone().timeout(time)
            }),
            safety,
        }
    }
}

/// Returns the tool name of a request, shortened to 80 bytes for the response, because an unknown tool name can have any length.
fn short_tool_name(request: &Breadcrumb) -> Cow<'_, str> {
    excerpt(requested_tool(request), 80)
}

/// Returns the tool name of a request, or an empty string if the request names no tool.
fn requested_tool(request: &Breadcrumb) -> &str {
    let tool = request.context.get("tool");
    tool.and_then(Value::as_str).unwrap_or_default()
}

#[async_trait]
impl UniversalExecutor for ToolDispatcher {
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

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        let (safety, _) = self.strictest();
        let executor = RequestExecutor {
            dispatcher: self,
            profile: self.profile.clone(),
            safety,
        };
        executor.execute(trigger, context).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(answer::response(&short_tool_name(trigger), trigger, output))
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        let tool = self.registry.get(requested_tool(trigger));
        let once = tool.is_none_or(|tool| tool.settings().retry > RetrySafety::Idempotent);
        Ok(answer::failure(
            &short_tool_name(trigger),
            trigger,
            failure,
            once,
        ))
    }

    async fn process_event(&self, event: &Event) -> Result<Outcome, ExecutorError> {
        self.executor_for(event).await.process_event(event).await
    }
}

/// Executor for one tool request: the tool dispatcher, with the execution profile (such as timeout and retries) of the requested
/// tool.
struct RequestExecutor<'d> {
    dispatcher: &'d ToolDispatcher,
    profile: Profile,
    safety: RetrySafety,
}

#[async_trait]
impl UniversalExecutor for RequestExecutor<'_> {
    fn id(&self) -> &str {
        self.dispatcher.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.dispatcher.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        self.dispatcher.store()
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        let registry = &self.dispatcher.registry;
        let name = requested_tool(trigger);
        let Some(entry) = registry.entry(name) else {
            return Ok(answer::fields(registry.unknown(name), None));
        };
        let settings = entry.tool.settings();
        if self.safety < settings.retry {
            // The request was changed after it was read, and the profile of the run is not strict enough for this tool.
            let changed = "the request was changed and now names another tool";
            return Err(retry_after(Duration::ZERO, changed));
        }
        let call_settings = CallSettings {
            timeout: self.profile.timeout,
            may_retry: self.profile.retry.attempts > 1,
            execution: self.profile.execution,
            approval: self.dispatcher.approval,
        };
        answer::execute(entry, context, &self.dispatcher.store, call_settings).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.dispatcher.respond(trigger, output).await
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        self.dispatcher.respond_failure(trigger, failure).await
    }
}

impl fmt::Debug for ToolDispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolDispatcher")
            .field("id", &self.id)
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}
