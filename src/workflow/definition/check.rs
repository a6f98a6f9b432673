//! Checks that compare several parts of a workflow definition, and find unknown names, cycles and too deep nesting.

use super::{Instruction, Workflow, cycle, variables};
use crate::model::DefinitionPath;
use crate::workflow::ast::{Block, Body, Flow, Step, TaskForm, Work};
use crate::workflow::error::{LoadProblem, Oddity, WorkflowLoadError, WorkflowWarning};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum depth of nested steps in a flow, including the steps of inner flows.
const DEPTH: usize = 48;

/// Maximum number of agents in a chain in which each agent calls or delegates to the next one. Each agent of the chain holds a
/// conversation.
const CHAIN: usize = 16;

/// Checks a compiled workflow, and returns its warnings.
///
/// # Errors
/// Returns the first unknown name or variable, the first cycle, or the first chain or nesting that is too deep.
pub(super) fn check(workflow: &Workflow) -> Result<Vec<WorkflowWarning>, WorkflowLoadError> {
    let mut names = Names {
        workflow,
        used: BTreeSet::new(),
        warnings: Vec::new(),
    };
    names.agents()?;
    names.flows()?;
    names.policies()?;
    refuse_cycles(workflow)?;
    refuse_depth(workflow)?;
    names.unused();
    Ok(names.warnings)
}

/// Checks that each prompt, model, schema, tool, agent and flow to which a workflow definition refers exists, and collects the
/// used names.
struct Names<'w> {
    workflow: &'w Workflow,
    used: BTreeSet<(&'static str, String)>,
    warnings: Vec<WorkflowWarning>,
}

