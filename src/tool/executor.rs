use super::answer::{self, Terms};
use super::entry::{ApprovalState, Entry};
use super::progress::PROGRESS;
use super::settings::Place;
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

/// A tool with subscriptions and a store: answers every trigger with a `tool.response.v1`, success or error.
///
/// It is called as its [`ToolSettings`](super::ToolSettings) say. A tool that is not marked
/// [`idempotent`](Self::idempotent) runs once per request: after a crash, a timeout or a panic whoever asked gets an
/// error, and a dead letter is left. [`ToolDispatcher`](super::ToolDispatcher) serves many tools in the same way.
pub struct ToolExecutor {
    entry: Entry,
    store: Arc<dyn BreadcrumbStore>,
    subscriptions: Subscriptions,
    profile: Profile,
    approval: ApprovalState,
}

impl ToolExecutor {
    /// The schema of what a tool answers.
    pub const RESPONSE: &'static str = wire::RESPONSE;
    /// The schema of a request.
    pub const REQUEST: &'static str = wire::REQUEST;

    /// A tool that is triggered by requests for it: `tool.request.v1` with its name under `tool`.
    ///
    /// # Errors
    /// [`ToolError::BadName`], [`ToolError::BadSchema`], [`ToolError::Elsewhere`]; [`ToolError::Invalid`] of a tool that
    /// runs at most once on a store without a ledger.
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

    /// A tool as a definition has it: a `tool.v1` breadcrumb or its context, with `name` and `subscriptions`, and
    /// `responds_with` if it writes other schemas than its response.
    ///
    /// # Errors
    /// [`ToolError`] names the field to mend, or that the definition is of another tool.
    #[track_caller]
    pub fn from_definition(
        definition: &Value,
        tool: impl Tool + 'static,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        Self::from_read_definition(&ToolDefinition::from_json(definition)?, tool, store)
    }

    /// Creates the executor of a definition that was read with options.
    ///
    /// # Errors
    /// See [`from_definition`](Self::from_definition).
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

    /// A tool with subscriptions of its own; several triggers run it for each.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`ToolError::Invalid`] if a trigger asks for what the store cannot give.
    #[track_caller]
    pub fn with_subscriptions(
        tool: impl Tool + 'static,
        subscriptions: Subscriptions,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        let entry = Entry::new(Arc::new(tool), Location::caller())?;
        let settings = entry.tool.settings();
        if settings.place == Place::Elsewhere {
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

    /// Says that calling it twice does no harm: after a crash, a timeout or a panic it is tried again.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.profile = RetrySafety::Idempotent.apply(self.profile);
        self
    }

    /// Lets it write other schemas than its response and `tool.progress.v1`, through
    /// [`ToolContext::store`](super::ToolContext::store).
    #[must_use]
    pub fn also_writes<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        let allowed = self.profile.responds_with.get_or_insert_default();
        allowed.extend(schemas.into_iter().map(Into::into));
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

    /// Sets how long a call may take, instead of what its settings say.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.profile = self.profile.timeout(timeout);
        self
    }

    /// Replaces how its runs are leased, timed, retried, ordered and limited; kind, definition and schemas stay.
    ///
    /// Whether it is tried again is then what the profile says: begin with the one it has, of
    /// [`profile`](UniversalExecutor::profile).
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile.in_place_of(self.profile);
        self
    }

    /// The tool.
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

    /// Calls the tool with `input` of the trigger's context, else with the whole context.
    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        let terms = Terms {
            time: self.profile.timeout,
            again: self.profile.retry.attempts > 1,
            execution: self.profile.execution,
            approval: self.approval,
        };
        answer::execute(&self.entry, context, &self.store, terms).await
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
