use super::answer::{self, Terms};
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

/// One executor that serves every tool of a registry from one subscription to `tool.request.v1`, and answers as a
/// [`ToolExecutor`] of the tool would.
///
/// Which tool is asked for is read from the stored request before its run is claimed, so that run is leased, timed and
/// tried again as this tool's settings say. A request for a tool that the registry does not have is none of its concern,
/// unless it is told to [answer those too](Self::answering_unknown).
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
    /// Tools that others serve.
    elsewhere: Vec<String>,
    store: Arc<dyn BreadcrumbStore>,
    subscriptions: Subscriptions,
    profile: Profile,
    approval: ApprovalState,
}

impl ToolDispatcher {
    /// Serves the tools of a registry, under an id that is unique among the executors on the store.
    ///
    /// # Errors
    /// [`ToolError::Invalid`] if a tool runs at most once and the store has no ledger.
    pub fn new(
        id: impl Into<String>,
        registry: ToolRegistry,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        let (registry, elsewhere) = registry.split();
        let known = Subscription::trigger(ToolExecutor::REQUEST)
            .matching("$.tool", "in", json!(registry.names()))
            .key("request");
        let mut dispatcher = Self {
            id: id.into(),
            registry,
            elsewhere,
            store,
            subscriptions: Subscriptions::default(),
            profile: Profile::new("tool").responds_with([ToolExecutor::RESPONSE, PROGRESS]),
            approval: ApprovalState::Missing,
        };
        dispatcher.subscribe(known)?;
        let (safety, time) = dispatcher.strictest();
        // What a runtime goes by. It gives the most cautious tool's runs to nobody else while they may go on, and
        // leaves it to each run how often that is tried.
        let attempts = match dispatcher.has(RetrySafety::Idempotent) {
            true => Profile::default().retry.attempts,
            false => 1,
        };
        let profile = safety.apply(dispatcher.profile.timeout(time));
        dispatcher.profile = profile.attempts(attempts);
        check(&dispatcher)?;
        Ok(dispatcher)
    }

    /// Also answers requests for tools that it does not have, at once and with an error that has the nearest name. For
    /// the one place among all workers that should. Those for a [remote tool](super::remote_tool) of its registry it leaves
    /// to whoever serves it.
    ///
    /// # Errors
    /// [`ToolError::Subscriptions`].
    pub fn answering_unknown(mut self) -> Result<Self, ToolError> {
        let requests = Subscription::trigger(ToolExecutor::REQUEST).key("request");
        let others = self.elsewhere.iter();
        let mine = others.fold(requests, |requests, other| {
            requests.matching("$.tool", "ne", other.as_str())
        });
        self.subscribe(mine)?;
        Ok(self)
    }

    /// Lets its tools write other schemas than their responses and `tool.progress.v1`, through
    /// [`ToolContext::store`](super::ToolContext::store).
    #[must_use]
    pub fn also_writes<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        let allowed = self.profile.responds_with.get_or_insert_default();
        allowed.extend(schemas.into_iter().map(Into::into));
        self
    }

    /// Omits the text of errors and panics of its tools from log lines, runs and dead letters; see [`Profile::hide_errors`].
    #[must_use]
    pub fn hide_errors(mut self) -> Self {
        self.profile = self.profile.hide_errors();
        self
    }

    /// Takes every request for a call that a person has agreed to: for where only agents write requests, which ask before,
    /// or only people do. Otherwise a call that
    /// [needs an approval](super::ToolSettings::approvals) is answered with the error `approval_required`.
    #[must_use]
    pub fn trusting_requests(mut self) -> Self {
        self.approval = ApprovalState::Given;
        self
    }

    /// The tools it serves: those of its registry that [live here](super::remote_tool).
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

    fn has(&self, safety: RetrySafety) -> bool {
        self.registry.settings().any(|tool| tool.retry == safety)
    }

    /// The caution of the most cautious tool, and the time of the one that may take longest.
    fn strictest(&self) -> (RetrySafety, Duration) {
        let tools = || self.registry.settings();
        let safety = tools().map(|tool| tool.retry).max();
        let time = tools().map(|tool| tool.timeout).max();
        let none = ToolSettings::standard();
        (safety.unwrap_or_default(), time.unwrap_or(none.timeout))
    }

    fn may_concern(&self, event: &Event) -> bool {
        match self.subscriptions.route(event) {
            Route::Trigger { .. } | Route::NeedsContext => true,
            Route::Unmatched | Route::Context => false,
        }
    }

    /// How the run of a request is treated: as its tool asks for, and with the most caution if that is not known.
    async fn serving(&self, event: &Event) -> Serving<'_> {
        let (mut safety, mut time) = self.strictest();
        // A store that hangs shall hold up the run where its lease is kept, which is not here.
        let read = within(self.profile.lease / 4, self.store.get(event.breadcrumb_id));
        if self.may_concern(event)
            && let Some(Ok(request)) = read.await
            && let Some(tool) = self.registry.get(asked_for(&request))
        {
            (safety, time) = (tool.settings().retry, tool.settings().timeout);
        }
        Serving {
            dispatcher: self,
            profile: safety.apply(Profile {
                execution: Execution::AtLeastOnce,
                ..self.profile.clone().timeout(time)
            }),
            safety,
        }
    }
}

/// The tool a request is for, as an answer names it: a tool that does not exist may have a name of any length.
fn label(request: &Breadcrumb) -> Cow<'_, str> {
    excerpt(asked_for(request), 80)
}

/// The tool a request is for; empty if it says none.
fn asked_for(request: &Breadcrumb) -> &str {
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
        let serving = Serving {
            dispatcher: self,
            profile: self.profile.clone(),
            safety,
        };
        serving.execute(trigger, context).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(answer::response(&label(trigger), trigger, output))
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        let tool = self.registry.get(asked_for(trigger));
        let once = tool.is_none_or(|tool| tool.settings().retry > RetrySafety::Idempotent);
        Ok(answer::failure(&label(trigger), trigger, failure, once))
    }

    async fn process_event(&self, event: &Event) -> Result<Outcome, ExecutorError> {
        self.serving(event).await.process_event(event).await
    }
}

/// The dispatcher while it serves one request: the same executor, with the profile of the tool that is asked for.
struct Serving<'d> {
    dispatcher: &'d ToolDispatcher,
    profile: Profile,
    safety: RetrySafety,
}

#[async_trait]
impl UniversalExecutor for Serving<'_> {
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
        let name = asked_for(trigger);
        let Some(entry) = registry.entry(name) else {
            return Ok(answer::fields(registry.unknown(name), None));
        };
        let settings = entry.tool.settings();
        if self.safety < settings.retry {
            // The request was changed since it was read, and the run is not held as carefully as this tool needs.
            let changed = "the request was changed, and now is for another tool";
            return Err(retry_after(Duration::ZERO, changed));
        }
        let terms = Terms {
            time: self.profile.timeout,
            again: self.profile.retry.attempts > 1,
            execution: self.profile.execution,
            approval: self.dispatcher.approval,
        };
        answer::execute(entry, context, &self.dispatcher.store, terms).await
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
