use crate::model::Json;

/// Input of a model step: instructions from the workflow definition, and data such as values of variables.
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
    /// Literal text in the input string of a model step, which the model receives as an instruction.
    Text(String),
    /// Value of a variable, which is data for the model.
    Value {
        /// Reference to the value, as written between `${` and `}` in the workflow definition, such as `draft.text`.
        source: String,
        /// Value to which the reference in `source` resolves.
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
