use super::stage::{Input, Output, Stage, ToolCall, ToolResult};
use super::{Decision, Guardrail};
use crate::agent::ChatMessage;
use crate::agent::output::without_escapes;
use crate::clock::within;
use crate::error::{BoxError, Retry, excerpt};
use crate::machine::Answer;
use crate::model::Json;
use futures::FutureExt as _;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// The guardrails of an agent as a chain, in the order in which they run. Empty by default. Clones share the guardrails.
///
/// The maximum size of a replacement is 1 MiB, and 4 MiB for the messages of a request. JSON may nest as deep as the
/// [limit](crate::machine::MachineLimits::DEPTH) of a run.
///
/// Pass the chain to [`Agent::guardrails`](crate::agent::Agent::guardrails) or
/// [`AgentExecutor::with_guardrails`](crate::agent::AgentExecutor::with_guardrails). In a test,
/// call its methods directly.
///
/// # Examples
/// ```
/// use universal_executor::agent::guardrail::{Decision, Guardrails, on_output};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let guardrails = Guardrails::default()
///     .with(on_output("trim", |text| Decision::Replace(text.trim().to_owned())))
///     .with(on_output("loud", |text| Decision::Replace(text.to_uppercase())));
/// assert_eq!(guardrails.output(" hello ".to_owned()).await?, "HELLO");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone)]
pub struct Guardrails {
    chain: Vec<Arc<dyn Guardrail>>,
    time: Duration,
}

