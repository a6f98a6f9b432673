//! The compiler of definitions, with errors that name the path to fix.

mod breadcrumbs;
mod check;
mod circle;
mod composites;
mod dag;
mod document;
mod limits;
mod locate;
mod sections;
mod steps;
mod top;
mod variables;
#[cfg(feature = "yaml")]
mod yaml;

pub(super) use composites::MATCHED;
pub(crate) use document::Document;
pub use sections::{
    AgentPermissions, AgentSpec, History, Instruction, ModelSpec, WorkflowToolSpec,
};
pub(super) use top::Definition;

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

/// A workflow: what its definition says, checked and compiled.
///
/// What a field is for stands with the field of the same name; flows and their steps are described in the
/// [module](crate::workflow).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Workflow {
    /// What it is called.
    pub name: Option<String>,
    /// What it is good for.
    pub description: Option<String>,
    /// Models by name.
    pub models: BTreeMap<String, ModelSpec>,
    /// Texts for agents and models by name.
    pub prompts: BTreeMap<String, String>,
    /// JSON Schemas by name.
    pub schemas: BTreeMap<String, Json>,
    /// Tools that agents and steps may use, by name.
    pub tools: BTreeMap<String, WorkflowToolSpec>,
    /// Agents by name.
    pub agents: BTreeMap<String, AgentSpec>,
    /// What holds for all of it.
    pub policies: Policies,
    flows: BTreeMap<String, Flow>,
    checkers: BTreeMap<String, Checker>,
    warnings: Vec<WorkflowWarning>,
    text: Arc<str>,
    hash: String,
}

/// What is known of a flow without running it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FlowSummary<'w> {
    /// Its name.
    pub name: &'w str,
    /// What it is good for.
    pub description: Option<&'w str>,
    /// The schema of its input, by its name in `schemas`.
    pub input: Option<&'w str>,
    /// The schema of its output, by its name in `schemas`.
    pub output: Option<&'w str>,
}

impl Workflow {
    /// Reads a definition in strict mode: an unknown field is an error. Every object can have comments: the fields `comment`,
    /// `metadata` and `$schema`, and fields that end with `_comment` or start with `x-`.
    ///
    /// # Errors
    /// [`WorkflowLoadError`] names the path to fix.
    pub fn from_json(definition: &Value) -> Result<Self, WorkflowLoadError> {
        Self::from_json_with(definition, &DefinitionOptions::default().strict())
    }