impl Names<'_> {
    fn find<T>(
        &mut self,
        what: &'static str,
        section: &BTreeMap<String, T>,
        name: &str,
        location: DefinitionPath,
    ) -> Result<(), WorkflowLoadError> {
        if section.contains_key(name) {
            self.used.insert((what, name.to_owned()));
            return Ok(());
        }
        let known = section.keys().map(String::as_str);
        Err(WorkflowLoadError::unknown(location, what, name, known))
    }

    fn agents(&mut self) -> Result<(), WorkflowLoadError> {
        let all = self.workflow;
        for (name, agent) in &all.agents {
            let location = DefinitionPath::default().field("agents").field(name);
            if let Instruction::Prompt(prompt) = &agent.instruction {
                let location = location.field("instruction").field("prompt");
                self.find("prompt", &all.prompts, prompt, location)?;
            }
            if let Some(model) = &agent.model {
                self.find("model", &all.models, model, location.field("model"))?;
            }
            if let Some(schema) = &agent.output {
                self.find("schema", &all.schemas, schema, location.field("output"))?;
            }
            for (at, tool) in agent.tools.iter().enumerate() {
                let location = location.field("tools").item(at);
                self.find("tool", &all.tools, tool, location)?;
            }
            for (field, agents) in [("delegate", &agent.delegate), ("use", &agent.uses)] {
                for (at, agent) in agents.iter().enumerate() {
                    let location = location.field(field).item(at);
                    self.find("agent", &all.agents, agent, location)?;
                }
            }
            for (at, tool) in agent.permissions.approval.iter().enumerate() {
                if !agent.tools.contains(tool) {
                    let location = location.field("permissions").field("approval").item(at);
                    let known = agent.tools.iter().map(String::as_str);
                    return Err(WorkflowLoadError::unknown(
                        location,
                        "tool of this agent",
                        tool,
                        known,
                    ));
                }
            }
        }
        Ok(())
    }

    fn flows(&mut self) -> Result<(), WorkflowLoadError> {
        let all = self.workflow;
        for (name, flow) in &all.flows {
            let location = DefinitionPath::default().field("flows").field(name);
            for (field, schema) in [("input", &flow.input), ("output", &flow.output)] {
                if let Some(schema) = schema {
                    self.find("schema", &all.schemas, schema, location.field(field))?;
                }
            }
            match &flow.body {
                Body::Steps(block) => self.block(block)?,
                Body::Graph(graph) => {
                    graph
                        .nodes
                        .iter()
                        .try_for_each(|node| self.step(&node.step))?;
                }
            }
            variables::check(flow, &mut self.warnings)?;
        }
        Ok(())
    }

    fn block(&mut self, block: &Block) -> Result<(), WorkflowLoadError> {
        let mut has_ended = false;
        for step in &block.0 {
            if has_ended {
                let warning = WorkflowWarning::new(step.location.clone(), Oddity::Unreachable);
                self.warnings.push(warning);
            }
            has_ended = always_ends(step);
            self.step(step)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), WorkflowLoadError> {
        let all = self.workflow;
        let location = &step.location;
        match &step.work {
            Work::Do(driver_task) => self.task(&driver_task.task, location)?,
            Work::Flow { flow, .. } => {
                self.find("flow", &all.flows, flow, location.field("flow"))?
            }
            Work::Parallel { .. }
            | Work::ForEach(_)
            | Work::Loop { .. }
            | Work::Choose { .. }
            | Work::Try { .. }
            | Work::Set(_)
            | Work::Return(_)
            | Work::Fail { .. } => {}
        }
        step.blocks()
            .into_iter()
            .try_for_each(|block| self.block(block))
    }

    fn task(
        &mut self,
        task: &TaskForm,
        location: &DefinitionPath,
    ) -> Result<(), WorkflowLoadError> {
        let all = self.workflow;
        match task {
            TaskForm::Agent { agent, .. } => {
                self.find("agent", &all.agents, agent, location.field("agent"))
            }
            TaskForm::Tool { tool, .. } => {
                self.find("tool", &all.tools, tool, location.field("tool"))
            }
            TaskForm::Model {
                model,
                prompt,
                output,
                ..
            } => {
                self.find("model", &all.models, model, location.field("model"))?;
                if let Some(prompt) = prompt {
                    self.find("prompt", &all.prompts, prompt, location.field("prompt"))?;
                }
                self.schema(output.as_deref(), location)
            }
            TaskForm::Ask { output, .. } => self.schema(output.as_deref(), location),
            TaskForm::WaitFor { .. } | TaskForm::Emit { .. } => Ok(()),
        }
    }

    fn schema(
        &mut self,
        name: Option<&str>,
        location: &DefinitionPath,
    ) -> Result<(), WorkflowLoadError> {
        let all = self.workflow;
        name.map_or(Ok(()), |name| {
            self.find("schema", &all.schemas, name, location.field("output"))
        })
    }

    fn policies(&mut self) -> Result<(), WorkflowLoadError> {
        let all = self.workflow;
        let compaction = all.policies.compaction.as_ref();
        let Some(model) = compaction.and_then(|compaction| compaction.model.as_deref()) else {
            return Ok(());
        };
        let location = DefinitionPath::default()
            .field("policies")
            .field("compaction");
        self.find("model", &all.models, model, location.field("model"))
    }

    /// Adds a warning for each entry of the definition to which no other part refers. Flows are entry points of runs, and so are agents
    /// named `main` or `default` and all agents of a workflow without flows.
    fn unused(&mut self) {
        let all = self.workflow;
        let agents = all.agents.keys().filter(|_| !all.flows.is_empty());
        let entries = ["main", "default"];
        let agents: Vec<_> = agents
            .filter(|name| !entries.contains(&name.as_str()))
            .collect();
        let sections: [(&str, &'static str, Vec<&String>); 5] = [
            ("models", "model", all.models.keys().collect()),
            ("prompts", "prompt", all.prompts.keys().collect()),
            ("schemas", "schema", all.schemas.keys().collect()),
            ("tools", "tool", all.tools.keys().collect()),
            ("agents", "agent", agents),
        ];
        for (section, what, names) in sections {
            for name in names {
                if !self.used.contains(&(what, name.clone())) {
                    let location = DefinitionPath::default().field(section).field(name);
                    let name = name.clone();
                    let oddity = Oddity::Unused { what, name };
                    self.warnings.push(WorkflowWarning::new(location, oddity));
                }
            }
        }
    }
}

/// Returns `true` if a step always ends its list of steps, so that no later step runs.
fn always_ends(step: &Step) -> bool {
    let last_always_ends = |block: &Block| block.0.last().is_some_and(always_ends);
    match &step.work {
        Work::Return(_) | Work::Fail { .. } => true,
        Work::Choose { arms, .. } => {
            let otherwise = arms.last().is_some_and(|arm| arm.test.is_none());
            otherwise && arms.iter().all(|arm| last_always_ends(&arm.body))
        }
        Work::Try { on_failure, body } => last_always_ends(body) && last_always_ends(on_failure),
        Work::Do(_)
        | Work::Flow { .. }
        | Work::Parallel { .. }
        | Work::ForEach(_)
        | Work::Loop { .. }
        | Work::Set(_) => false,
    }
}

fn refuse_cycles(workflow: &Workflow) -> Result<(), WorkflowLoadError> {
    let agents: Vec<&str> = workflow.agents.keys().map(String::as_str).collect();
    let edges = workflow.agents.values();
    let edges: Vec<_> = edges
        .map(|agent| positions(agent.delegate.iter().chain(&agent.uses), &agents))
        .collect();
    refuse_cycle("agents", &agents, &edges)?;
    refuse_chain(&agents, &edges)?;
    let flows: Vec<&str> = workflow.flows.keys().map(String::as_str).collect();
    let edges = workflow.flows.values().map(runs);
    let edges: Vec<_> = edges.map(|runs| positions(runs.keys(), &flows)).collect();
    refuse_cycle("flows", &flows, &edges)
}

fn positions<'n>(names: impl Iterator<Item = &'n String>, all: &[&str]) -> Vec<usize> {
    names
        .filter_map(|name| all.binary_search(&name.as_str()).ok())
        .collect()
}

