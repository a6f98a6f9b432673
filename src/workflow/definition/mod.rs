//! Compiler of workflow definitions. Its errors name the path to fix.

mod breadcrumbs;
mod check;
mod composites;
mod cycle;
mod dag;
mod document;
mod limits;
mod locate;
mod sections;
mod steps;
mod top_level;
mod variables;
#[cfg(feature = "yaml")]
mod yaml;

pub(super) use composites::MATCHED;
pub(crate) use document::Document;
pub use sections::{
    AgentPermissions, AgentSpec, History, Instruction, ModelSpec, WorkflowToolSpec,
};
pub(super) use top_level::Definition;

use super::ast::{Body, Flow, Step, TaskForm, Work};
use super::error::{LoadProblem, WorkflowLoadError, WorkflowWarning};
use super::policies::{CompactionMethod, Policies};
use super::syntax::{self, UnknownFields, Written, check_names, names, section};
use crate::hex::hex;
use crate::model::{
    DefinitionOptions, DefinitionPath, Json, JsonError, Position, admit, sorted_text,
};
use crate::tool::Checker;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use steps::Compiler;

/// A workflow: a definition that was checked and compiled.
///
/// The public fields are the sections of the definition. The [module](crate::workflow) describes flows and their steps.
///
/// A clone copies the sections. Share a workflow as an `Arc`, which
/// [`Assembly::new`](crate::workflow::Assembly::new) and
/// [`FlowRun::begin`](crate::workflow::FlowRun::begin) accept.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::workflow::Workflow;
///
/// let workflow = Workflow::from_json(&json!({
///     "name": "greeting",
///     "flows": {"main": {"description": "Greets.", "steps": [{"return": "Hello, ${input}!"}]}},
/// }))?;
///
/// assert_eq!(workflow.name.as_deref(), Some("greeting"));
/// let flows: Vec<_> = workflow.flows().map(|flow| (flow.name, flow.description)).collect();
/// assert_eq!(flows, [("main", Some("Greets."))]);
/// # Ok::<(), universal_executor::workflow::WorkflowLoadError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Workflow {
    /// Name of the workflow.
    pub name: Option<String>,
    /// Description of the workflow.
    pub description: Option<String>,
    /// Models of the workflow, by name.
    pub models: BTreeMap<String, ModelSpec>,
    /// Prompts of the workflow's agents and model steps, by name.
    pub prompts: BTreeMap<String, String>,
    /// JSON Schemas for the inputs and outputs of flows, and for the answers of agents, models and people, by name.
    pub schemas: BTreeMap<String, Json>,
    /// Tools that agents and steps may use, by name.
    pub tools: BTreeMap<String, WorkflowToolSpec>,
    /// Agents of the workflow, by name.
    pub agents: BTreeMap<String, AgentSpec>,
    /// Settings that apply to the whole workflow.
    pub policies: Policies,
    flows: BTreeMap<String, Flow>,
    checkers: BTreeMap<String, Checker>,
    warnings: Vec<WorkflowWarning>,
    text: Arc<str>,
    hash: String,
}

/// Summary of a flow of a [`Workflow`], as returned by [`Workflow::flows`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FlowSummary<'w> {
    /// Name of the flow.
    pub name: &'w str,
    /// Description of the flow.
    pub description: Option<&'w str>,
    /// Name of the JSON Schema of the flow's input, from the section `schemas` of the workflow definition.
    pub input: Option<&'w str>,
    /// Name of the JSON Schema of the flow's output, from the section `schemas` of the workflow definition.
    pub output: Option<&'w str>,
}

