//! Guardrails: checks of an agent's model input, model output, tool calls and tool results.
//!
//! Use guardrails to filter secrets, to block calls, or to enforce a form of answers. A [`Guardrail`] checks one value and returns a
//! [`Decision`]: allow, replace, deny or retry. [`Guardrails`] is a chain. Its guardrails run in order, and each receives the value as the
//! guardrails before have replaced it. The first guardrail that denies or requests a retry ends the chain. For a check in a function,
//! see [`on_input`], [`on_output`], [`on_tool_call`] and [`on_tool_result`].
//!
//! | checked value | time of the check | `Deny` | `Retry` |
//! |---|---|---|---|
//! | [input](Guardrail::input) | before each model request | the model is not called, the run fails | same as `Deny` |
//! | [output](Guardrail::output), the final text | before the run ends | the run fails | the model receives the reason and answers again, once in a run; then the run fails |
//! | [output](Guardrail::output), a submitted output | before the call succeeds | the call has the error `denied` | the error `try_again` |
//! | [tool call](Guardrail::tool_call) | before the tool is called | the call has the error `denied` | the error `try_again` |
//! | [tool result](Guardrail::tool_result) | before the model receives it | the call has the error `denied` | the error `try_again` |
//!
//! A guardrail denies if it fails, panics, exceeds its time limit or returns a replacement that is too large. Its error is the source of
//! [`Denied`]. The error is not logged, and neither the model nor the user receives it.
//!
//! ```
//! use serde_json::json;
//! use universal_executor::agent::guardrail::{Decision, Guardrails, on_output, on_tool_call};
//! use universal_executor::machine::Answer;
//!
//! let guardrails = Guardrails::default()
//!     .with(on_tool_call("no-prod", |_tool, arguments| match arguments.text("env") {
//!         Some("prod") => Decision::deny("nothing may be done to prod"),
//!         Some(_) | None => Decision::Allow,
//!     }))
//!     .with(on_output("no-keys", |text| Decision::Replace(text.replace("sk-1234", "[key]"))));
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let denied = guardrails.tool_call("deploy", json!({"env": "prod"}).into()).await;
//! assert!(matches!(denied, Err(Answer::Error { code, .. }) if code == "denied"));
//!
//! let answer = guardrails.output("The key is sk-1234.".to_owned()).await?;
//! assert_eq!(answer, "The key is [key].");
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```

mod chain;
mod closures;
mod stage;
#[cfg(test)]
mod tests;

pub use chain::{Denied, Guardrails};
pub use closures::{on_input, on_output, on_tool_call, on_tool_result};

use super::ChatMessage;
use crate::error::BoxError;
use crate::machine::Answer;
use crate::model::Json;
use async_trait::async_trait;
use std::sync::Arc;

/// A check of the values that enter or leave an agent's model. The [module](self) lists the times and the effects of the checks.
///
/// The default methods allow everything, so a guardrail that wraps another must forward all methods. For a check in a function, use
/// [`on_input`], [`on_output`], [`on_tool_call`] or [`on_tool_result`].
///
/// Implement the trait for a check that calls a service or covers several kinds of values. Each
/// check delays the run. An agent with any guardrail sends no part of an answer to chat clients
/// before its end.
///
/// # Cancel safety
/// Each check has a [time limit](Guardrails::time_limit), after which its future is dropped. A check that blocks its thread
/// is not interrupted. A retry of the run can check the same value again.
///
/// # Examples
/// ```
/// use universal_executor::agent::guardrail::{Decision, Guardrail, Guardrails};
/// use universal_executor::{BoxError, async_trait};
///
/// struct NoLinks;
///
/// #[async_trait]
/// impl Guardrail for NoLinks {
///     fn name(&self) -> &str {
///         "no-links"
///     }
///     async fn output(&self, text: &str) -> Result<Decision<String>, BoxError> {
///         Ok(match text.contains("http") {
///             true => Decision::retry("answer without links"),
///             false => Decision::Allow,
///         })
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let guardrails = Guardrails::default().with(NoLinks);
/// let denied = guardrails.output("See http://example.com".to_owned()).await.unwrap_err();
/// assert!(denied.try_again);
/// # });
/// # Ok::<(), BoxError>(())
/// ```
#[expect(
    unused_variables,
    reason = "a default method allows everything, and the docs show the names of its arguments"
)]
#[async_trait]
pub trait Guardrail: Send + Sync {
    /// Returns the name of the guardrail in errors, in logs and for the model.
    ///
    /// Choose a short name without secrets, such as `no-keys`. It need not be unique.
    fn name(&self) -> &str;

