use super::context::{request_id, requested_by, workspace};
use super::{Tool, ToolContext, ToolError};
use crate::clock;
use crate::error::BoxError;
use crate::executor::{
    ExecutionContext, Failure, Profile, Response, RetryPolicy, Suspension, UniversalExecutor,
    Verdict, check, own_verdict,
};
use crate::model::{Breadcrumb, NewBreadcrumb, Subscription, Subscriptions, Timestamp};
use crate::store::BreadcrumbStore;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A tool with subscriptions and a store: answers every trigger with a `tool.response.v1`, success or error.
///
/// A tool that is not marked [`idempotent`](Self::idempotent) runs once per request: after a crash, a timeout or a
/// panic whoever asked gets an error, and a dead letter is left.
pub struct ToolExecutor {
    tool: Arc<dyn Tool>,
    store: Arc<dyn BreadcrumbStore>,
    subscriptions: Subscriptions,
    profile: Profile,
}

impl ToolExecutor {
    /// The schema of what a tool answers.
    pub const RESPONSE: &'static str = "tool.response.v1";
    /// The schema of a request.
    pub const REQUEST: &'static str = "tool.request.v1";

    /// A tool that is triggered by requests for it: `tool.request.v1` with its name under `tool`.
    ///
    /// # Errors
    /// [`ToolError::BadName`].
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
    pub fn from_definition(
        definition: &Value,
        tool: impl Tool + 'static,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        let context = definition.get("context").unwrap_or(definition);
        let defined = context.get("name").and_then(Value::as_str);
        let defined = defined.ok_or(ToolError::Field {
            field: "name",
            expected: "a string",
        })?;
        if defined != tool.name() {
            return Err(ToolError::OtherTool {
                defined: defined.to_owned(),
                name: tool.name().to_owned(),
            });
        }
        let subscriptions =
            Subscriptions::from_json(context).map_err(|source| ToolError::Subscriptions {
                name: defined.to_owned(),
                source,
            })?;
        let schemas = match context.get("responds_with") {
            None | Some(Value::Null) => Vec::new(),
            Some(list) => serde_json::from_value::<Vec<String>>(list.clone()).map_err(|_| {
                ToolError::Field {
                    field: "responds_with",
                    expected: "a list of schema names",
                }
            })?,
        };
        let mut executor =
            Self::with_subscriptions(tool, subscriptions, store)?.also_writes(schemas);
        executor.profile = executor.profile.definition(&context.to_string());
        Ok(executor)
    }

    /// A tool with subscriptions of its own; several triggers run it for each.
    ///
    /// # Errors
    /// [`ToolError::BadName`]; [`ToolError::Invalid`] if a trigger asks for what the store cannot give.
    pub fn with_subscriptions(
        tool: impl Tool + 'static,
        subscriptions: Subscriptions,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, ToolError> {
        if !is_name(tool.name()) {
            return Err(ToolError::BadName {
                name: crate::error::excerpt(tool.name(), 80).into_owned(),
            });
        }
        let profile = Profile::new("tool")
            .responds_with([Self::RESPONSE])
            .timeout(Duration::from_secs(30))
            .retry(RetryPolicy::never());
        let executor = Self {
            tool: Arc::new(tool),
            store,
            subscriptions,
            profile,
        };
        check(&executor)?;
        Ok(executor)
    }

    /// Says that calling it twice does no harm: after a crash, a timeout or a panic it is tried again.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.profile = self.profile.retry(RetryPolicy::default());
        self
    }

    /// Lets it write other schemas than its response, through [`ToolContext::store`].
    #[must_use]
    pub fn also_writes<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        let allowed = self.profile.responds_with.get_or_insert_default();
        allowed.extend(schemas.into_iter().map(Into::into));
        self
    }

    /// Sets how long a call may take; 30 s by default.
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
        &*self.tool
    }

    fn response(&self, trigger: &Breadcrumb, outcome: Value) -> Response {
        let request_id = request_id(trigger);
        let now = Timestamp::from_micros(clock::wall_micros());
        let mut context =
            json!({"request_id": request_id, "tool": self.tool.name(), "timestamp": now});
        if let (Value::Object(fields), Value::Object(outcome)) = (&mut context, outcome) {
            fields.extend(outcome);
            if let Some(name) = requested_by(trigger) {
                fields.insert("requestedBy".to_owned(), name.into());
            }
        }
        let response = NewBreadcrumb::new(Self::RESPONSE)
            .title(format!("Response: {}", self.tool.name()))
            .tags([workspace(trigger), "tool:response"])
            .context(context);
        let tag = format!("request:{request_id}");
        // An id too long for a tag must not cost whoever asked the answer; it is in the context too.
        if tag.len() > Breadcrumb::MAX_TAG_BYTES {
            return Response::create(response);
        }
        Response::create(response.tag(tag))
    }
}

#[async_trait]
impl UniversalExecutor for ToolExecutor {
    fn id(&self) -> &str {
        self.tool.name()
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
    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        let input = trigger
            .context
            .get("input")
            .unwrap_or(&trigger.context)
            .clone();
        let started = Instant::now();
        let called = self
            .tool
            .call(input, ToolContext::new(context, &self.store))
            .await;
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, field, value) = match called {
            Ok(output) => ("success", "output", output),
            Err(error) if self.goes_on_later(&error) => return Err(error),
            Err(error) => ("error", "error", error.to_string().into()),
        };
        let mut answer = json!({"status": status, "execution_time_ms": millis});
        // Moved in, since json! would copy it level by level and output may nest without end.
        if let Value::Object(fields) = &mut answer {
            fields.insert(field.to_owned(), value);
        }
        Ok(answer)
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(self.response(trigger, output))
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        Ok(self.response(
            trigger,
            json!({"status": "error", "error": failure.message}),
        ))
    }
}

impl ToolExecutor {
    /// Whether an error is no answer yet.
    fn goes_on_later(&self, error: &BoxError) -> bool {
        if error.is::<Suspension>() {
            return true;
        }
        match own_verdict(error.as_ref()) {
            Some(Verdict::RateLimited(_)) => true,
            Some(Verdict::Transient(_)) => self.profile.retry.attempts > 1,
            Some(Verdict::Permanent) | None => false,
        }
    }
}

impl fmt::Debug for ToolExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolExecutor")
            .field("tool", &self.tool.name())
            .finish_non_exhaustive()
    }
}

fn is_name(name: &str) -> bool {
    let allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    (1..=64).contains(&name.len()) && name.chars().all(allowed)
}
