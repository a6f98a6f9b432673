//! Errors of the chat completions protocol, and their [`ModelError`]s.

use crate::agent::ModelError;
use crate::agent::providers::Secret;
use crate::error::{BoxError, Retry, excerpt};
use crate::scrub::without_credentials;
use serde_json::Value;
use std::time::Duration;

/// Minimum delay before a model request is retried after a rate limit. A rate-limited request uses no attempt of a run, so a delay of zero
/// would repeat it without end.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Default delay before a retry after a rate limit, if the provider states no delay: ten seconds.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(10);

/// An error response of a model provider.
#[derive(Debug, Default)]
pub(in crate::agent) struct ErrorResponse {
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

impl ErrorResponse {
    /// Reads an error that a response with the status 200 contains instead of a model answer.
    pub(in crate::agent) fn from_answer(error: &Value) -> Self {
        let status = error.get("code").and_then(Value::as_u64);
        let status = status.and_then(|code| u16::try_from(code).ok());
        let response = Self::from_error(error);
        Self {
            status: status.unwrap_or(match &*response.code {
                "rate_limit_exceeded" | "rate_limit_error" | "insufficient_quota" => 429,
                "invalid_request_error" | "context_length_exceeded" => 400,
                "authentication_error" | "permission_error" => 401,
                "not_found_error" => 404,
                "request_too_large" => 413,
                "overloaded_error" => 529,
                _ => 500,
            }),
            ..response
        }
    }

    pub(in crate::agent) fn from_error(error: &Value) -> Self {
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
    pub(in crate::agent) fn with_server(mut self, server: String) -> Self {
        self.server = server;
        self
    }

    fn is_too_long(&self) -> bool {
        let phrases = [
            "context length",
            "context window",
            "context size",
            "context limit",
            "input token count",
            "prompt is too long",
        ];
        let message = self.message.to_lowercase();
        self.code.contains("context_length")
            || phrases.iter().any(|phrase| message.contains(phrase))
    }

    /// Removes an API key from the provider's error, in case the provider repeats the key.
    pub(in crate::agent) fn without_key(mut self, secret: Option<&Secret>) -> Self {
        self.message = without_key(&self.message, secret);
        self.code = without_key(&self.code, secret);
        self
    }

    fn source(&self) -> BoxError {
        let details = match (&*self.code, &*self.message) {
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
            safe_excerpt(&without_credentials(&details))
        )
        .into()
    }
}

/// Returns the [`ModelError`] for an error response of a model provider.
pub(in crate::agent) fn classify(response: &ErrorResponse) -> ModelError {
    let delay = response
        .retry_after
        .map(|delay| delay.min(Retry::MAX_DELAY));
    let code = &*response.code;
    match response.status {
        // A retry does not help when the credit of the account is used up.
        429 if code == "insufficient_quota" => rejected(response),
        429 => ModelError::RateLimited {
            retry_after: delay.unwrap_or(DEFAULT_RETRY_AFTER).max(MIN_RETRY_AFTER),
            source: Some(response.source()),
        },
        400 | 403
            if response.moderated
                || matches!(code, "content_filter" | "content_policy_violation") =>
        {
            ModelError::Refused {
                reason: "the provider filtered the request".to_owned(),
            }
        }
        401 | 403 => ModelError::Unauthorized {
            source: Some(response.source()),
        },
        413 => ModelError::ContextTooLong,
        400 | 422 if response.is_too_long() => ModelError::ContextTooLong,
        503 | 529 => ModelError::Overloaded {
            retry_after: delay.unwrap_or_default(),
            source: Some(response.source()),
        },
        408 | 409 | 425 | 500.. => ModelError::Unavailable(response.source()),
        _ => rejected(response),
    }
}

fn rejected(response: &ErrorResponse) -> ModelError {
    ModelError::Rejected {
        status: response.status,
        source: response.source(),
    }
}

/// Returns a provider's text with the API key replaced by `[key]`, in case the provider repeats the key.
pub(in crate::agent) fn without_key(text: &str, secret: Option<&Secret>) -> String {
    match secret.map(Secret::reveal).filter(|key| !key.is_empty()) {
        Some(key) => text.replace(key, "[key]"),
        None => text.to_owned(),
    }
}

/// Returns the first 200 characters of a model provider's text, without control characters.
pub(in crate::agent) fn safe_excerpt(text: &str) -> String {
    const EXCERPT_LENGTH: usize = 200;
    let line: String = text
        .chars()
        .take(EXCERPT_LENGTH + 1)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    excerpt(&line, EXCERPT_LENGTH).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_may_not_ask_for_more_than_an_hour() {
        let response = ErrorResponse {
            status: 429,
            retry_after: Some(Duration::from_secs(u64::MAX)),
            ..ErrorResponse::default()
        };

        let error = classify(&response);

        assert!(
            matches!(error, ModelError::RateLimited { retry_after, .. } if retry_after == Retry::MAX_DELAY),
            "{error:?}"
        );
    }

    #[test]
    fn a_provider_message_is_truncated_to_a_single_line() {
        let details = safe_excerpt(&format!("line\nline\u{1b}[31m {}", "ü".repeat(10_000)));

        assert!(
            details.len() < 250 && !details.contains(char::is_control),
            "{details:?}"
        );
    }
}
