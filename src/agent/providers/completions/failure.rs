//! Errors of the chat completions protocol, and their [`ModelError`]s.

use crate::agent::ModelError;
use crate::agent::providers::Secret;
use crate::error::{BoxError, Retry, excerpt};
use crate::scrub::without_credentials;
use serde_json::Value;
use std::time::Duration;

/// Minimum delay before a model request is retried after a rate limit. A rate-limited request uses no attempt of a run, so a delay of zero
/// would repeat it without end.
const LEAST_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Default delay before a retry after a rate limit, if the provider states no delay: ten seconds.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(10);

/// A response of a model provider that is an error.
#[derive(Debug, Default)]
pub(in crate::agent) struct Failed {
    /// The HTTP status of the error response, or the equivalent status of an error in the body.
    pub(in crate::agent) status: u16,
    pub(in crate::agent) retry_after: Option<Duration>,
    /// The provider's error code, such as `context_length_exceeded`.
    code: String,
    message: String,
    /// Scheme, host and port of the provider that sent the error, if known.
    server: String,
    /// If `true`, the provider's moderation rejected the content of the model request.
    moderated: bool,
}

impl Failed {
    /// Reads an error that a response with the status 200 contains instead of a model answer.
    pub(in crate::agent) fn in_answer(error: &Value) -> Self {
        let status = error.get("code").and_then(Value::as_u64);
        let status = status.and_then(|code| u16::try_from(code).ok());
        let found = Self::of(error);
        Self {
            status: status.unwrap_or(match &*found.code {
                "rate_limit_exceeded" | "rate_limit_error" | "insufficient_quota" => 429,
                "invalid_request_error" | "context_length_exceeded" => 400,
                "authentication_error" | "permission_error" => 401,
                "not_found_error" => 404,
                "request_too_large" => 413,
                "overloaded_error" => 529,
                _ => 500,
            }),
            ..found
        }
    }

    pub(in crate::agent) fn of(error: &Value) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let code = match text("code") {
            "" => text("type"),
            code => code,
        };
        let message = match error.as_str() {
            // Some servers send `{"error": "model not found"}`.
            Some(message) => message,
            None => text("message"),
        };
        Self {
            code: code.to_owned(),
            message: message.to_owned(),
            moderated: error.pointer("/metadata/reasons").is_some(),
            ..Self::default()
        }
    }

    /// Sets the scheme, host and port of the provider that sent the error.
    #[cfg(feature = "openai")]
    pub(in crate::agent) fn of_server(mut self, server: String) -> Self {
        self.server = server;
        self
    }

    fn is_too_long(&self) -> bool {
        let words = [
            "context length",
            "context window",
            "context size",
            "context limit",
            "input token count",
            "prompt is too long",
        ];
        let message = self.message.to_lowercase();
        self.code.contains("context_length") || words.iter().any(|one| message.contains(one))
    }

    /// Removes an API key from the provider's error, in case the provider repeats the key.
    pub(in crate::agent) fn without(mut self, secret: Option<&Secret>) -> Self {
        self.message = scrubbed(&self.message, secret);
        self.code = scrubbed(&self.code, secret);
        self
    }

    fn source(&self) -> BoxError {
        let said = match (&*self.code, &*self.message) {
            ("", "") => String::new(),
            ("", text) | (text, "") => format!(": {text}"),
            (code, message) => format!(": {code}: {message}"),
        };
        let server = match &*self.server {
            "" => "the provider",
            server => server,
        };
        format!(
            "{server} answered with status {}{}",
            self.status,
            safe_excerpt(&without_credentials(&said))
        )
        .into()
    }
}

/// Returns the [`ModelError`] for an error response of a model provider.
pub(in crate::agent) fn classify(failed: &Failed) -> ModelError {
    let delay = failed.retry_after.map(|delay| delay.min(Retry::MAX_DELAY));
    let code = &*failed.code;
    match failed.status {
        // A retry does not help when the credit of the account is used up.
        429 if code == "insufficient_quota" => rejected(failed),
        429 => ModelError::RateLimited {
            retry_after: delay.unwrap_or(DEFAULT_RETRY_AFTER).max(LEAST_RETRY_AFTER),
            source: Some(failed.source()),
        },
        400 | 403
            if failed.moderated
                || matches!(code, "content_filter" | "content_policy_violation") =>
        {
            ModelError::Refused {
                reason: "the provider filtered the request".to_owned(),
            }
        }
        401 | 403 => ModelError::Unauthorized {
            source: Some(failed.source()),
        },
        413 => ModelError::ContextTooLong,
        400 | 422 if failed.is_too_long() => ModelError::ContextTooLong,
        503 | 529 => ModelError::Overloaded {
            retry_after: delay.unwrap_or_default(),
            source: Some(failed.source()),
        },
        408 | 409 | 425 | 500.. => ModelError::Unavailable(failed.source()),
        _ => rejected(failed),
    }
}

fn rejected(failed: &Failed) -> ModelError {
    ModelError::Rejected {
        status: failed.status,
        source: failed.source(),
    }
}

/// Returns a provider's text with the API key replaced by `[key]`, in case the provider repeats the key.
pub(in crate::agent) fn scrubbed(text: &str, secret: Option<&Secret>) -> String {
    match secret.map(Secret::reveal).filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, "[key]"),
        None => text.to_owned(),
    }
}

/// Returns the first 200 characters of a model provider's text, without control characters.
pub(in crate::agent) fn safe_excerpt(text: &str) -> String {
    const SHOWN: usize = 200;
    let line: String = text
        .chars()
        .take(SHOWN + 1)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    excerpt(&line, SHOWN).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_may_not_ask_for_more_than_an_hour() {
        let failed = Failed {
            status: 429,
            retry_after: Some(Duration::from_secs(u64::MAX)),
            ..Failed::default()
        };

        let error = classify(&failed);

        assert!(
            matches!(error, ModelError::RateLimited { retry_after, .. } if retry_after == Retry::MAX_DELAY),
            "{error:?}"
        );
    }

    #[test]
    fn a_provider_message_is_truncated_to_a_single_line() {
        let said = safe_excerpt(&format!("line\nline\u{1b}[31m {}", "ü".repeat(10_000)));

        assert!(
            said.len() < 250 && !said.contains(char::is_control),
            "{said:?}"
        );
    }
}