/// Refuses agents that call or delegate to each other in a cycle, and flows that run each other in a cycle. The names are sorted,
/// and `edges` has the successors of each name in the same order.
///
/// # Errors
/// Returns [`LoadProblem::Cycle`].
fn refuse_cycle(
    what: &'static str,
    all: &[&str],
    edges: &[Vec<usize>],
) -> Result<(), WorkflowLoadError> {
    let Some(cycle) = cycle::find(edges) else {
        return Ok(());
    };
    let names = cycle::names(&cycle, |at| all.get(at).copied());
    let mut location = DefinitionPath::default().field(what);
    if let Some(first) = names.first() {
        location = location.field(first);
    }
    Err(WorkflowLoadError::new(
        location,
        LoadProblem::Cycle { what, names },
    ))
}

/// Refuses a chain of more than [`CHAIN`] agents that call or delegate to each other. The parameters are those of [`refuse_cycle`]. Each
/// round of the loop finds chains that are one agent longer, so `CHAIN` rounds are enough.
///
/// # Errors
/// Returns [`LoadProblem::TooMany`].
fn refuse_chain(all: &[&str], edges: &[Vec<usize>]) -> Result<(), WorkflowLoadError> {
    let mut lengths = vec![1; all.len()];
    for _ in 0..CHAIN {
        let longer = |next: &Vec<usize>| {
            let next = next.iter().filter_map(|at| lengths.get(*at).copied());
            1 + next.max().unwrap_or_default()
        };
        lengths = edges.iter().map(longer).collect();
    }
    let mut found = all.iter().zip(lengths);
    let Some((name, found)) = found.find(|(_, length)| *length > CHAIN) else {
        return Ok(());
    };
    let location = DefinitionPath::default().field("agents").field(name);
    let (what, most) = ("agents in a chain of \"use\" and \"delegate\"", CHAIN);
    let problem = LoadProblem::TooMany { what, found, most };
    Err(WorkflowLoadError::new(location, problem))
}

/// Returns the names of the flows that a flow runs as steps.
pub(super) fn inner_flows(flow: &Flow) -> impl Iterator<Item = String> + use<> {
    runs(flow).into_keys()
}

/// Returns the flows that a flow runs as steps, each with the maximum nesting depth of the steps that run it.
fn runs(flow: &Flow) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    each_step(flow, |step, depth| {
        if let Work::Flow { flow, .. } = &step.work {
            let deepest: &mut usize = found.entry(flow.clone()).or_default();
            *deepest = depth.max(*deepest);
        }
    });
    found
}

fn each_step(flow: &Flow, mut visit: impl FnMut(&Step, usize)) {
    let mut open: Vec<(&Step, usize)> = match &flow.body {
        Body::Steps(block) => block.0.iter().map(|step| (step, 1)).collect(),
        Body::Graph(graph) => graph.nodes.iter().map(|node| (&node.step, 1)).collect(),
    };
    while let Some((step, depth)) = open.pop() {
        visit(step, depth);
        for block in step.blocks() {
            open.extend(block.0.iter().map(|step| (step, depth + 1)));
        }
    }
}

/// Refuses a workflow with steps that are nested deeper than [`DEPTH`]. Without cycles, each round finds the depth of at least one more
/// flow.
fn refuse_depth(workflow: &Workflow) -> Result<(), WorkflowLoadError> {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    while known.len() < workflow.flows.len() {
        let before = known.len();
        for (name, flow) in &workflow.flows {
            let runs = runs(flow);
            let below = runs.iter().map(|(name, depth)| {
                let below = known.get(name.as_str())?;
                Some(depth + below)
            });
            let Some(below) = below.collect::<Option<Vec<usize>>>() else {
                continue;
            };
            let mut deepest = below.into_iter().max().unwrap_or_default();
            each_step(flow, |_, depth| deepest = deepest.max(depth));
            if deepest > DEPTH {
                let location = DefinitionPath::default().field("flows").field(name);
                let (what, found, most) = ("levels of nested steps", deepest, DEPTH);
                let problem = LoadProblem::TooMany { what, found, most };
                return Err(WorkflowLoadError::new(location, problem));
            }
            known.insert(name, deepest);
        }
        if known.len() == before {
            break;
        }
    }
    Ok(())
}