impl Workflow {
    /// Reads a workflow from its definition as a JSON value, in strict mode: an unknown field is an error.
    ///
    /// Every object can have comments: the fields `comment`, `metadata` and `$schema`, and fields that end with `_comment` or start
    /// with `x-`.
    ///
    /// # Errors
    /// Returns a [`WorkflowLoadError`] with the path to fix.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::workflow::Workflow;
    ///
    /// let broken = Workflow::from_json(&json!({
    ///     "tools": {"search": {}},
    ///     "flows": {"main": {"steps": [{"tool": "serch"}]}},
    /// }));
    ///
    /// let error = broken.err().ok_or("the definition loads")?;
    /// assert!(error.to_string().contains("did you mean \"search\"?"), "{error}");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn from_json(definition: &Value) -> Result<Self, WorkflowLoadError> {
        Self::from_json_with(definition, &DefinitionOptions::default().strict())
    }

    /// Reads a workflow from its definition as a JSON value, with options. Without [`DefinitionOptions::strict`], an unknown
    /// field has no effect.
    ///
    /// [`warnings`](Self::warnings) lists the unknown fields, and [`hash`](Self::hash) is the hash of the definition without them. The
    /// other options apply only to subscriptions.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json). An unknown field is an error in every mode if its name is nearly that of a known field,
    /// because a mistyped restriction would not restrict. More than 100 unknown fields are an error.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::model::DefinitionOptions;
    /// use universal_executor::workflow::Workflow;
    ///
    /// let definition = json!({
    ///     "cost_center": 7,
    ///     "flows": {"main": {"steps": [{"return": 1}]}},
    /// });
    /// assert!(Workflow::from_json(&definition).is_err());
    ///
    /// let workflow = Workflow::from_json_with(&definition, &DefinitionOptions::default())?;
    /// assert_eq!(workflow.warnings().len(), 1);
    /// # Ok::<(), universal_executor::workflow::WorkflowLoadError>(())
    /// ```
    pub fn from_json_with(
        definition: &Value,
        options: &DefinitionOptions,
    ) -> Result<Self, WorkflowLoadError> {
        if let Err(error) = admit(definition) {
            return Err(load_error(problem(error)));
        }
        limits::check(definition, names::<Definition>())?;
        let unknown = UnknownFields::new(options.strict);
        let top = Written::new(definition, DefinitionPath::default(), &unknown);
        let written: Definition = top.read()?;
        check_names("prompts", &written.prompts)?;
        check_names("schemas", &written.schemas)?;
        let policies = top.field("policies");
        let policies = policies.map(|part| Policies::read(&part)).transpose()?;
        let policies = policies.unwrap_or_default();
        check_compaction(definition, &policies)?;
        let schemas = schemas(written.schemas)?;
        let mut workflow = Self {
            name: written.name,
            description: written.description,
            models: section("models", &written.models, &unknown, |model| model.read())?,
            prompts: written.prompts,
            checkers: checkers(&schemas)?,
            schemas,
            tools: section("tools", &written.tools, &unknown, |tool| tool.read())?,
            agents: section("agents", &written.agents, &unknown, AgentSpec::read)?,
            flows: compile_flows(&written.flows, &policies, &unknown)?,
            policies,
            warnings: Vec::new(),
            hash: String::new(),
            text: Arc::default(),
        };
        let (known, warnings) = unknown.remove_from(definition)?;
        let text = sorted_text(&known);
        workflow.hash = hash(&text);
        workflow.text = text.into();
        workflow.warnings = warnings;
        let warnings = check::check(&workflow)?;
        workflow.warnings.extend(warnings);
        Ok(workflow)
    }

    /// Parses a workflow definition in JSON, in strict mode. Errors and warnings have a line and column.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json). Also returns an error if the text is not JSON, is larger than 1 MiB or has a duplicate key in
    /// an object.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::workflow::Workflow;
    ///
    /// let error = Workflow::parse("{\n  \"flws\": {}\n}").err().ok_or("the definition loads")?;
    /// assert_eq!(error.position().map(|position| position.line), Some(2));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, WorkflowLoadError> {
        Self::of_document(
            &Document::json(text)?,
            &DefinitionOptions::default().strict(),
        )
    }

    /// Reads a workflow from the parsed text of its definition. Errors and warnings have a line and column.
    pub(crate) fn of_document(
        document: &Document<'_>,
        options: &DefinitionOptions,
    ) -> Result<Self, WorkflowLoadError> {
        let workflow = Self::from_json_with(&document.value(), options);
        let mut workflow = workflow.map_err(|error| match document.locate(error.path()) {
            Some(position) => error.at(position),
            None => error,
        })?;
        for warning in &mut workflow.warnings {
            warning.position = document.locate(&warning.path);
        }
        Ok(workflow)
    }

    /// Adds a flow with the name of an agent to the workflow, so that a run can start with this agent. The only step of the flow runs this
    /// agent with the input of the flow.
    ///
    /// # Errors
    /// Returns a [`WorkflowLoadError`] if the workflow has no agent with this name.
    pub(crate) fn with_flow_of(mut self, agent: &str) -> Result<Self, WorkflowLoadError> {
        let location = DefinitionPath::default().field("flows").field(agent);
        if !self.agents.contains_key(agent) {
            let known = self.agents.keys().map(String::as_str);
            return Err(WorkflowLoadError::unknown(location, "agent", agent, known));
        }
        let unknown = UnknownFields::new(true);
        let flow = json!({"steps": [{"agent": agent}]});
        let flow = Written::new(&flow, location, &unknown);
        let body = Compiler::new(&self.policies).block(&flow, "steps")?;
        let flow = Flow {
            description: None,
            input: None,
            output: None,
            body: Body::Steps(body),
        };
        self.flows.insert(agent.to_owned(), flow);
        Ok(self)
    }

    /// Parses a workflow definition in YAML, in strict mode. Errors and warnings have a line and column.
    ///
    /// The text is one document that JSON can represent too. It nests at most 32 levels deep, which is half of the limit for JSON,
    /// because the YAML parser needs more stack.
    ///
    /// # Errors
    /// See [`parse`](Self::parse).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::workflow::Workflow;
    ///
    /// let workflow = Workflow::from_yaml(
    ///     "
    /// name: greeting
    /// flows:
    ///   main:
    ///     steps:
    ///       - return: Hello, ${input}!
    /// ",
    /// )?;
    /// assert_eq!(workflow.name.as_deref(), Some("greeting"));
    /// # Ok::<(), universal_executor::workflow::WorkflowLoadError>(())
    /// ```
    #[cfg(feature = "yaml")]
    pub fn from_yaml(text: &str) -> Result<Self, WorkflowLoadError> {
        Self::of_document(
            &Document::yaml(text)?,
            &DefinitionOptions::default().strict(),
        )
    }

    /// Returns a summary of each flow of the workflow, ordered by name.
    pub fn flows(&self) -> impl Iterator<Item = FlowSummary<'_>> {
        self.flows.iter().map(|(name, flow)| FlowSummary {
            name,
            description: flow.description.as_deref(),
            input: flow.input.as_deref(),
            output: flow.output.as_deref(),
        })
    }

    /// Returns the problems of the workflow definition that do not prevent its use.
    ///
    /// Print them when a service starts, or let [`check`](crate::check) report them in a test.
    #[must_use]
    pub fn warnings(&self) -> &[WorkflowWarning] {
        &self.warnings
    }

    /// Returns the SHA-256 hash of the workflow definition in hex. The order of keys in the definition does not change the hash.
    ///
    /// A run continues only with the definition with which it began, which this hash identifies.
    ///
    /// ```
    /// use serde_json::json;
    /// use universal_executor::workflow::Workflow;
    ///
    /// let flows = json!({"main": {"steps": [{"return": 1}]}});
    /// let one = Workflow::from_json(&json!({"name": "one", "flows": flows}))?;
    /// let two = Workflow::from_json(&json!({"flows": flows, "name": "one"}))?;
    /// assert_eq!(one.hash(), two.hash());
    /// assert_eq!(one.hash().len(), 64);
    /// # Ok::<(), universal_executor::workflow::WorkflowLoadError>(())
    /// ```
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the workflow definition as JSON with sorted keys, which is the text that is hashed.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the compiled tasks, such as agent and tool calls, of the steps in all flows of the workflow.
    pub(super) fn tasks(&self) -> Vec<&TaskForm> {
        let mut open: Vec<&Step> = Vec::new();
        for flow in self.flows.values() {
            match &flow.body {
                Body::Steps(block) => open.extend(&block.0),
                Body::Graph(graph) => open.extend(graph.nodes.iter().map(|node| &node.step)),
            }
        }
        let mut tasks = Vec::new();
        while let Some(step) = open.pop() {
            if let Work::Do(driver_task) = &step.work {
                tasks.push(&driver_task.task);
            }
            open.extend(step.blocks().into_iter().flat_map(|block| &block.0));
        }
        tasks
    }

    /// Returns the names of the flows that no other flow runs as a step.
    pub(crate) fn outermost_flows(&self) -> BTreeSet<&str> {
        let inner: BTreeSet<String> = self.flows.values().flat_map(check::inner_flows).collect();
        let names = self.flows.keys().map(String::as_str);
        names.filter(|name| !inner.contains(*name)).collect()
    }

    /// Checks the input or output of a flow, or the answer of a person, against a schema of the section `schemas`. Accepts every
    /// value if `schema` is `None`.
    ///
    /// # Errors
    /// Returns a description of the mismatch.
    pub(super) fn check(&self, schema: Option<&str>, value: &Value) -> Result<(), String> {
        let checker = schema.and_then(|name| self.checkers.get(name));
        checker.map_or(Ok(()), |checker| checker.check(value))
    }

    pub(super) fn flow(&self, name: &str) -> Option<&Flow> {
        self.flows.get(name)
    }
}

