use crate::machine;
use crate::model::Json;
use serde::{Deserialize, Serialize};

/// A tool that a model wants to have called.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// What the answer has to name; made here if the provider gave none.
    pub id: String,
    /// The tool, as the model wrote it: it may be one that nobody offered.
    pub name: String,
    /// What it shall be called with.
    pub arguments: Arguments,
}

impl ToolCall {
    /// A call of a tool.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<Arguments>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        }
    }
}

/// What a model calls a tool with: the text it wrote, and the JSON that this is, if it is.
///
/// A text that is no JSON is kept, so that the model can be told what it wrote; it is never mended or guessed at. No
/// text at all counts as `{}`, which is what models write for a tool without arguments.
///
/// A tool is called with [`machine::Arguments`](crate::machine::Arguments), the JSON or the text in its place. Here the
/// text is kept of good arguments too: a conversation goes back to the model byte for byte, also when it was saved in
/// between by a store that writes JSON in a form of its own.
///
/// ```
/// use universal_executor::agent::Arguments;
///
/// let good = Arguments::from_text(r#"{"city": "Bergen"}"#);
/// assert_eq!(good.json()?["city"], "Bergen");
///
/// let cut = Arguments::from_text(r#"{"city": "Ber"#);
/// assert!(cut.json().is_err());
/// assert_eq!(cut.text(), r#"{"city": "Ber"#);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "String", into = "String")]
pub struct Arguments {
    text: String,
    json: Result<Json, BadArguments>,
}

impl Arguments {
    /// Reads what a model wrote.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        let json = match machine::Arguments::parse(&text) {
            machine::Arguments::Json(json) => Ok(json),
            machine::Arguments::Unreadable { problem, .. } => Err(BadArguments { reason: problem }),
        };
        Self { text, json }
    }

    /// The text, as the model wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The JSON that the text is.
    ///
    /// # Errors
    /// [`BadArguments`] if it is none, nests deeper than 64 levels or is larger than [`Json::MAX_BYTES`].
    pub fn json(&self) -> Result<&Json, BadArguments> {
        self.json.as_ref().map_err(Clone::clone)
    }
}

impl From<String> for Arguments {
    fn from(text: String) -> Self {
        Self::from_text(text)
    }
}

impl From<Arguments> for String {
    fn from(arguments: Arguments) -> Self {
        arguments.text
    }
}

impl From<serde_json::Value> for Arguments {
    fn from(value: serde_json::Value) -> Self {
        Self::from_text(value.to_string())
    }
}

/// The arguments of a call are not JSON, or not within the limits of [`Json`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the arguments of the call cannot be read: {reason}")]
#[non_exhaustive]
pub struct BadArguments {
    /// What is wrong with them, in words that the model can act on.
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
                *Arguments::from_text(text).json().unwrap(),
                serde_json::json!({})
            );
        }
    }

    #[test]
    fn arguments_that_nest_without_end_are_refused_and_kept() {
        let text = "[".repeat(100_000);

        let arguments = Arguments::from_text(&*text);

        assert!(arguments.json().is_err());
        assert_eq!(arguments.text(), text);
    }

    #[test]
    fn a_model_is_told_where_its_arguments_are_broken() {
        let error = Arguments::from_text(r#"{"a": "#).json().unwrap_err();

        assert!(error.reason.ends_with("at line 1 column 6"), "{error}");
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn whatever_a_model_writes_is_kept_and_survives_being_saved(text in ".{0,200}") {
            let arguments = Arguments::from_text(&*text);

            let saved = serde_json::to_string(&arguments).unwrap();

            prop_assert_eq!(arguments.text(), text);
            prop_assert_eq!(serde_json::from_str::<Arguments>(&saved).unwrap(), arguments);
        }
    }
}
