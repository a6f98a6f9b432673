//! Syntax of the flows of a workflow definition: sequences of steps, and graphs of steps.

use super::read::{Written, names};
use super::steps::{Step, at_once};
use super::values::{Nested, whole};
use crate::model::{is_comment, nearest};
use crate::workflow::error::WorkflowLoadError;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// A flow of a workflow: a sequence of steps, or a graph of steps. A step of a graph begins when all steps on which it depends have ended.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(untagged))]
pub(in crate::workflow) enum Flow {
    Steps(Sequence),
    Graph(Graph),
}

impl Flow {
    /// Reads a flow of a workflow definition. The flow is a graph if `dag` is true, or if one of its steps has `depends_on`.
    pub(in crate::workflow) fn read(written: &Written<'_>) -> Result<Self, WorkflowLoadError> {
        let (value, path) = (written.value, &written.path);
        let steps = value.get("steps").and_then(Value::as_array);
        let mut steps = steps.into_iter().flatten().enumerate();
        let is_graph = match value.get("dag") {
            None | Some(Value::Null) => steps
                .clone()
                .any(|(_, step)| step.get("depends_on").is_some()),
            Some(Value::Bool(dag)) => *dag,
            Some(dag) => {
                return Err(WorkflowLoadError::shape(
                    path.field("dag"),
                    "true or false",
                    dag,
                ));
            }
        };
        let is_misplaced = |name: &&String| match is_graph {
            true => ["as", "escalate"].contains(&name.as_str()),
            false => !is_comment(name) && nearest(name, ["depends_on"]).is_some(),
        };
        let misplaced = steps.find_map(|(at, step)| {
            let name = step.as_object()?.keys().find(is_misplaced)?;
            Some(path.field("steps").item(at).field(name))
        });
        match misplaced {
            Some(path) => {
                let reason = "\"as\" and \"escalate\" are not allowed in the steps of a graph, and \"depends_on\" is allowed only there; remove this field";
                Err(WorkflowLoadError::fields(path, reason))
            }
            None if is_graph => written.read().map(Self::Graph),
            None => {
                let others = || names::<Graph>().to_vec();
                written.read_kind(None, &others).map(Self::Steps)
            }
        }
    }
}

impl GraphStep {
    /// Reads a step of a flow that is a graph. Returns it with the IDs of `depends_on`.
    pub(in crate::workflow) fn read(
        written: &Written<'_>,
    ) -> Result<(Step, Vec<String>), WorkflowLoadError> {
        let depends_on = written.read_some::<Self>()?.depends_on;
        let step = Step::read(&written.apart(names::<Self>()))?;
        Ok((step, depends_on))
    }
}

objects! {
    /// A flow whose steps run one after another.
    Sequence {
        /// Description of the flow.
        description: Option<String>,
        /// Name of the JSON Schema of the flow's input, from the section `schemas` of the workflow definition.
        input: Option<String>,
        /// Name of the JSON Schema of the flow's output, from the section `schemas` of the workflow definition.
        output: Option<String>,
        /// If `true`, the flow is a graph. Defaults to `true` if a step has `depends_on`.
        #[expect(dead_code, reason = "`Flow::read` has read it")]
        #[cfg_attr(feature = "schema", schemars(extend("enum" = [false, null])))]
        dag: Option<bool>,
        /// The steps of the flow, in the order in which they run.
        #[expect(dead_code, reason = "the compiler reads each step on its own")]
        steps: Nested<Vec<Step>>,
    }

    /// A flow that is a graph of steps. A step begins when all steps on which it depends have ended.
    #[cfg_attr(feature = "schema", schemars(extend("anyOf" = [
        {"properties": {"dag": {"const": true}}, "required": ["dag"]},
        {"properties": {"steps": {"contains": {"required": ["depends_on"]}}}},
    ])))]
    Graph {
        /// Description of the flow.
        description: Option<String>,
        /// Name of the JSON Schema of the flow's input, from the section `schemas` of the workflow definition.
        input: Option<String>,
        /// Name of the JSON Schema of the flow's output, from the section `schemas` of the workflow definition.
        output: Option<String>,
        /// If `true`, the flow is a graph. Defaults to `true` if a step has `depends_on`.
        #[expect(dead_code, reason = "`Flow::read` has read it")]
        #[cfg_attr(feature = "schema", schemars(extend("enum" = [true, null])))]
        dag: Option<bool>,
        /// Maximum number of steps of the graph that are in flight at the same time. Defaults to 8.
        #[serde(default = "at_once", deserialize_with = "whole::<1, 256, _, _>")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 256)))]
        at_once: usize,
        /// The steps of the graph, in any order.
        #[expect(dead_code, reason = "the compiler reads each step on its own")]
        steps: Nested<Vec<GraphStep>>,
    }

    /// A step of a flow that is a graph.
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::graph_step"))]
    GraphStep {
        /// IDs of the steps that must end before this step begins, in addition to the steps whose results the input uses.
        #[serde(default)]
        depends_on: Vec<String>,
    }
}
