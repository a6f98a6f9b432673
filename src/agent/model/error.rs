use super::answered_by::{FailedModel, failed_text};
use crate::error::{BoxError, Retry};
use crate::model::BreadcrumbId;
use std::path::PathBuf;
use std::time::Duration;

/// Error of a request to a model. The variants differ in the next step of the caller.
///
/// No text in it has a key or a header. The source is the answer of the provider: its status and its message, cut to 200 characters and
/// without the key.
///
/// A run retries as [`retry`](Self::retry) says, with the backoff of its profile. A rate limit uses
/// no attempt. In your own [`ChatModel`](crate::agent::ChatModel), return the variant with the
/// right [`retry`](Self::retry), because the run has no other information.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::agent::ModelError;
/// use universal_executor::error::Retry;
///
/// let error = ModelError::rate_limited(Duration::from_secs(20));
/// assert_eq!(error.retry(), Retry::After(Duration::from_secs(20)));
/// assert_eq!(error.code(), "rate_limited");
/// assert_eq!(ModelError::ContextTooLong.retry(), Retry::Never);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The model accepts no more requests for now because of a rate limit.
    ///
    /// The run is retried after the delay, and the failure uses no attempt. See
    /// [`max_age`](crate::executor::RetryPolicy::max_age) for the limit of such retries.
    #[error("the model is rate limited; retry after {retry_after:?}")]
    RateLimited {
        /// Delay after which the rate-limited model accepts requests again.
        retry_after: Duration,
        /// The provider's error response about the rate limit, or `None` if unknown.
        source: Option<BoxError>,
    },
    /// The model is overloaded and rejects requests for now.
    ///
    /// The run is retried after the delay, and the failure uses an attempt.
    #[error("the model is overloaded and rejects requests for now; retry later")]
    Overloaded {
        /// Delay before a retry of the request to the overloaded model; zero if the provider states none.
        retry_after: Duration,
        /// The provider's error response about the overload, or `None` if unknown.
        source: Option<BoxError>,
    },
    /// The model failed, cannot be reached, or sent an incomplete answer.
    ///
    /// The run is retried with backoff. If the error persists, check the URL and the server.
    #[error(
        "the model is unavailable: the provider failed, cannot be reached, or sent an incomplete answer; see the cause"
    )]
    Unavailable(#[source] BoxError),
    /// The model did not connect, answer or continue its answer within the timeout.
    ///
    /// The run is retried with backoff. If the error persists, raise the timeouts of the model.
    #[error(
        "timed out while waiting for the model to {to}; retry, or raise the timeouts of the model client"
    )]
    TimedOut {
        /// The operation of the model that took too long, one of `connect`, `answer` or `continue`.
        to: &'static str,
    },
    /// The request is larger than the context window of the model.
    ///
    /// The run fails. Set a smaller [`ContextBudget`](crate::ContextBudget), return less from
    /// tools, or use a model with a larger window.
    #[error(
        "the model request is larger than the model's context window; reduce the context or the conversation"
    )]
    ContextTooLong,
    /// The model refused to answer, or the provider filtered the request or the answer.
    ///
    /// The run fails, because the same request would be refused again.
    #[error("the model or its provider refused to answer: {reason}")]
    Refused {
        /// The explanation of the refusal by the model or the provider.
        reason: String,
    },
    /// The API key for the model is missing, wrong or lacks permission.
    ///
    /// The run fails. Correct the key, and redo the failed runs.
    #[error("the model provider rejects the credentials; check the API key")]
    Unauthorized {
        /// The provider's error response that rejects the API key. `None` if no request was sent.
        source: Option<BoxError>,
    },
    /// The provider rejected the model request, for example because of an unknown model, option or schema, or because the credit is used
    /// up.
    ///
    /// The run fails. The source has the message of the provider, which names the cause.
    #[error("the model provider rejects the request with status {status}{}", remedy(*status))]
    Rejected {
        /// The HTTP status with which the provider rejected the model request.
        status: u16,
        /// The provider's message about the rejected model request.
        source: BoxError,
    },
    /// The model request has a feature that the provider, or the crate's adapter for it, does not support.
    ///
    /// The run fails. Change the agent, or use another provider.
    #[error("{provider} does not support {what}")]
    Unsupported {
        /// The name of the provider or protocol that does not support the request.
        provider: &'static str,
        /// The part of the model request that is not supported.
        what: &'static str,
    },
    /// The response of the provider to a model request is malformed.
    ///
    /// The run is retried, because the next answer may be readable. If the error persists, check
    /// that the URL is that of an API.
    #[error("cannot read the model's answer: {problem}")]
    BadAnswer {
        /// The problem in the provider's response, without text of the response.
        problem: String,
    },
    /// A model answer, or the media of a model request, exceeds a limit on size or number.
    ///
    /// The run fails. The limits are
    /// [`ChatResponse::MAX_BYTES`](crate::agent::ChatResponse::MAX_BYTES) and
    /// [`MAX_TOOL_CALLS`](crate::agent::ChatResponse::MAX_TOOL_CALLS) of an answer, and
    /// [`Media::MAX_BYTES`](crate::agent::Media::MAX_BYTES) and
    /// [`ChatRequest::MAX_MEDIA_BYTES`](crate::agent::ChatRequest::MAX_MEDIA_BYTES) of media.
    #[error("the model request or answer is too large: {what} exceeds the maximum of {limit}")]
    TooLarge {
        /// The quantity that exceeds its limit, with its unit, such as `the size of the answer in bytes`.
        what: &'static str,
        /// The limit that the model's answer or request exceeds, in the unit that the field `what` names.
        limit: usize,
    },
    /// An image or a file of a chat message cannot be read, or its content does not match the reference in the message.
    ///
    /// The run fails. Check that the breadcrumb exists, that the path selects a base64 string, and
    /// that type and size are right.
    #[error(
        "cannot read {path:?} of breadcrumb {breadcrumb} as {media_type:?} for the model: {reason}"
    )]
    Media {
        /// The breadcrumb in which the image or file is stored.
        breadcrumb: BreadcrumbId,
        /// The JSONPath, in the breadcrumb's context, of the string with the content of the image or file.
        path: String,
        /// The media type of the image or file.
        media_type: String,
        /// The reason why the image or file cannot be read.
        reason: String,
    },
    /// No model of a [`FallbackModel`](crate::agent::FallbackModel) can answer the request now.
    ///
    /// The run is retried after the delay, unless every model failed with an error that a retry cannot correct. The failure uses no
    /// attempt if only rate limits were the reason.
    #[error(
        "no model of the list can answer the request: {}; see the reason of each model",
        failed_text(models)
    )]
    AllUnavailable {
        /// The models of the list in their order, each with the reason why it did not answer.
        models: Vec<FailedModel>,
        /// The delay after which the first of the models could work, or [`Retry::Never`] if no model can answer this request.
        retry: Retry,
        /// The error of the last model that received the request, or `None` if every model was skipped.
        source: Option<BoxError>,
    },
    /// A [`ScriptedModel`](crate::agent::ScriptedModel) received more requests than its script has answers.
    #[error(
        "the script of the ScriptedModel has no answer to request number {number}; add an answer"
    )]
    ScriptEnded {
        /// The position of the request without a scripted answer among all received requests, from 1.
        number: usize,
    },
    /// The recording of a [`RecordedModel`](crate::agent::RecordedModel) has no answer to the model request, or all its answers to the
    /// request were replayed.
    ///
    /// Record the request again, or remove the cause of the difference.
    #[error(
        "the recording of the RecordedModel has no answer to the request: {difference}; record the request again"
    )]
    NotRecorded {
        /// The differences from the most similar recorded model request, or the statement that all answers to this request were
        /// replayed.
        difference: String,
    },
    /// The file with recorded model answers cannot be read or written.
    ///
    /// The path is that of [`RecordedModel::record`](crate::agent::RecordedModel::record) or
    /// [`RecordedModel::replay`](crate::agent::RecordedModel::replay).
    #[error("cannot read or write the file {path:?} with recorded model answers; see the cause")]
    Recording {
        /// The path of the file with recorded model answers.
        path: PathBuf,
        /// The reason why the file with recorded model answers cannot be read or written.
        source: BoxError,
    },
}

