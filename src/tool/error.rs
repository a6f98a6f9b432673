use crate::error::Retry;
use crate::executor::InvalidExecutor;
use crate::model::DefinitionError;

/// A tool cannot be made into an executor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The name is not one a request could ask for.
    #[error("{name:?} is no tool name; use 1 to 64 of a-z, 0-9, '.', '_' and '-'")]
    BadName {
        /// The name.
        name: String,
    },
    /// The definition is of another tool.
    #[error("the definition is of tool {defined:?}, the function is tool {name:?}")]
    OtherTool {
        /// The name in the definition.
        defined: String,
        /// The name of the function.
        name: String,
    },
    /// A field of the definition is missing or of the wrong type.
    #[error("field {field:?} of the tool definition must be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The subscriptions of the definition cannot be used.
    #[error("the subscriptions of tool {name:?} cannot be used")]
    Subscriptions {
        /// The tool.
        name: String,
        /// What is wrong with them.
        source: DefinitionError,
    },
    /// The executor can never work on its store.
    #[error("the tool cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
}

impl ToolError {
    /// Never: the definition, the function or the store has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}
