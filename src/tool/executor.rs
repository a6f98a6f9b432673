use super::answer::{self, CallSettings};
use super::entry::{ApprovalState, Entry};
use super::progress::PROGRESS;
use super::settings::ServedBy;
use super::{RetrySafety, Tool, ToolDefinition, ToolError, wire};
use crate::error::{BoxError, excerpt};
use crate::executor::{ExecutionContext, Failure, Profile, Response, UniversalExecutor, check};
use crate::model::{Breadcrumb, Subscription, Subscriptions};
use crate::store::BreadcrumbStore;
use async_trait::async_trait;
use serde_json::Value;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// An executor that serves one tool: it answers every trigger with a `tool.response.v1`, with a result or an error.
///
/// The [`ToolSettings`](super::ToolSettings) of the tool determine timeouts, retries and limits. A tool that is not
/// [`idempotent`](Self::idempotent) runs once per request: after a crash, a timeout or a panic, the requester receives an error,
/// and the run leaves a dead letter. A [`ToolDispatcher`](super::ToolDispatcher) serves many tools in the same way.
///
/// Use it to serve a tool to other services, workflows and agents that run elsewhere. The executor
/// ID is the tool name. Run it with a [`Runtime`](crate::Runtime), or call
/// [`process_event`](UniversalExecutor::process_event) in a test.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::tool::{ToolExecutor, json_tool};
/// use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb};
/// use universal_executor::{Outcome, UniversalExecutor};
///
/// let broken = json_tool("broken", "Always fails.", json!({}), |_, _| async {
///     Err("the printer is offline".into())
/// });
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let tool = ToolExecutor::new(broken, Arc::new(store.clone()))?;
/// assert_eq!(tool.id(), "broken");
///
/// // An error of the tool is also an answer.
/// let request = NewBreadcrumb::new(ToolExecutor::REQUEST).context(json!({"tool": "broken"}));
/// let request = store.create(request).await?;
/// let outcome = tool.process_event(&Event::created(&request)).await?;
/// assert!(matches!(outcome, Outcome::Responded { .. }));
/// let response = store.latest(ToolExecutor::RESPONSE).await?.ok_or("no response")?;
/// assert_eq!(response.context["status"], "error");
/// assert_eq!(response.context["error"], "the printer is offline");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct ToolExecutor {
    entry: Entry,
    store: Arc<dyn BreadcrumbStore>,
    subscriptions: Subscriptions,
    profile: Profile,
    approval: ApprovalState,
}

impl ToolExecutor {
    /// The schema of a tool response.
    pub const RESPONSE: &'static str = wire::RESPONSE;
    /// The schema of a tool request.
    pub const REQUEST: &'static str = wire::REQUEST;

    /// Creates an executor for a tool. The triggers are `tool.request.v1` breadcrumbs with the tool name in the field `tool`.
    ///
    /// # Errors
    /// [`ToolError::BadName`] and [`ToolError::BadSchema`] for an invalid tool, [`ToolError::Elsewhere`] for a
    /// [remote tool](super::remote_tool), and [`ToolError::Invalid`] if the tool runs at most once and the store has no run ledger.
    #[track_caller]
    pub fn new(
        tool: impl Tool + 'static,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        let request = Subscription::trigger(Self::REQUEST)
            .matching("$.tool", "eq", tool.name())
            .key("request");
        let subscriptions =
            Subscriptions::new([request]).map_err(|source| ToolError::Subscriptions {
                name: tool.name().to_owned(),
                source,
            })?;
        Self::with_subscriptions(tool, subscriptions, store)
    }

    /// Creates an executor for a tool with the subscriptions of a tool definition.
    ///
    /// A definition is a `tool.v1` breadcrumb or its context. Its fields are `name`, `subscriptions` and, if the tool writes more
    /// schemas than its response, `responds_with`.
    ///
    /// # Errors
    /// The errors of [`ToolDefinition::from_json`] and [`with_subscriptions`](Self::with_subscriptions), and [`ToolError::OtherTool`] if
    /// the definition has the name of another tool.
    #[track_caller]
    pub fn from_definition(
        definition: &Value,
        tool: impl Tool + 'static,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        Self::from_read_definition(&ToolDefinition::from_json(definition)?, tool, store)
    }

