use crate::model::Json;

/// Input of a model step: instructions from the definition, and data.
///
/// A driver sends instructions as they are, and fences data, so that a model does not follow
/// instructions in data.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelInput {
    /// Input text from the workflow definition, which can contain variables. The text is an instruction, and the values of its
    /// variables are data.
    Text(Vec<TextPart>),
    /// A JSON value without instructions, such as the value of a variable. The model receives the whole value as data.
    Data(Json),
}

impl ModelInput {
    /// Returns the size in bytes of all strings and values in the input of a model step.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Text(parts) => parts.iter().map(TextPart::size).sum(),
            Self::Data(data) => data.size(),
        }
    }
}

/// Part of a model step's input string: text, or the value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum TextPart {
    /// Text of the workflow definition, which is an instruction to the model.
    Text(String),
    /// Value of a variable, which is data for the model.
    Value {
        /// Variable and JSONPath of the value, as written between the braces in the definition.
        source: String,
        /// Value of the variable at the JSONPath.
        value: Json,
    },
}

impl TextPart {
    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Value { source, value } => source.len() + value.size(),
        }
    }
}