impl Guardrails {
    /// Adds a guardrail at the end of the chain.
    ///
    /// The order matters: each guardrail receives the value as the earlier ones replaced it.
    #[must_use]
    pub fn with(mut self, guardrail: impl Guardrail + 'static) -> Self {
        self.chain.push(Arc::new(guardrail));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// Sets the maximum time of each check of each guardrail. Defaults to 10 s.
    ///
    /// After the limit the value is denied. The check needs a tokio runtime with timers.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::agent::guardrail::Guardrails;
    ///
    /// let guardrails = Guardrails::default().time_limit(Duration::from_secs(2));
    /// # drop(guardrails);
    /// ```
    #[must_use]
    pub fn time_limit(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Checks the messages of a model request with all guardrails, and returns the messages to send.
    ///
    /// An agent calls this before each model request, through
    /// [`ProviderTask::request`](crate::agent::ProviderTask::request).
    ///
    /// # Errors
    /// [`Denied`] if a guardrail denies the messages or requests a retry: the model must not be called. `try_again` is always `false`.
    pub async fn input(&self, messages: Vec<ChatMessage>) -> Result<Vec<ChatMessage>, Denied> {
        let checked = self.check(&Input, messages).await;
        checked.map_err(|denied| Denied {
            try_again: false,
            ..denied
        })
    }

    /// Checks the final text of an agent with all guardrails, and returns the permitted text.
    ///
    /// If the text contains JSON, the guardrails see its characters instead of escapes such as `\u0073`, except for control
    /// characters, quotes and backslashes.
    ///
    /// An agent calls this for its final text, and for each output that its model submits.
    ///
    /// # Errors
    /// [`Denied`] if a guardrail rejects the text. If [`try_again`](Denied::try_again) is `true`, the model may receive the reason and
    /// answer again.
    pub async fn output(&self, text: String) -> Result<String, Denied> {
        let text = match self.is_empty() {
            true => text,
            false => without_escapes(text),
        };
        self.check(&Output, text).await
    }

    /// Checks an additional output that a model submitted by a tool call, and returns the output for the agent's response.
    ///
    /// # Errors
    /// The answer of the call: an error with the code `denied` or `try_again`.
    pub(in crate::agent) async fn submitted_output(&self, output: Json) -> Result<Json, Answer> {
        const EFFECT: &str = "the output was not accepted";
        let text = output.to_string();
        let passed = self.output(text.clone()).await;
        let passed = passed.map_err(|denied| denied.into_answer(EFFECT))?;
        if passed == text {
            return Ok(output);
        }
        Json::from_text(passed).map_err(|error| {
            let reason =
                format!("{EFFECT}, because a guardrail replaced it by invalid JSON: {error}");
            Answer::error("denied", reason)
        })
    }

    /// Checks a tool call with all guardrails, and returns the arguments for the tool.
    ///
    /// An agent calls this before each call, and again for arguments that a person changed.
    ///
    /// # Errors
    /// The answer of a call that must not be made: an error with the code `denied` or `try_again`.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::guardrail::{Decision, Guardrails, on_tool_call};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let guardrails = Guardrails::default().with(on_tool_call("no-delete", |tool, _| match tool {
    ///     "delete" => Decision::deny("nothing may be deleted"),
    ///     _ => Decision::Allow,
    /// }));
    /// assert!(guardrails.tool_call("delete", json!({}).into()).await.is_err());
    /// assert!(guardrails.tool_call("read", json!({}).into()).await.is_ok());
    /// # });
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn tool_call(&self, tool: &str, arguments: Json) -> Result<Json, Answer> {
        let checked = self.check(&ToolCall { tool }, arguments).await;
        checked.map_err(|denied| denied.into_answer("the call was not made"))
    }

    /// Checks the result of a tool call with all guardrails, and returns the result for the model: the same, a replacement, or an error
    /// with the code `denied` or `try_again`.
    ///
    /// An agent calls this before the model receives the result. The tool has already been called.
    pub async fn tool_result(&self, tool: &str, answer: Answer) -> Answer {
        let checked = self.check(&ToolResult { tool }, answer).await;
        checked.unwrap_or_else(|denied| {
            denied.into_answer("the tool was called, and its result is withheld")
        })
    }

    async fn check<S: Stage>(&self, stage: &S, mut value: S::Value) -> Result<S::Value, Denied> {
        for guardrail in &self.chain {
            let guardrail = &**guardrail;
            // The call is inside the block, so that a panic before the method returns its future is caught, too.
            let run = AssertUnwindSafe(async { stage.run(guardrail, &value).await });
            let decision = match within(self.time, run.catch_unwind()).await {
                Some(Ok(Ok(Decision::Replace(other)))) if !S::is_within_limit(&other) => {
                    Err(Failure::TooLarge)
                }
                Some(Ok(Ok(decision))) => Ok(decision),
                Some(Ok(Err(error))) => Err(Failure::Error(error)),
                // The message of a panic can contain a secret, so it is dropped.
                Some(Err(_)) => Err(Failure::Panicked),
                None => Err(Failure::TimedOut),
            };
            match decision {
                Ok(Decision::Allow) => {}
                Ok(Decision::Replace(other)) => value = other,
                Ok(Decision::Deny { reason }) => {
                    return Err(Denied::decided(guardrail.name(), S::WHAT, &reason, false));
                }
                Ok(Decision::Retry { reason }) => {
                    return Err(Denied::decided(guardrail.name(), S::WHAT, &reason, true));
                }
                Err(failure) => return Err(Denied::failed(guardrail.name(), S::WHAT, failure)),
            }
        }
        Ok(value)
    }
}

impl Default for Guardrails {
    fn default() -> Self {
        Self {
            chain: Vec::new(),
            time: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for Guardrails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.chain.iter().map(|guardrail| guardrail.name());
        f.debug_list().entries(names).finish()
    }
}

/// Error of a model input, a model output, a tool call or a tool result that a guardrail denied.
///
/// A run that fails with this error writes a dead letter with the code `denied`. The requester sees
/// the reason, so a reason must not contain secrets.
#[derive(Debug, thiserror::Error)]
#[error("guardrail {guardrail:?} denied the {what}: {reason}")]
#[non_exhaustive]
pub struct Denied {
    /// The name of the guardrail that denied the value.
    pub guardrail: String,
    /// The kind of the denied value, one of `input`, `output`, `tool call` or `tool result`.
    pub what: &'static str,
    /// The reason that the guardrail gives for its denial, as text for the model or for the user or service that requested the
    /// run, truncated to 1,024 bytes. If the guardrail failed, the reason contains no details.
    pub reason: String,
    /// If `true`, the model may provide another value instead of the denied value.
    ///
    /// `true` only for [`Decision::Retry`] about an output, a tool call or a tool result.
    pub try_again: bool,
    /// The error with which the guardrail failed, or `None` if the guardrail itself denied the value.
    ///
    /// For a panic, a timeout and a replacement that is too large, the error names only the cause.
    pub source: Option<BoxError>,
}

impl Denied {
    /// Maximum size in bytes of the reason that a guardrail gives for a denial.
    const REASON_BYTES: usize = 1024;

    /// Returns [`Retry::Never`], because a run never repeats the check of a denied value. This includes a value that is denied because the
    /// guardrail failed. A guardrail that calls a service must make its own retries within its time limit.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }

    fn decided(guardrail: &str, what: &'static str, reason: &str, try_again: bool) -> Self {
        Self {
            guardrail: guardrail.to_owned(),
            what,
            reason: excerpt(reason, Self::REASON_BYTES).into_owned(),
            try_again,
            source: None,
        }
    }

    fn failed(guardrail: &str, what: &'static str, failure: Failure) -> Self {
        // The error can quote the checked value, so it is not logged.
        let failure_kind = failure.description();
        tracing::warn!(
            guardrail,
            what,
            failure = failure_kind,
            "a guardrail failed, so the value that it checked is denied"
        );
        let source = match failure {
            Failure::Error(error) => error,
            Failure::Panicked | Failure::TooLarge | Failure::TimedOut => {
                format!("the guardrail {failure_kind}").into()
            }
        };
        let reason = "the check failed";
        Self {
            source: Some(source),
            ..Self::decided(guardrail, what, reason, false)
        }
    }

    /// Returns the error that the model receives instead of the result of a denied tool call.
    fn into_answer(self, effect: &str) -> Answer {
        let code = match self.try_again {
            true => "try_again",
            false => "denied",
        };
        let (guardrail, reason) = (self.guardrail, self.reason);
        let message = format!("{effect}, because of guardrail {guardrail:?}: {reason}");
        Answer::error(code, message)
    }
}

/// The reason why a guardrail made no decision: an error, a panic, a timeout, or a replacement that is too large.
enum Failure {
    Error(BoxError),
    Panicked,
    TooLarge,
    TimedOut,
}

impl Failure {
    fn description(&self) -> &'static str {
        match self {
            Self::Error(_) => "failed",
            Self::Panicked => "panicked",
            Self::TooLarge => "returned a replacement that is too large or nests too deep",
            Self::TimedOut => "exceeded its time limit",
        }
    }
}