impl ModelError {
    /// Creates the error of a model that accepts no more requests until the delay `retry_after` has passed.
    ///
    /// The constructor has no limit for the delay; [`retry`](Self::retry) shortens it to one hour.
    #[must_use]
    pub const fn rate_limited(retry_after: Duration) -> Self {
        Self::RateLimited {
            retry_after,
            source: None,
        }
    }

    /// Creates the error of an overloaded model.
    ///
    /// A `retry_after` of zero leaves the delay to the backoff of the run.
    #[must_use]
    pub const fn overloaded(retry_after: Duration) -> Self {
        Self::Overloaded {
            retry_after,
            source: None,
        }
    }

    /// Creates the error of a missing or malformed API key for a model.
    ///
    /// Use it in your own model before a request is sent; it has no source.
    #[must_use]
    pub const fn unauthorized() -> Self {
        Self::Unauthorized { source: None }
    }

    /// Returns the delay before a retry of the model request, or [`Retry::Never`] if a retry cannot succeed. An unreadable answer is
    /// retried, as another answer may be readable; the run's maximum number of attempts limits such retries.
    ///
    /// Delays are at most one hour. A delay of zero leaves the time to the backoff of the run.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::RateLimited { retry_after, .. } | Self::Overloaded { retry_after, .. } => {
                Retry::after(*retry_after)
            }
            Self::AllUnavailable { retry, .. } => match retry {
                Retry::After(delay) => Retry::after(*delay),
                Retry::Never => Retry::Never,
            },
            Self::Unavailable(_) | Self::TimedOut { .. } | Self::BadAnswer { .. } => {
                Retry::After(Duration::ZERO)
            }
            Self::ContextTooLong
            | Self::Refused { .. }
            | Self::Unauthorized { .. }
            | Self::Rejected { .. }
            | Self::Unsupported { .. }
            | Self::TooLarge { .. }
            | Self::Media { .. }
            | Self::ScriptEnded { .. }
            | Self::NotRecorded { .. }
            | Self::Recording { .. } => Retry::Never,
        }
    }

    /// Returns a stable short name of the model error for logs, metrics and dead letters. It contains no text of the conversation.
    ///
    /// The code is that of a failed run in its dead letter and in metrics, unless another error
    /// wraps this one with a code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::Unavailable(_) => "unavailable",
            Self::TimedOut { .. } => "timeout",
            Self::ContextTooLong => "context_too_long",
            Self::Refused { .. } => "refused",
            Self::Unauthorized { .. } => "unauthorized",
            Self::Rejected { .. } => "rejected",
            Self::Unsupported { .. } => "unsupported",
            Self::BadAnswer { .. } => "bad_answer",
            Self::TooLarge { .. } => "too_large",
            Self::Media { .. } => "media",
            Self::AllUnavailable { .. } => "all_unavailable",
            Self::ScriptEnded { .. } => "script_ended",
            Self::NotRecorded { .. } => "not_recorded",
            Self::Recording { .. } => "recording",
        }
    }

    /// Returns `true` if only rate limits are the reason of the error.
    pub(crate) fn is_rate_limit(&self) -> bool {
        match self {
            Self::RateLimited { .. } => true,
            Self::AllUnavailable { models, .. } => models.iter().all(FailedModel::is_rate_limit),
            Self::Overloaded { .. }
            | Self::Unavailable(_)
            | Self::TimedOut { .. }
            | Self::ContextTooLong
            | Self::Refused { .. }
            | Self::Unauthorized { .. }
            | Self::Rejected { .. }
            | Self::Unsupported { .. }
            | Self::BadAnswer { .. }
            | Self::TooLarge { .. }
            | Self::Media { .. }
            | Self::ScriptEnded { .. }
            | Self::NotRecorded { .. }
            | Self::Recording { .. } => false,
        }
    }

    pub(crate) fn bad_answer(problem: impl Into<String>) -> Self {
        Self::BadAnswer {
            problem: problem.into(),
        }
    }
}