/// Problem of a definition's text that cannot be parsed, and its position if it is known.
type ReadProblem = (LoadProblem, Option<Position>);

fn load_error((problem, position): ReadProblem) -> WorkflowLoadError {
    let error = WorkflowLoadError::new(DefinitionPath::default(), problem);
    match position {
        Some(position) => error.at(position),
        None => error,
    }
}

fn problem(error: JsonError) -> ReadProblem {
    match error {
        JsonError::Syntax(error) => not_json(&error),
        JsonError::TooDeep => (LoadProblem::TooDeep, None),
        JsonError::ReservedKey => {
            let reason = error.to_string();
            (LoadProblem::Syntax { reason }, None)
        }
        JsonError::TooLarge { size, limit } => {
            let (what, found, most) = ("bytes", size, limit);
            (LoadProblem::TooMany { what, found, most }, None)
        }
    }
}

/// Converts an error of the JSON parser to a problem of a definition's text. Removes the position from its message, because the load error
/// shows the position first.
fn not_json(error: &serde_json::Error) -> ReadProblem {
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    let location = format!(" at line {line} column {column}");
    let reason = message
        .strip_suffix(&location)
        .unwrap_or(&message)
        .to_owned();
    let position = (line > 0).then_some(Position {
        file: None,
        line,
        column: column.max(1),
    });
    (LoadProblem::Syntax { reason }, position)
}

