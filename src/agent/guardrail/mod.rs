//! Guardrails: checks around what a model is shown, what an agent answers, and the calls of its tools.
//!
//! A [`Guardrail`] looks at one thing and [decides](Decision): it lets it pass, puts something else in its place, denies
//! it, or asks for another try. [`Guardrails`] is a chain of them. They are asked in order, each sees what those before it
//! have put in place, and the first that denies or asks for another try ends the chain.
//!
//! | what is checked | when | denied | another try |
//! |---|---|---|---|
//! | [input](Guardrail::input) | before each time the model is asked | it is not asked, the run ends | as denied |
//! | [output](Guardrail::output) | the text that the agent ends with | the run ends | the model is told why and asked again |
//! | [output](Guardrail::output) | an output that the model hands in, as JSON | the model sees an error, `denied` | the model sees an error, `try_again` |
//! | [tool call](Guardrail::tool_call) | before the tool is called | the model sees an error, `denied` | the model sees an error, `try_again` |
//! | [tool result](Guardrail::tool_result) | before the model sees it | an error in its place, `denied` | an error in its place, `try_again` |
//!
//! A guardrail that fails, panics, takes too long or puts something too large in place denies. What its error says is the
//! source of the [error of the run](Denied), in no log, and neither model nor user reads it.
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

/// Checks some of what goes through an agent; see the [module](self) for when it is asked, and what follows.
///
/// What it has no method for passes, so one that wraps another has to forward all of them. For checks that need nothing
/// but a function there are [`on_input`], [`on_output`], [`on_tool_call`] and [`on_tool_result`].
///
/// Each check has its [time](Guardrails::time_limit), after which it is dropped where it waits; one that blocks the thread
/// is not interrupted. It may be asked for the same thing again, by another attempt at the run.
#[expect(
    unused_variables,
    reason = "a default method lets everything pass, and the docs show the names of its arguments"
)]
#[async_trait]
pub trait Guardrail: Send + Sync {
    /// What it is called in errors and logs, and towards the model.
    fn name(&self) -> &str;

    /// Looks at the messages that a model is about to be shown: all of them, each time.
    ///
    /// One that replaces them has to leave the results of tools with the calls that they answer, or the model's provider
    /// will not take them.
    ///
    /// # Errors
    /// An error denies.
    async fn input(
        &self,
        messages: &[ChatMessage],
    ) -> Result<Decision<Vec<ChatMessage>>, BoxError> {
        Ok(Decision::Allow)
    }

    /// Checks the text that an agent ends with, and each output that its model hands in, as JSON.
    ///
    /// JSON has no escapes here except those of control characters, quotes and backslashes.
    ///
    /// # Errors
    /// An error denies.
    async fn output(&self, text: &str) -> Result<Decision<String>, BoxError> {
        Ok(Decision::Allow)
    }

    /// Looks at a call before it is made: the tool, as the model wrote its name, and what it would be given.
    ///
    /// # Errors
    /// An error denies.
    async fn tool_call(&self, tool: &str, arguments: &Json) -> Result<Decision<Json>, BoxError> {
        Ok(Decision::Allow)
    }

    /// Looks at what a call came to, which may be an error, before the model sees it.
    ///
    /// # Errors
    /// An error denies.
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

/// What a guardrail makes of what it looked at.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision<T> {
    /// It passes as it is.
    Allow,
    /// This passes in its place.
    Replace(T),
    /// It does not pass.
    Deny {
        /// Why, for the model or whoever asked the agent: no secrets.
        reason: String,
    },
    /// It does not pass, but another one may.
    Retry {
        /// What is wrong with it, for the model to mend.
        reason: String,
    },
}

impl<T> Decision<T> {
    /// It does not pass, because of this.
    #[must_use]
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny {
            reason: reason.into(),
        }
    }

    /// It does not pass before this is mended.
    #[must_use]
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry {
            reason: reason.into(),
        }
    }
}
