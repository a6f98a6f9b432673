use serde::{Deserialize, Serialize};

/// The model of a [`FallbackModel`](crate::agent::FallbackModel) that wrote an answer, and the models before it in the list that failed.
///
/// A [`ChatResponse`](super::ChatResponse) and a [`ChatEvent`](super::ChatEvent) contain it. A run adds it to the field
/// `usage.models` of its response and to the span `model_turn`. It contains names and codes, never text of a provider.
///
/// # Examples
/// ```
/// use universal_executor::agent::{AnsweredBy, FailedModel};
///
/// let answered_by = AnsweredBy::new("small").failed("large", "overloaded");
/// assert_eq!(answered_by.model, "small");
/// assert_eq!(answered_by.failed, [FailedModel::new("large", "overloaded")]);
/// ```
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AnsweredBy {
    /// The name of the model that wrote the answer, as in the list of the [`FallbackModel`](crate::agent::FallbackModel).
    pub model: String,
    /// The models that failed or were skipped before the answer, in the order of the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedModel>,
}

impl AnsweredBy {
    /// Creates the record of an answer by the named model, without failed models.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            failed: Vec::new(),
        }
    }

    /// Adds a model that failed or was skipped before the answer.
    #[must_use]
    pub fn failed(mut self, model: impl Into<String>, code: impl Into<String>) -> Self {
        self.failed.push(FailedModel::new(model, code));
        self
    }
}

/// A model of a [`FallbackModel`](crate::agent::FallbackModel) that failed or was skipped, with the reason as a code.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FailedModel {
    /// The name of the failed model, as in the list of the [`FallbackModel`](crate::agent::FallbackModel).
    pub model: String,
    /// The reason why the model did not answer: the [code](super::ModelError::code) of its error, [`CIRCUIT_OPEN`](Self::CIRCUIT_OPEN),
    /// [`REQUEST_LIMIT`](Self::REQUEST_LIMIT) or [`TOKEN_LIMIT`](Self::TOKEN_LIMIT).
    pub code: String,
}

impl FailedModel {
    /// The code of a model that was skipped because its circuit breaker is open.
    pub const CIRCUIT_OPEN: &str = "circuit_open";
    /// The code of a model that was skipped because it has reached its limit of requests per minute.
    pub const REQUEST_LIMIT: &str = "request_limit";
    /// The code of a model that was skipped because it has reached its limit of tokens per minute.
    pub const TOKEN_LIMIT: &str = "token_limit";

    /// Creates the record of a failed model from the model name and the code of the failure.
    #[must_use]
    pub fn new(model: impl Into<String>, code: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            code: code.into(),
        }
    }

    /// Returns `true` if a limit was the reason, either the provider's rate limit or a limit of the list.
    pub(super) fn is_rate_limit(&self) -> bool {
        matches!(
            &*self.code,
            "rate_limited" | Self::REQUEST_LIMIT | Self::TOKEN_LIMIT
        )
    }
}

/// Returns the failed models as text for an error or a log: the name of each model with its code in parentheses.
pub(in crate::agent) fn failed_text(failed: &[FailedModel]) -> String {
    let failed = failed
        .iter()
        .map(|failed| format!("{} ({})", failed.model, failed.code));
    failed.collect::<Vec<_>>().join(", ")
}
