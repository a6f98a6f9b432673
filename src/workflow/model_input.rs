use crate::model::Json;

/// The input of a step that asks a model: instructions of the definition and data.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelInput {
    /// A text of the definition, which is an instruction, with the values of its variables, which are data.
    Text(Vec<TextPart>),
    /// A value as a whole, which is data.
    Data(Json),
}

impl ModelInput {
    /// Returns the size in bytes of all its strings and values.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Text(parts) => parts.iter().map(TextPart::size).sum(),
            Self::Data(data) => data.size(),
        }
    }
}

/// A part of a text with variables.
#[derive(Clone, Debug, PartialEq)]
pub enum TextPart {
    /// Text of the definition.
    Text(String),
    /// The value of a variable.
    Value {
        /// The variable and path, as the definition has it between the braces.
        source: String,
        /// The value.
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
