use crate::error::{BoxError, Retry};
use crate::executor::InvalidExecutor;
use crate::model::{DefinitionError, DefinitionPath};
use crate::workflow::WorkflowLoadError;
use crate::workload::EntryError;

/// Error returned when the executor of a workload cannot be created.
///
/// The constructors of [`WorkloadExecutor`](crate::workload::WorkloadExecutor) return it, and so
/// does `build` of a `SupervisorBuilder`. A program meets it at its start, or when it loads a
/// definition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A field of the workflow definition breadcrumb is missing or has the wrong type.
    #[error("field {field:?} of the workflow definition must be {expected}")]
    Field {
        /// The name of the missing or wrong field of the workflow definition.
        field: &'static str,
        /// The description of the value that the field of the workflow definition must have.
        expected: &'static str,
    },
    /// A field of the workflow definition breadcrumb is not known, and the definition is read in
    /// [strict](crate::model::DefinitionOptions::strict) mode.
    #[error("{path} of the workflow definition: {problem}")]
    UnknownField {
        /// The path of the unknown field in the `context` of the `workflow.def.v1` breadcrumb.
        path: DefinitionPath,
        /// The name of the unknown field, and the nearest known fields.
        problem: String,
    },
    /// The flow or agent that starts a run of the workflow cannot be determined.
    #[error(
        "cannot determine the flow or agent that starts a run of workflow {workflow:?}; see the cause"
    )]
    Entry {
        /// The ID of the workflow whose start flow or agent cannot be determined.
        workflow: String,
        /// The reason why the flow or agent that starts a run cannot be determined. The error lists the names of the workflow's
        /// flows and agents.
        source: EntryError,
    },
    /// The workflow in the definition breadcrumb cannot be read.
    #[error("cannot read the definition of workflow {workflow:?}; see the cause")]
    Load {
        /// The ID of the workflow that cannot be read.
        workflow: String,
        /// The problem of the workflow definition, with its position.
        source: WorkflowLoadError,
    },
    /// The workload definition names a model, tool or guardrail that is not registered in the given `Services`.
    #[error("cannot create workload {workload:?} from its definition; see the cause")]
    Definition {
        /// The name of the workload that cannot be created.
        workload: String,
        /// The error that names the missing model, tool or guardrail.
        source: BoxError,
    },
    /// The subscriptions in the workflow definition breadcrumb cannot be used.
    #[error("cannot use the subscriptions of workflow {workflow:?}; see the cause")]
    Subscriptions {
        /// The ID of the workflow whose subscriptions cannot be used.
        workflow: String,
        /// The subscription that cannot be used, and its problem.
        source: DefinitionError,
    },
    /// The executor of the workload cannot work, for example because its ID is invalid or its store has no ledger.
    #[error("cannot create the executor of a workload; see the cause")]
    Invalid(#[from] InvalidExecutor),
}

impl WorkloadError {
    /// Returns [`Retry::Never`]: the workload definition, the services or the store has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}
