//! Functions that create guardrails from closures.

use super::{Decision, Guardrail};
use crate::agent::ChatMessage;
use crate::error::BoxError;
use crate::machine::Answer;
use crate::model::Json;
use async_trait::async_trait;

/// Creates a guardrail from a function that checks the messages of model requests.
///
/// The function must not block. For an async check, implement [`Guardrail`].
///
/// ```
/// use universal_executor::agent::ChatMessage;
/// use universal_executor::agent::guardrail::{Decision, Guardrails, on_input};
///
/// let guardrails = Guardrails::default().with(on_input("no-secrets", |messages| {
///     match messages.iter().any(|message| message.text().contains("BEGIN PRIVATE KEY")) {
///         true => Decision::deny("a private key must not reach the model"),
///         false => Decision::Allow,
///     }
/// }));
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// assert!(guardrails.input(vec![ChatMessage::user("-----BEGIN PRIVATE KEY-----")]).await.is_err());
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn on_input<F>(name: impl Into<String>, check: F) -> impl Guardrail
where
    F: Fn(&[ChatMessage]) -> Decision<Vec<ChatMessage>> + Send + Sync,
{
    OnInput(name.into(), check)
}

/// Creates a guardrail from a function that checks the final text of an agent and the outputs that its model submits.
///
/// The function also receives the JSON text of each submitted output.
///
/// ```
/// use universal_executor::agent::guardrail::{Decision, Guardrails, on_output};
///
/// let guardrails = Guardrails::default().with(on_output("short", |text| match text.len() {
///     0..=280 => Decision::Allow,
///     _ => Decision::retry("the answer is too long; say it in 280 characters"),
/// }));
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let denied = guardrails.output("blah ".repeat(100)).await.unwrap_err();
/// assert!(denied.try_again);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn on_output<F>(name: impl Into<String>, check: F) -> impl Guardrail
where
    F: Fn(&str) -> Decision<String> + Send + Sync,
{
    OnOutput(name.into(), check)
}

/// Creates a guardrail from a function that checks tool calls before they are made. The [module](super) has an example.
///
/// The function receives the tool name as the model wrote it, and the arguments.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::guardrail::{Decision, Guardrails, on_tool_call};
///
/// let guardrails = Guardrails::default().with(on_tool_call("capped", |_, arguments| {
///     match arguments["cents"].as_u64() {
///         Some(cents) if cents <= 10_000 => Decision::Allow,
///         Some(_) | None => Decision::retry("at most 10,000 cents"),
///     }
/// }));
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let refund = json!({"cents": 50_000});
/// assert!(guardrails.tool_call("refund", refund.into()).await.is_err());
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn on_tool_call<F>(name: impl Into<String>, check: F) -> impl Guardrail
where
    F: Fn(&str, &Json) -> Decision<Json> + Send + Sync,
{
    OnToolCall(name.into(), check)
}

/// Creates a guardrail from a function that checks the results of tool calls.
///
/// The answer can be an error of the tool.
///
/// ```
/// use serde_json::json;
/// use universal_executor::agent::guardrail::{Decision, Guardrails, on_tool_result};
/// use universal_executor::machine::Answer;
///
/// let guardrails = Guardrails::default().with(on_tool_result("no-email", |tool, _| match tool {
///     "customer" => Decision::Replace(Answer::success(json!({"name": "Ann"}))),
///     _ => Decision::Allow,
/// }));
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let found = Answer::success(json!({"name": "Ann", "email": "ann@example.org"}));
/// let shown = guardrails.tool_result("customer", found).await;
/// assert_eq!(shown, Answer::success(json!({"name": "Ann"})));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn on_tool_result<F>(name: impl Into<String>, check: F) -> impl Guardrail
where
    F: Fn(&str, &Answer) -> Decision<Answer> + Send + Sync,
{
    OnToolResult(name.into(), check)
}

struct OnInput<F>(String, F);

struct OnOutput<F>(String, F);

struct OnToolCall<F>(String, F);

struct OnToolResult<F>(String, F);

#[async_trait]
impl<F> Guardrail for OnInput<F>
where
    F: Fn(&[ChatMessage]) -> Decision<Vec<ChatMessage>> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.0
    }

    async fn input(
        &self,
        messages: &[ChatMessage],
    ) -> Result<Decision<Vec<ChatMessage>>, BoxError> {
        Ok((self.1)(messages))
    }
}

#[async_trait]
impl<F> Guardrail for OnOutput<F>
where
    F: Fn(&str) -> Decision<String> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.0
    }

    async fn output(&self, text: &str) -> Result<Decision<String>, BoxError> {
        Ok((self.1)(text))
    }
}

#[async_trait]
impl<F> Guardrail for OnToolCall<F>
where
    F: Fn(&str, &Json) -> Decision<Json> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.0
    }

    async fn tool_call(&self, tool: &str, arguments: &Json) -> Result<Decision<Json>, BoxError> {
        Ok((self.1)(tool, arguments))
    }
}

#[async_trait]
impl<F> Guardrail for OnToolResult<F>
where
    F: Fn(&str, &Answer) -> Decision<Answer> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.0
    }

    async fn tool_result(&self, tool: &str, answer: &Answer) -> Result<Decision<Answer>, BoxError> {
        Ok((self.1)(tool, answer))
    }
}
