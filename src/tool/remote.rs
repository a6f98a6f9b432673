use super::outcome::{self, Refusal};
use super::settings::{ServedBy, with_settings};
use super::{RetrySafety, Tool, ToolContext, ToolSettings, wire};
use crate::clock::later;
use crate::error::BoxError;
use crate::executor::{ContextError, SentRequest, WaitError};
use crate::machine::Answer;
use crate::model::{Breadcrumb, Order, Selector, request_tag};
use crate::store::{Query, Write};
use async_trait::async_trait;
use futures::poll;
use serde_json::Value;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// A tool that another service serves. This service knows only its name, description, schemas and settings.
///
/// A call writes a `tool.request.v1` breadcrumb as part of the calling run, and waits for the `tool.response.v1`. The request ID is the
/// [idempotency key](ToolContext::idempotency_key) of the call, so a retried run finds its earlier request or the response instead of
/// writing a second request. The tool therefore counts as [`RetrySafety::Idempotent`] by default. The other service decides whether it
/// executes a request once.
///
/// A call needs a [`Runtime`](crate::Runtime), which receives the response, and a caller that may write `tool.request.v1`, see
/// [`responds_with`](crate::Profile::responds_with). Every writer of a `tool.response.v1` in the tenant can answer. A response that an
/// executor wrote counts only if its trigger is the request of this call. The first response that counts is the result, and is checked
/// like the output of a local tool.
///
/// This service does not serve the tool: a [`ToolDispatcher`](super::ToolDispatcher) ignores requests for it, and a
/// [`ToolExecutor`](super::ToolExecutor) for it cannot be created.
///
/// The timeout is the time from the request to the response, and defaults to 30 s. After the
/// timeout, the call is answered with the error `timeout`, and the other service may still execute
/// the request.
#[derive(Clone, Debug)]
pub struct RemoteTool {
    name: String,
    description: String,
    input_schema: Value,
    settings: ToolSettings,
}

/// Creates a tool that another service serves, from the tool's name, its description and the JSON Schema of its input.
///
/// The name must be that of the tool in the other service. With the feature `validate`, this
/// service also checks the input and the result against the schemas.
///
/// ```
/// use serde_json::json;
/// use std::time::Duration;
/// use universal_executor::tool::{ToolRegistry, remote_tool};
///
/// let search = remote_tool("web.search", "Searches the web.", json!({"type": "string"}));
/// let tools = ToolRegistry::default().with(search.timeout(Duration::from_secs(120)))?;
/// assert_eq!(tools.specs()[0].name, "web.search");
/// # Ok::<(), universal_executor::tool::ToolError>(())
/// ```
pub fn remote_tool(
    name: impl Into<String>,
    description: impl Into<String>,
    input_schema: Value,
) -> RemoteTool {
    RemoteTool {
        name: name.into(),
        description: description.into(),
        input_schema,
        settings: ToolSettings {
            retry: RetrySafety::Idempotent,
            over_breadcrumbs: true,
            served_by: ServedBy::OtherService,
            ..ToolSettings::default()
        },
    }
}

#[cfg(feature = "agents")]
impl RemoteTool {
    /// Creates a remote tool from a local tool, with the same name, description, schemas and limits.
    pub(super) fn of(tool: &dyn Tool) -> Self {
        let settings = ToolSettings {
            retry: RetrySafety::Idempotent,
            over_breadcrumbs: true,
            served_by: ServedBy::OtherService,
            ..tool.settings().clone()
        };
        Self {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            input_schema: tool.input_schema().clone(),
            settings,
        }
    }
}

with_settings!(RemoteTool);

#[async_trait]
impl Tool for RemoteTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> &Value {
        &self.input_schema
    }

    fn settings(&self) -> &ToolSettings {
        &self.settings
    }

    async fn call(&self, input: Value, context: ToolContext) -> Result<Value, BoxError> {
        let call = RemoteCall {
            tool: self,
            context: &context,
            id: context.idempotency_key(),
        };
        match call.answer(input).await? {
            Answer::Success(output) => Ok(output.into_value()),
            Answer::Error { code, message } => Err(Refusal::new(code, message).into()),
        }
    }
}