/// Rejects the field `compaction.model` if the compaction method is not `summarise`. A field with the value null is rejected, too.
fn check_compaction(definition: &Value, policies: &Policies) -> Result<(), WorkflowLoadError> {
    let method = policies
        .compaction
        .as_ref()
        .map(|compaction| compaction.method);
    let has_model = definition.pointer("/policies/compaction/model").is_some();
    if method != Some(CompactionMethod::Truncate) || !has_model {
        return Ok(());
    }
    let location = DefinitionPath::default()
        .field("policies")
        .field("compaction");
    let reason = "only the method \"summarise\" uses a model; remove this field";
    Err(WorkflowLoadError::fields(location.field("model"), reason))
}

/// Reads the section `schemas` of a workflow definition. A JSON Schema is an object, `true` or `false`.
fn schemas(schemas: BTreeMap<String, Value>) -> Result<BTreeMap<String, Json>, WorkflowLoadError> {
    let read = schemas.into_iter().map(|(name, schema)| {
        if schema.is_object() || schema.is_boolean() {
            return Ok((name, Json::from(schema)));
        }
        let location = DefinitionPath::default().field("schemas").field(&name);
        Err(WorkflowLoadError::shape(location, "a JSON Schema", &schema))
    });
    read.collect()
}

fn checkers(
    schemas: &BTreeMap<String, Json>,
) -> Result<BTreeMap<String, Checker>, WorkflowLoadError> {
    let compiled = schemas.iter().map(|(name, schema)| {
        let checker = Checker::compile(schema).map_err(|reason| {
            let location = DefinitionPath::default().field("schemas").field(name);
            let reason = format!("cannot compile the JSON Schema: {reason}");
            WorkflowLoadError::fields(location, reason)
        })?;
        Ok((name.clone(), checker))
    });
    compiled.collect()
}

fn compile_flows(
    flows: &BTreeMap<String, Value>,
    policies: &Policies,
    unknown: &UnknownFields,
) -> Result<BTreeMap<String, Flow>, WorkflowLoadError> {
    let mut compiler = Compiler::new(policies);
    section("flows", flows, unknown, |written| {
        Ok(match syntax::Flow::read(written)? {
            syntax::Flow::Steps(flow) => Flow {
                description: flow.description,
                input: flow.input,
                output: flow.output,
                body: Body::Steps(compiler.block(written, "steps")?),
            },
            syntax::Flow::Graph(flow) => Flow {
                description: flow.description,
                input: flow.input,
                output: flow.output,
                body: Body::Graph(compiler.graph(written, flow.at_once)?),
            },
        })
    })
}

fn hash(text: &str) -> String {
    hex(&Sha256::digest(text))
}

#[cfg(test)]
mod tests;