    /// Checks all messages of a model request, before each request.
    ///
    /// A replacement must keep each tool result with its call. Otherwise the provider rejects the request.
    ///
    /// [`Decision::Retry`] has the same effect as [`Decision::Deny`]: the run fails.
    ///
    /// # Errors
    /// An error denies the request.
    async fn input(
        &self,
        messages: &[ChatMessage],
    ) -> Result<Decision<Vec<ChatMessage>>, BoxError> {
        Ok(Decision::Allow)
    }

    /// Checks the final text of an agent, and the JSON text of each output that the agent's model submits.
    ///
    /// JSON in `text` has no escapes except those of control characters, quotes and backslashes.
    ///
    /// # Errors
    /// An error denies the text.
    async fn output(&self, text: &str) -> Result<Decision<String>, BoxError> {
        Ok(Decision::Allow)
    }

    /// Checks a tool call before it is made. `tool` is the tool name as the model wrote it.
    ///
    /// A replacement changes the arguments that the tool receives. The check precedes the question
    /// for an approval, so a person sees the replacement. Calls of other agents are checked, too.
    ///
    /// # Errors
    /// An error denies the call.
    async fn tool_call(&self, tool: &str, arguments: &Json) -> Result<Decision<Json>, BoxError> {
        Ok(Decision::Allow)
    }

    /// Checks the result of a tool call, which can be an error, before the model receives it.
    ///
    /// The tool has done its work, so a denial does not undo its effects.
    ///
    /// # Errors
    /// An error withholds the result.
    async fn tool_result(&self, tool: &str, answer: &Answer) -> Result<Decision<Answer>, BoxError> {
        Ok(Decision::Allow)
    }
}

#[async_trait]
impl<T: Guardrail + ?Sized> Guardrail for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    async fn input(
        &self,
        messages: &[ChatMessage],
    ) -> Result<Decision<Vec<ChatMessage>>, BoxError> {
        (**self).input(messages).await
    }

    async fn output(&self, text: &str) -> Result<Decision<String>, BoxError> {
        (**self).output(text).await
    }

    async fn tool_call(&self, tool: &str, arguments: &Json) -> Result<Decision<Json>, BoxError> {
        (**self).tool_call(tool, arguments).await
    }

    async fn tool_result(&self, tool: &str, answer: &Answer) -> Result<Decision<Answer>, BoxError> {
        (**self).tool_result(tool, answer).await
    }
}

/// The decision of a [`Guardrail`] about a value.
///
/// `T` is the type of the checked value: messages, a text, arguments or a result.
///
/// # Examples
/// ```
/// use universal_executor::agent::guardrail::Decision;
///
/// fn check(text: &str) -> Decision<String> {
///     match text.trim() {
///         "" => Decision::retry("the answer is empty"),
///         text if text.contains("password") => Decision::deny("secrets"),
///         text => Decision::Replace(text.to_owned()),
///     }
/// }
/// assert_eq!(check(" Hello "), Decision::Replace("Hello".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Decision<T> {
    /// The checked value passes the guardrail unchanged.
    Allow,
    /// This value replaces the value that the guardrail checked.
    ///
    /// A replacement over the [size limits](Guardrails) denies the value.
    Replace(T),
    /// The checked value does not pass the guardrail.
    Deny {
        /// The reason for the denial, as text for the model or for the user or service that requested the run. It must not
        /// contain secrets.
        reason: String,
    },
    /// The checked value does not pass the guardrail, but the model may provide another value.
    ///
    /// The model answers again once after an output; a second rejected answer fails the run.
    Retry {
        /// The problem with the checked value, as text for the model, which can correct the value.
        reason: String,
    },
}

impl<T> Decision<T> {
    /// Creates a [`Deny`](Self::Deny) decision with a reason, as text for the model or for the user or service that requested the
    /// run.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::guardrail::Decision;
    ///
    /// let decision: Decision<String> = Decision::deny("no prices");
    /// assert!(matches!(decision, Decision::Deny { reason } if reason == "no prices"));
    /// ```
    #[must_use]
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny {
            reason: reason.into(),
        }
    }

    /// Creates a [`Retry`](Self::Retry) decision with a problem, as text for the model, which can correct the checked value.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::guardrail::Decision;
    ///
    /// let decision: Decision<String> = Decision::retry("answer in English");
    /// assert!(matches!(decision, Decision::Retry { .. }));
    /// ```
    #[must_use]
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry {
            reason: reason.into(),
        }
    }
}