    /// Reads a definition, in strict mode only if [`DefinitionOptions::strict`] is set. Without strict mode an unknown field has no effect, and
    /// [`warnings`](Self::warnings) names it. The [`hash`](Self::hash) is that of the definition without these fields. The other
    /// options are for subscriptions.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json). An unknown field is an error in every mode if its name is nearly that of a known field,
    /// because a mistyped restriction would not restrict. More than 100 unknown fields are an error.
    pub fn from_json_with(
        definition: &Value,
        options: &DefinitionOptions,
    ) -> Result<Self, WorkflowLoadError> {
        if let Err(error) = admit(definition) {
            return Err(unread(problem(error)));
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

    /// Reads a definition from the text of its JSON. Errors and warnings say line and column.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json); also if the text is not JSON, is larger than 1 MiB or has a name twice in
    /// one object.
    pub fn parse(text: &str) -> Result<Self, WorkflowLoadError> {
        Self::of_document(
            &Document::json(text)?,
            &DefinitionOptions::default().strict(),
        )
    }

    /// Reads a document that was parsed. Errors and warnings have line and column.
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

    /// The same with a flow of the name of an agent, in which that agent answers what the flow is given.
    ///
    /// # Errors
    /// [`WorkflowLoadError`] if there is no such agent.
    pub(crate) fn with_flow_of(mut self, agent: &str) -> Result<Self, WorkflowLoadError> {
        let place = DefinitionPath::default().field("flows").field(agent);
        if !self.agents.contains_key(agent) {
            let known = self.agents.keys().map(String::as_str);
            return Err(WorkflowLoadError::unknown(place, "agent", agent, known));
        }
        let unknown = UnknownFields::new(true);
        let flow = json!({"steps": [{"agent": agent}]});
        let flow = Written::new(&flow, place, &unknown);
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

    /// Reads a definition from YAML: one document, of what JSON has as well. Errors and warnings say line and column.
    ///
    /// The text nests at most 32 levels deep, which is half of the limit for JSON: the YAML parser needs more stack.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    #[cfg(feature = "yaml")]
    pub fn from_yaml(text: &str) -> Result<Self, WorkflowLoadError> {
        Self::of_document(
            &Document::yaml(text)?,
            &DefinitionOptions::default().strict(),
        )
    }

    /// Its flows, by name.
    pub fn flows(&self) -> impl Iterator<Item = FlowSummary<'_>> {
        self.flows.iter().map(|(name, flow)| FlowSummary {
            name,
            description: flow.description.as_deref(),
            input: flow.input.as_deref(),
            output: flow.output.as_deref(),
        })
    }

    /// What is odd in the definition.
    #[must_use]
    pub fn warnings(&self) -> &[WorkflowWarning] {
        &self.warnings
    }

    /// SHA-256 of the definition in hex, the same in whatever order its keys are. A run goes on only with the definition
    /// that it began with.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The definition as its hash is made of it: JSON with sorted keys.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// All that its steps have a driver do.
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
            if let Work::Do(doing) = &step.work {
                tasks.push(&doing.task);
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

    /// Whether a value fits a schema of this name.
    ///
    /// # Errors
    /// Says what does not fit.
    pub(super) fn check(&self, schema: Option<&str>, value: &Value) -> Result<(), String> {
        let checker = schema.and_then(|name| self.checkers.get(name));
        checker.map_or(Ok(()), |checker| checker.check(value))
    }

    pub(super) fn flow(&self, name: &str) -> Option<&Flow> {
        self.flows.get(name)
    }
}

/// What is wrong with a text that cannot be read at all, and where, if that is known.
type Unread = (LoadProblem, Option<Position>);

fn unread((problem, position): Unread) -> WorkflowLoadError {
    let error = WorkflowLoadError::new(DefinitionPath::default(), problem);
    match position {
        Some(position) => error.at(position),
        None => error,
    }
}

fn problem(error: JsonError) -> Unread {
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

/// The parser says where as well, which stands before what is wrong.
fn not_json(error: &serde_json::Error) -> Unread {
    let (line, column) = (error.line(), error.column());
    let said = error.to_string();
    let place = format!(" at line {line} column {column}");
    let reason = said.strip_suffix(&place).unwrap_or(&said).to_owned();
    let position = (line > 0).then_some(Position {
        file: None,
        line,
        column: column.max(1),
    });
    (LoadProblem::Syntax { reason }, position)
}

/// Refuses a model that writes no summary, also if it is null.
fn check_compaction(definition: &Value, policies: &Policies) -> Result<(), WorkflowLoadError> {
    let method = policies
        .compaction
        .as_ref()
        .map(|compaction| compaction.method);
    let has_model = definition.pointer("/policies/compaction/model").is_some();
    if method != Some(CompactionMethod::Truncate) || !has_model {
        return Ok(());
    }
    let place = DefinitionPath::default()
        .field("policies")
        .field("compaction");
    let reason = "only the method \"summarise\" has a model; remove the model";
    Err(WorkflowLoadError::fields(place.field("model"), reason))
}

/// Returns JSON Schemas: objects, or `true` and `false`, which are schemas, too.
fn schemas(schemas: BTreeMap<String, Value>) -> Result<BTreeMap<String, Json>, WorkflowLoadError> {
    let read = schemas.into_iter().map(|(name, schema)| {
        if schema.is_object() || schema.is_boolean() {
            return Ok((name, Json::from(schema)));
        }
        let place = DefinitionPath::default().field("schemas").field(&name);
        Err(WorkflowLoadError::shape(place, "a JSON Schema", &schema))
    });
    read.collect()
}

fn checkers(
    schemas: &BTreeMap<String, Json>,
) -> Result<BTreeMap<String, Checker>, WorkflowLoadError> {
    let compiled = schemas.iter().map(|(name, schema)| {
        let checker = Checker::compile(schema).map_err(|reason| {
            let place = DefinitionPath::default().field("schemas").field(name);
            let reason = format!("it is no JSON Schema to check with: {reason}");
            WorkflowLoadError::fields(place, reason)
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
