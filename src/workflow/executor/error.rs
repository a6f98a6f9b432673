use crate::error::Retry;
use crate::executor::InvalidExecutor;
use crate::model::{DefinitionError, Place};
use crate::workflow::{AssemblyError, LoadError};

/// A workflow cannot be made into an executor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// A field of the definition breadcrumb is missing or of the wrong type.
    #[error("field {field:?} of the workflow definition must be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A field of the definition breadcrumb does not exist, and the definition is read in
    /// [strict](crate::model::DefinitionOptions::strict) mode.
    #[error("{place} of the workflow definition: {problem}")]
    UnknownField {
        /// The path of the field in the context of the definition.
        place: Place,
        /// The name of the field and the nearest known fields.
        problem: String,
    },
    /// Nobody can tell which flow a run begins with.
    #[error(
        "workflow {workflow:?} is to begin with {named}, and has no such flow; name one of its flows: {known}"
    )]
    NoEntry {
        /// The workflow.
        workflow: String,
        /// What was asked for.
        named: String,
        /// The flows there are.
        known: String,
    },
    /// The definition cannot be read.
    #[error("the definition of workflow {workflow:?} cannot be read")]
    Load {
        /// The workflow.
        workflow: String,
        /// What to mend.
        source: LoadError,
    },
    /// The definition names what it cannot have.
    #[error("workflow {workflow:?} cannot be put together")]
    Assembly {
        /// The workflow.
        workflow: String,
        /// What is not there.
        source: Box<AssemblyError>,
    },
    /// The subscriptions of the definition cannot be used.
    #[error("the subscriptions of workflow {workflow:?} cannot be used")]
    Subscriptions {
        /// The workflow.
        workflow: String,
        /// What is wrong with them.
        source: DefinitionError,
    },
    /// The executor can never work on its store.
    #[error("the workflow cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
}

impl WorkflowError {
    /// Always [`Retry::Never`]: the definition, what is registered or the store has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}