/// Returns advice for the HTTP status with which a provider rejected a model request, as the end of an error text.
const fn remedy(status: u16) -> &'static str {
    match status {
        404 => "; check the model name and the base URL",
        402 | 429 => "; check the credit of the account",
        _ => "; see the cause",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_transient_model_errors_are_retried() {
        let soon = Duration::from_secs(3);
        let again = [
            (ModelError::rate_limited(soon), soon),
            (ModelError::overloaded(soon), soon),
            (ModelError::Unavailable("503".into()), Duration::ZERO),
            (ModelError::TimedOut { to: "answer" }, Duration::ZERO),
            (ModelError::bad_answer("invalid JSON"), Duration::ZERO),
            (
                ModelError::AllUnavailable {
                    models: vec![FailedModel::new("large", "overloaded")],
                    retry: Retry::After(soon),
                    source: None,
                },
                soon,
            ),
        ];
        let never = [
            ModelError::ContextTooLong,
            ModelError::Refused {
                reason: "no".into(),
            },
            ModelError::unauthorized(),
            ModelError::Rejected {
                status: 404,
                source: "no such model".into(),
            },
            ModelError::Unsupported {
                provider: "cohere",
                what: "tool calls",
            },
            ModelError::TooLarge {
                what: "the size of the answer in bytes",
                limit: 1,
            },
            ModelError::Media {
                breadcrumb: BreadcrumbId::NIL,
                path: "photo".into(),
                media_type: "image/png".into(),
                reason: "the content has 1 bytes, but the reference states 2".into(),
            },
            ModelError::AllUnavailable {
                models: vec![FailedModel::new("large", "unauthorized")],
                retry: Retry::Never,
                source: None,
            },
            ModelError::ScriptEnded { number: 1 },
            ModelError::NotRecorded {
                difference: "the recording is empty".into(),
            },
            ModelError::Recording {
                path: "a.jsonl".into(),
                source: "gone".into(),
            },
        ];

        for (error, delay) in again {
            assert_eq!(error.retry(), Retry::After(delay), "{error}");
        }
        for error in never {
            assert_eq!(error.retry(), Retry::Never, "{error}");
        }
    }
}
