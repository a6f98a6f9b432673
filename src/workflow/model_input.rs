use crate::model::Json;

/// Input of a model step: instructions from the definition, and data.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelInput {
    /// String of the definition with variables. The string is an instruction, and the values of its variables are data.
    Text(Vec<TextPart>),
    /// Value that is data as a whole.
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

/// Part of a string with variables.
#[derive(Clone, Debug, PartialEq)]
pub enum TextPart {
    /// Text of the definition.
    Text(String),
    /// Value of a variable.
    Value {
        /// Variable and path, as written between the braces in the definition.
        source: String,
        /// Value of the variable at the path.
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