/// One call of a remote tool, from the request to the response.
struct RemoteCall<'c> {
    tool: &'c RemoteTool,
    context: &'c ToolContext,
    id: &'c str,
}

impl RemoteCall<'_> {
    async fn answer(&self, input: Value) -> Result<Answer, BoxError> {
        let end = later(Instant::now(), self.tool.settings.timeout);
        let mut input = Some(input);
        loop {
            // The wait starts before the search, so that no response is missed in between.
            let remaining = end.saturating_duration_since(Instant::now());
            let mut waiting = pin!(self.response(remaining));
            let first_poll = poll!(waiting.as_mut());
            // If no wait is possible, no request is written.
            if let Poll::Ready(Err(error)) = first_poll {
                return Err(self.wait_error(error));
            }
            if let Some(answer) = self.find_answer().await? {
                return Ok(answer);
            }
            if let Some(input) = input.take() {
                self.write_request(input).await?;
            }
            let response = match first_poll {
                Poll::Ready(response) => response,
                Poll::Pending => waiting.await,
            };
            let response = response.map_err(|error| self.wait_error(error))?;
            if let Some(answer) = self.read_answer(&response).await? {
                return Ok(answer);
            }
        }
    }

    /// Waits for the next tool response with the request ID of this call.
    fn response(
        &self,
        within: Duration,
    ) -> impl Future<Output = Result<Arc<Breadcrumb>, ContextError>> + use<> {
        let response = Selector::schema(wire::RESPONSE);
        let response = response.matching("$.request_id", "eq", self.id);
        self.context.wait_for(response, within)
    }

    /// Searches for a tool response to this call's request, which an earlier attempt may have written.
    async fn find_answer(&self) -> Result<Option<Answer>, BoxError> {
        let responses = self.query(wire::RESPONSE).order(Order::OldestFirst);
        let responses = self.context.store().search(&responses).await?;
        for response in &responses {
            if let Some(answer) = self.read_answer(response).await? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Writes the tool request of this call, unless an earlier attempt wrote it.
    async fn write_request(&self, input: Value) -> Result<(), BoxError> {
        let store = self.context.store();
        let (context, tag) = (self.context.context(), request_tag(self.id));
        let earlier = context.find_own(store, wire::REQUEST, &tag);
        if earlier.await?.is_some() {
            return Ok(());
        }
        let caller = self.context.requested_by();
        let request = wire::request(&self.tool.name, input, self.id, caller);
        let writes = vec![Write::Create(request)];
        store.commit(writes.into()).await?;
        Ok(())
    }

    fn query(&self, schema: &str) -> Query {
        Query::new(Selector::schema(schema).all_tags([request_tag(self.id)]))
    }

    /// Reads the answer of the remote tool from a response breadcrumb. Returns `None` if the response does not answer
    /// the request of this call.
    async fn read_answer(&self, response: &Breadcrumb) -> Result<Option<Answer>, BoxError> {
        let answer_in = |shown| wire::answer_of(response, shown, self.id, &self.tool.name);
        if answer_in(&response.context).is_none() {
            return Ok(None);
        }
        let sent_request = SentRequest {
            schema: wire::REQUEST,
            request_id: self.id,
            of_person: false,
        };
        let (context, store) = (self.context.context(), self.context.store());
        if !context.accepts(response, sent_request, store).await? {
            return Ok(None);
        }
        let answer = match context.shown(response, store).await {
            Ok(shown) => answer_in(&shown),
            Err(ContextError::Withheld { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Some(answer.unwrap_or_else(outcome::withheld)))
    }

    fn wait_error(&self, error: ContextError) -> BoxError {
        if !matches!(error, ContextError::Wait(WaitError::TimedOut { .. })) {
            return error.into();
        }
        let time = self.tool.settings.timeout;
        let message =
            format!("no response arrived within {time:?}; the tool may have done its work");
        Refusal::new("timeout", message).into()
    }
}
