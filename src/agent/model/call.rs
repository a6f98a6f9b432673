use crate::machine;
use crate::model::Json;
use serde::{Deserialize, Serialize};

/// A tool call that a model requests.
///
/// A tool call alone executes nothing. The agent's run checks the tool name, the approvals and the
/// guardrails, and then calls the tool.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{ChatResponse, ToolCall};
///
/// let call = ToolCall::new("call-1", "refund", json!({"order": 7}));
/// assert_eq!(call.arguments.json()?["order"], 7);
/// assert_eq!(ChatResponse::calling(vec![call]).tool_calls().len(), 1);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The ID of the tool call, which the result of the call repeats. The crate creates one if the provider sends none.
    pub id: String,
    /// The name of the called tool as the model wrote it. It is possible that the request contains no tool with this name.
    pub name: String,
    /// The arguments of the tool call.
    pub arguments: ModelArguments,
}

impl ToolCall {
    /// Creates a tool call.
    ///
    /// The ID must be unique within the answer. `arguments` is JSON, or the string that a model
    /// wrote.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<ModelArguments>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        }
    }
}

/// The arguments of a tool call: the string that the model wrote, and the parsed JSON if the string is valid JSON.
///
/// A string that is not JSON is retained unchanged, so that an error can quote it to the model. An empty string counts as
/// `{}`, because models write an empty string for a tool without arguments.
///
/// A tool is called with [`machine::ToolArguments`](crate::machine::ToolArguments), the JSON or the invalid string. This type also
/// retains the string of valid arguments, so that a conversation is sent to the model byte for byte, even after a store has
/// rewritten its JSON.
///
/// ```
/// use universal_executor::agent::ModelArguments;
///
/// let good = ModelArguments::from_text(r#"{"city": "Bergen"}"#);
/// assert_eq!(good.json()?["city"], "Bergen");
///
/// let cut = ModelArguments::from_text(r#"{"city": "Ber"#);
/// assert!(cut.json().is_err());
/// assert_eq!(cut.text(), r#"{"city": "Ber"#);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "String", into = "String")]
pub struct ModelArguments {
    text: String,
    json: Result<Json, BadArguments>,
}

impl ModelArguments {
    /// Reads the arguments of a tool call from the string that a model wrote.
    ///
    /// The method never fails. [`json`](Self::json) returns the problem of a string that is not
    /// JSON.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        let json = match machine::ToolArguments::parse(&text) {
            machine::ToolArguments::Json(json) => Ok(json),
            machine::ToolArguments::Unreadable { problem, .. } => {
                Err(BadArguments { reason: problem })
            }
        };
        Self { text, json }
    }

    /// Returns the arguments of the tool call as the string that the model wrote.
    ///
    /// An empty string stays empty here, although [`json`](Self::json) returns `{}`.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parsed JSON arguments of the tool call, or an error if the arguments cannot be read.
    ///
    /// Call it in your own guardrails and models. A run does it for each call, and answers
    /// unreadable arguments with an error for the model.
    ///
    /// # Errors
    /// [`BadArguments`] if the string is not JSON, nests deeper than 64 levels or is larger than [`Json::MAX_BYTES`].
    pub fn json(&self) -> Result<&Json, BadArguments> {
        self.json.as_ref().map_err(Clone::clone)
    }
}

impl From<String> for ModelArguments {
    fn from(text: String) -> Self {
        Self::from_text(text)
    }
}

impl From<ModelArguments> for String {
    fn from(arguments: ModelArguments) -> Self {
        arguments.text
    }
}

impl From<serde_json::Value> for ModelArguments {
    fn from(value: serde_json::Value) -> Self {
        Self::from_text(value.to_string())
    }
}

/// Error of tool call arguments that are not JSON, or exceed the limits of [`Json`].
///
/// [`ModelArguments::json`] returns it. A retry of the same arguments cannot succeed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cannot read the arguments of the tool call: {reason}")]
#[non_exhaustive]
pub struct BadArguments {
    /// The reason why the call arguments cannot be read, as text for the model.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_arguments_are_an_empty_object() {
        for text in ["", "  ", "{}"] {
            assert_eq!(
                *ModelArguments::from_text(text).json().unwrap(),
                serde_json::json!({})
            );
        }
    }

    #[test]
    fn deeply_nested_arguments_are_refused_and_retain_their_text() {
        let text = "[".repeat(100_000);

        let arguments = ModelArguments::from_text(&*text);

        assert!(arguments.json().is_err());
        assert_eq!(arguments.text(), text);
    }

    #[test]
    fn an_argument_error_states_the_line_and_column() {
        let error = ModelArguments::from_text(r#"{"a": "#).json().unwrap_err();

        assert!(error.reason.ends_with("at line 1 column 6"), "{error}");
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn arguments_survive_serialisation_unchanged(text in ".{0,200}") {
            let arguments = ModelArguments::from_text(&*text);

            let saved = serde_json::to_string(&arguments).unwrap();

            prop_assert_eq!(arguments.text(), text);
            prop_assert_eq!(serde_json::from_str::<ModelArguments>(&saved).unwrap(), arguments);
        }
    }
}
