use crate::error::{BoxError, Retry};
use crate::executor::InvalidExecutor;
use crate::model::{DefinitionError, DefinitionPath};
use crate::workflow::WorkflowLoadError;
use crate::workload::EntryError;

/// Error returned when the executor of a workload cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A field of the definition breadcrumb is missing or has the wrong type.
    #[error("field {field:?} of the workflow definition must be {expected}")]
    Field {
        /// The field name.
        field: &'static str,
        /// The expected value.
        expected: &'static str,
    },
    /// A field of the definition breadcrumb does not exist, and the definition is read in
    /// [strict](crate::model::DefinitionOptions::strict) mode.
    #[error("{path} of the workflow definition: {problem}")]
    UnknownField {
        /// The path of the field in the context of the definition.
        path: DefinitionPath,
        /// The field name and the nearest known fields.
        problem: String,
    },
    /// The workflow has no flow or agent to start with.
    #[error("cannot determine the flow or agent that starts a run of workflow {workflow:?}")]
    Entry {
        /// The workflow ID.
        workflow: String,
        /// The names that exist.
        source: EntryError,
    },
    /// The workflow in the definition breadcrumb cannot be read.
    #[error("cannot read the definition of workflow {workflow:?}")]
    Load {
        /// The workflow ID.
        workflow: String,
        /// The position and the problem.
        source: WorkflowLoadError,
    },
    /// The definition names a model, tool or guardrail that the services do not have.
    #[error("cannot create workload {workload:?} from its definition")]
    Definition {
        /// The workload name.
        workload: String,
        /// The missing name.
        source: BoxError,
    },
    /// The subscriptions in the definition breadcrumb cannot be used.
    #[error("cannot use the subscriptions of workflow {workflow:?}")]
    Subscriptions {
        /// The workflow ID.
        workflow: String,
        /// The subscription and its problem.
        source: DefinitionError,
    },
    /// The executor cannot work, for example because its ID is invalid or its store has no ledger.
    #[error("invalid executor for a workload")]
    Invalid(#[from] InvalidExecutor),
}

impl WorkloadError {
    /// Returns [`Retry::Never`]: the definition, the services or the store has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}