    /// Creates an executor for a tool from an already read tool definition, for example one that was read in strict mode.
    ///
    /// # Errors
    /// The errors of [`with_subscriptions`](Self::with_subscriptions), and [`ToolError::OtherTool`] if the definition has the name of
    /// another tool.
    #[track_caller]
    pub fn from_read_definition(
        definition: &ToolDefinition,
        tool: impl Tool + 'static,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        if definition.name != tool.name() {
            return Err(ToolError::OtherTool {
                defined: excerpt(&definition.name, 64).into_owned(),
                name: tool.name().to_owned(),
            });
        }
        let executor = Self::with_subscriptions(tool, definition.subscriptions.clone(), store)?;
        let mut executor = executor.also_writes(definition.responds_with.clone());
        executor.profile = executor.profile.definition(definition.text());
        Ok(executor)
    }

    /// Creates an executor for a tool with custom subscriptions. Each breadcrumb version that matches a trigger calls the tool.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new), and [`ToolError::Invalid`] if a subscription needs a capability that the store does not have.
    ///
    /// Use it for a tool that reacts to another schema than `tool.request.v1`, or that reads
    /// context subscriptions. The input is the field `input` of the trigger's context, or the whole
    /// context.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use universal_executor::tool::{ToolExecutor, json_tool};
    /// use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb};
    /// use universal_executor::{Subscription, Subscriptions, UniversalExecutor};
    ///
    /// let count = json_tool("count", "Counts items.", json!({}), |order, _| async move {
    ///     Ok(json!(order["items"].as_array().map_or(0, Vec::len)))
    /// });
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let orders = Subscriptions::new([Subscription::trigger("order.v1")])?;
    /// let tool = ToolExecutor::with_subscriptions(count, orders, Arc::new(store.clone()))?;
    /// let order = NewBreadcrumb::new("order.v1").context(json!({"items": ["tea", "milk"]}));
    /// let order = store.create(order).await?;
    /// tool.process_event(&Event::created(&order)).await?;
    ///
    /// let response = store.latest("tool.response.v1").await?.ok_or("no response")?;
    /// assert_eq!(response.context["output"], 2);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[track_caller]
    pub fn with_subscriptions(
        tool: impl Tool + 'static,
        subscriptions: Subscriptions,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        let entry = Entry::new(Arc::new(tool), Location::caller())?;
        let settings = entry.tool.settings();
        if settings.served_by == ServedBy::OtherService {
            return Err(ToolError::Elsewhere {
                name: entry.tool.name().to_owned(),
            });
        }
        let mut profile =
            settings.apply(Profile::new("tool").responds_with([Self::RESPONSE, PROGRESS]));
        profile.max_inflight = settings.max_concurrent.map(usize::from);
        let executor = Self {
            entry,
            store,
            subscriptions,
            profile,
            approval: ApprovalState::Missing,
        };
        check(&executor)?;
        Ok(executor)
    }

    /// Declares that repeated calls of the tool do no harm, so that a call is retried after a crash, a timeout or a panic.
    ///
    /// A request then has up to 5 attempts. The method has the same effect as the tool's setting
    /// [`RetrySafety::Idempotent`] for this executor only.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.profile = RetrySafety::Idempotent.apply(self.profile);
        self
    }

    /// Adds schemas that the tool may write through [`ToolContext::store`](super::ToolContext::store). Defaults to the response and
    /// `tool.progress.v1`.
    ///
    /// A write of any other schema fails with
    /// [`StoreError::Forbidden`](crate::store::StoreError::Forbidden).
    #[must_use]
    pub fn also_writes<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        let allowed = self.profile.responds_with.get_or_insert_default();
        allowed.extend(schemas.into_iter().map(Into::into));
        self
    }

    /// Makes the executor treat every tool request as approved by a person.
    ///
    /// Use this method only if all requests are written by people, or by agents that ask a person first. By default, a call that
    /// [needs an approval](super::ToolSettings::approvals) is answered with the error `approval_required`.
    #[must_use]
    pub fn trusting_requests(mut self) -> Self {
        self.approval = ApprovalState::Given;
        self
    }

    /// Sets the timeout of a tool call. Defaults to the timeout in the settings of the tool.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.profile = self.profile.timeout(timeout);
        self
    }

    /// Replaces the execution profile of the tool's executor, such as its lease, timeout, processing order and retry policy. The
    /// executor retains its kind, definition and schemas.
    ///
    /// The new profile also replaces the timeout and the retries that the settings of the tool require. To change only some values,
    /// start with the current [`profile`](UniversalExecutor::profile).
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile.in_place_of(self.profile);
        self
    }

    /// Returns the tool that the executor serves.
    #[must_use]
    pub fn tool(&self) -> &dyn Tool {
        &*self.entry.tool
    }
}

#[async_trait]
impl UniversalExecutor for ToolExecutor {
    fn id(&self) -> &str {
        self.entry.tool.name()
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

    /// Calls the tool with the field `input` of the trigger's context, or with the whole context if the field is missing.
    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        let call_settings = CallSettings {
            timeout: self.profile.timeout,
            may_retry: self.profile.retry.attempts > 1,
            execution: self.profile.execution,
            approval: self.approval,
        };
        answer::execute(&self.entry, context, &self.store, call_settings).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(answer::response(self.id(), trigger, output))
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        let once = self.profile.retry.attempts <= 1;
        Ok(answer::failure(self.id(), trigger, failure, once))
    }
}

impl fmt::Debug for ToolExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolExecutor")
            .field("tool", &self.id())
            .finish_non_exhaustive()
    }
}
