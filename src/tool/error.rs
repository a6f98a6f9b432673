use crate::error::Retry;
use crate::executor::InvalidExecutor;
use crate::model::{DefinitionError, DefinitionPath};
use std::panic::Location;

/// Error of registering a tool, or of creating an executor for a tool.
///
/// A program meets the error when it starts, before the first call. Each variant is a mistake in
/// the code, in a definition or in the choice of the store. An error of a call is not a
/// `ToolError`: it is an answer with a code, see [`ToolRegistry::call`](super::ToolRegistry::call).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool name is empty, longer than 64 characters, or has characters other than `a-z`, `0-9`, `.`, `_` and `-`.
    #[error(
        "{name:?} is not a valid tool name; use 1 to 64 characters of a-z, 0-9, '.', '_' and '-'"
    )]
    BadName {
        /// The invalid tool name, shortened to 80 bytes.
        name: String,
    },
    /// The input or output schema of the tool is not a valid JSON Schema, or uses an unsupported or unsafe feature.
    ///
    /// With the feature `validate`, a schema has at most 64 KiB, 32 levels and 32 patterns, and
    /// each `$ref` points into the schema itself. Change the schema as the reason says.
    #[error("the {which} schema of tool {name:?} cannot be used: {reason}")]
    BadSchema {
        /// The name of the tool with the refused schema.
        name: String,
        /// The kind of the refused schema, which is `input` or `output`.
        which: &'static str,
        /// The reason why the schema of the tool is refused.
        reason: String,
    },
    /// The tool definition has an unknown field, and is read in [strict](crate::model::DefinitionOptions::strict) mode.
    ///
    /// Remove or rename the field. Without the strict mode, an unknown field is a warning.
    #[error("{path} of the tool definition: {problem}")]
    UnknownField {
        /// The path of the unknown field in the `context` of the `tool.v1` breadcrumb.
        path: DefinitionPath,
        /// The name of the unknown field and the nearest known fields.
        problem: String,
    },
    /// Two tools with the same name were added to one registry.
    ///
    /// Rename one of the tools: [`ToolRegistry::with`](super::ToolRegistry::with) never replaces a
    /// tool.
    #[error("tool {name:?} is registered at {first} and again at {second}; rename one of them")]
    Duplicate {
        /// The name that both tools have.
        name: String,
        /// Source location of the first tool's registration.
        first: &'static Location<'static>,
        /// Source location of the second tool's registration.
        second: &'static Location<'static>,
    },
    /// This service cannot serve the tool: it is a [remote tool](super::remote_tool), which another service serves.
    #[error(
        "tool {name:?} is a remote tool, which another service runs, so this service cannot run it; add the tool only to the \
         ToolRegistry of the agents that call it"
    )]
    Elsewhere {
        /// The name of the remote tool.
        name: String,
    },
    /// The tool name in the definition differs from the name of the tool that was passed with the definition.
    #[error(
        "the definition is for tool {defined:?}, but the function is tool {name:?}; use the same name"
    )]
    OtherTool {
        /// The tool name in the tool definition.
        defined: String,
        /// The name of the tool that was passed with the definition.
        name: String,
    },
    /// A field of the tool definition is missing or has the wrong type.
    #[error("field {field:?} of the tool definition must be {expected}")]
    Field {
        /// The name of the tool definition's field that is missing or has the wrong type.
        field: &'static str,
        /// The type or value that the field of the tool definition must have.
        expected: &'static str,
    },
    /// The subscriptions of the tool or of the tool dispatcher are invalid.
    ///
    /// The cause names the field with the problem.
    #[error("the subscriptions of tool {name:?} are invalid; see the cause")]
    Subscriptions {
        /// The tool name, or the executor ID of a [`ToolDispatcher`](super::ToolDispatcher).
        name: String,
        /// The problem of the tool's subscriptions.
        source: DefinitionError,
    },
    /// The executor of the tool can never work: its ID or a setting is invalid, or its store lacks a capability.
    ///
    /// An example is an [at-most-once](super::RetrySafety::AtMostOnce) tool on a store without a
    /// run ledger. [`WithLedger`](crate::WithLedger) adds a ledger to such a store.
    #[error("the executor of the tool is invalid, or its store lacks a capability; see the cause")]
    Invalid(#[from] InvalidExecutor),
}

impl ToolError {
    /// Returns [`Retry::Never`]: a retry cannot succeed before the definition, the tool or the store is changed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}
