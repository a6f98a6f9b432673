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

/// Guardrails in the order in which they are asked; none by default. A clone has the same ones.
///
/// What a guardrail puts in place may have up to 1 MiB, messages together 4 MiB, and nest as deep as a run keeps.
#[derive(Clone)]
pub struct Guardrails {
    chain: Vec<Arc<dyn Guardrail>>,
    time: Duration,
}

impl Guardrails {
    /// Adds one, which is asked after those that are there.
    #[must_use]
    pub fn with(mut self, guardrail: impl Guardrail + 'static) -> Self {
        self.chain.push(Arc::new(guardrail));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// Sets how long each check of each guardrail may take; 10 s by default.
    #[must_use]
    pub fn time_limit(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Checks the messages that a model is about to be shown, and gives those that it may be shown.
    ///
    /// # Errors
    /// [`Denied`], never with another try: the model must not be asked.
    pub async fn input(&self, messages: Vec<ChatMessage>) -> Result<Vec<ChatMessage>, Denied> {
        let checked = self.check(&Input, messages).await;
        checked.map_err(|denied| Denied {
            try_again: false,
            ..denied
        })
    }

    /// Checks the text that an agent ends with, and returns the one it may end with.
    ///
    /// If the text contains JSON, the guardrails see its characters instead of escapes such as `\u0073`, except for control
    /// characters, quotes and backslashes.
    ///
    /// # Errors
    /// [`Denied`]; if it says [`try_again`](Denied::try_again), the model may be told the reason and asked again.
    pub async fn output(&self, text: String) -> Result<String, Denied> {
        let text = match self.is_empty() {
            true => text,
            false => without_escapes(text),
        };
        self.check(&Output, text).await
    }

    /// Checks an output that a model handed in by a call, and returns the one that the response may contain.
    ///
    /// # Errors
    /// The answer of the call: an error with the code `denied` or `try_again`.
    pub(in crate::agent) async fn handed_in(&self, output: Json) -> Result<Json, Answer> {
        const EFFECT: &str = "the output was not handed in";
        let text = output.to_string();
        let passed = self.output(text.clone()).await;
        let passed = passed.map_err(|denied| denied.answer(EFFECT))?;
        if passed == text {
            return Ok(output);
        }
        Json::from_text(passed).map_err(|error| {
            let reason =
                format!("{EFFECT}, because a guardrail replaced it by invalid JSON: {error}");
            Answer::error("denied", reason)
        })
    }

    /// Checks a call, and gives what the tool may be called with.
    ///
    /// # Errors
    /// The answer of a call that must not be made: an error of the code `denied` or `try_again`.
    pub async fn tool_call(&self, tool: &str, arguments: Json) -> Result<Json, Answer> {
        let checked = self.check(&ToolCall { tool }, arguments).await;
        checked.map_err(|denied| denied.answer("the call was not made"))
    }

    /// Checks what a call came to, and gives what the model may see of it: this, what was put in its place, or an error
    /// of the code `denied` or `try_again`.
    pub async fn tool_result(&self, tool: &str, answer: Answer) -> Answer {
        let checked = self.check(&ToolResult { tool }, answer).await;
        checked.unwrap_or_else(|denied| {
            denied.answer("the tool was called, and its result is withheld")
        })
    }

    async fn check<S: Stage>(&self, stage: &S, mut value: S::Value) -> Result<S::Value, Denied> {
        for guardrail in &self.chain {
            let guardrail = &**guardrail;
            // Asked within the block, so that one that panics before it gives a future is caught as well.
            let asked = AssertUnwindSafe(async { stage.ask(guardrail, &value).await });
            let decision = match within(self.time, asked.catch_unwind()).await {
                Some(Ok(Ok(Decision::Replace(other)))) if !S::takes(&other) => {
                    Err(Failure::TooLarge)
                }
                Some(Ok(Ok(decision))) => Ok(decision),
                Some(Ok(Err(error))) => Err(Failure::Error(error)),
                // What a panic says may be a secret.
                Some(Err(_)) => Err(Failure::Panicked),
                None => Err(Failure::TooLate),
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

/// A guardrail does not let something pass.
#[derive(Debug, thiserror::Error)]
#[error("guardrail {guardrail:?} does not let the {what} pass: {reason}")]
#[non_exhaustive]
pub struct Denied {
    /// The guardrail.
    pub guardrail: String,
    /// What does not pass: `input`, `output`, `tool call` or `tool result`.
    pub what: &'static str,
    /// Why, for the model or whoever asked, cut after 1,024 bytes. Of a guardrail that failed it only says so.
    pub reason: String,
    /// Whether the guardrail asks for another try.
    pub try_again: bool,
    /// What went wrong with a guardrail that could not decide; none if it did.
    pub source: Option<BoxError>,
}

impl Denied {
    /// The longest reason that is passed on, in bytes.
    const REASON_BYTES: usize = 1024;

    /// Never, also if the guardrail failed: one that asks a service elsewhere tries again itself, within its time.
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
        // What an error says may quote what was checked, so it is in no log.
        let failure_kind = failure.what_happened();
        tracing::warn!(
            guardrail,
            what,
            failure = failure_kind,
            "a guardrail came to no decision, which denies"
        );
        let source = match failure {
            Failure::Error(error) => error,
            Failure::Panicked | Failure::TooLarge | Failure::TooLate => {
                format!("the guardrail {failure_kind}").into()
            }
        };
        let reason = "it could not be checked";
        Self {
            source: Some(source),
            ..Self::decided(guardrail, what, reason, false)
        }
    }

    /// What the model sees in place of a call or its result.
    fn answer(self, effect: &str) -> Answer {
        let code = match self.try_again {
            true => "try_again",
            false => "denied",
        };
        let (guardrail, reason) = (self.guardrail, self.reason);
        let message = format!("{effect}, because of guardrail {guardrail:?}: {reason}");
        Answer::error(code, message)
    }
}

/// Why a guardrail came to no decision.
enum Failure {
    Error(BoxError),
    Panicked,
    TooLarge,
    TooLate,
}

impl Failure {
    fn what_happened(&self) -> &'static str {
        match self {
            Self::Error(_) => "failed",
            Self::Panicked => "panicked",
            Self::TooLarge => "put something in place that is too large or nests too deep",
            Self::TooLate => "took longer than it may",
        }
    }
}
