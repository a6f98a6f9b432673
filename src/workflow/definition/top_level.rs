//! The type of a whole workflow definition, with all its sections.

#[cfg(feature = "schema")]
use super::sections::{AgentSpec, ModelSpec, WorkflowToolSpec};
use crate::workflow::policies::Policies;
use crate::workflow::syntax::Nested;
#[cfg(feature = "schema")]
use crate::workflow::syntax::{Flow, named, schemas};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A workflow: flows whose steps use agents, tools, models and people.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Workflow"))]
pub(in crate::workflow) struct Definition {
    /// Name of the workflow.
    pub(super) name: Option<String>,
    /// Description of the workflow.
    pub(super) description: Option<String>,
    /// Models of the workflow, by name.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "named::<ModelSpec>"))]
    pub(super) models: BTreeMap<String, Value>,
    /// Prompts of the workflow's agents and model steps, by name.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "named::<String>"))]
    pub(super) prompts: BTreeMap<String, String>,
    /// JSON Schemas for the inputs and outputs of flows, and for the answers of agents, models and people, by name.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schemas"))]
    pub(super) schemas: BTreeMap<String, Value>,
    /// Tools that agents and steps can use, by name.
    #[serde(default)]
    #[cfg_attr(
        feature = "schema",
        schemars(schema_with = "named::<WorkflowToolSpec>")
    )]
    pub(super) tools: BTreeMap<String, Value>,
    /// Agents of the workflow, by name.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "named::<AgentSpec>"))]
    pub(super) agents: BTreeMap<String, Value>,
    /// Flows of the workflow, by name.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(schema_with = "named::<Flow>"))]
    pub(super) flows: BTreeMap<String, Value>,
    /// Settings of the whole workflow.
    #[serde(default)]
    #[expect(dead_code, reason = "the compiler reads the policies on their own")]
    policies: Nested<Policies>,
}
