//! Compiler of the flows of a workflow definition that are graphs: steps with dependencies.

use super::cycle;
use super::steps::{Compiler, duplicate_id, steps};
use crate::model::DefinitionPath;
use crate::workflow::ast::{Graph, GraphNode, Step, TaskForm, Work};
use crate::workflow::error::{LoadProblem, WorkflowLoadError};
use crate::workflow::syntax::{self, GraphStep, Written};
use std::collections::{BTreeMap, BTreeSet};

/// A compiled step of a graph, with the positions of the steps on which it depends.
struct Node {
    step: Step,
    location: DefinitionPath,
    depends_on: BTreeSet<usize>,
}

impl Compiler<'_> {
    /// Compiles the steps of a flow that is a graph.
    pub(super) fn graph(
        &mut self,
        flow: &Written<'_>,
        at_once: usize,
    ) -> Result<Graph, WorkflowLoadError> {
        let mut ids: BTreeMap<String, usize> = BTreeMap::new();
        let mut compiled = Vec::new();
        for (at, written) in steps(flow, "steps")?.into_iter().enumerate() {
            let (step, depends_on) = GraphStep::read(&written)?;
            check_kind(&step, &written.path)?;
            let step = self.step(at, step, &written)?;
            let location = written.path;
            if step.into.is_none() {
                let expected = "a name that other steps can depend on";
                return Err(WorkflowLoadError::missing(location.field("id"), expected));
            }
            if ids.insert(step.segment.clone(), at).is_some() {
                return Err(duplicate_id(&location, &step.segment));
            }
            compiled.push((step, location, depends_on));
        }
        let written = compiled.into_iter().map(|(step, location, depends_on)| {
            let depends_on = dependencies(&step, &location, &depends_on, &ids)?;
            Ok(Node {
                step,
                location,
                depends_on,
            })
        });
        let written = written.collect::<Result<Vec<_>, _>>()?;
        refuse_cycle(&written)?;
        let nodes = in_order(written);
        Ok(Graph { nodes, at_once })
    }
}

/// Refuses a step that a graph cannot have: a graph contains only agent, tool, model and flow steps.
fn check_kind(step: &syntax::Step, location: &DefinitionPath) -> Result<(), WorkflowLoadError> {
    use syntax::Step::{Agent, Flow, Model, Tool};
    if matches!(step, Agent(_) | Tool(_) | Model(_) | Flow(_)) {
        return Ok(());
    }
    let reason = "one of these fields is required: agent, tool, model, flow";
    Err(WorkflowLoadError::fields(location.clone(), reason))
}

/// Returns the positions of the steps on which a step of a graph depends. These steps are listed in `depends_on`, or the step's input uses
/// their results.
fn dependencies(
    step: &Step,
    location: &DefinitionPath,
    named: &[String],
    ids: &BTreeMap<String, usize>,
) -> Result<BTreeSet<usize>, WorkflowLoadError> {
    let mut depends_on = BTreeSet::new();
    for (at, name) in named.iter().enumerate() {
        let Some(position) = ids.get(name) else {
            let location = location.field("depends_on").item(at);
            let known = ids.keys().map(String::as_str);
            return Err(WorkflowLoadError::unknown(location, "step", name, known));
        };
        depends_on.insert(*position);
    }
    let mut used = |name: &str| depends_on.extend(ids.get(name));
    match &step.work {
        Work::Flow { input, .. } => input.each_variable(&mut used),
        Work::Do(driver_task) => match &driver_task.task {
            TaskForm::Agent { input, .. }
            | TaskForm::Tool { input, .. }
            | TaskForm::Model { input, .. } => input.each_variable(&mut used),
            TaskForm::WaitFor { .. } | TaskForm::Ask { .. } | TaskForm::Emit { .. } => {}
        },
        Work::Parallel { .. }
        | Work::ForEach(_)
        | Work::Loop { .. }
        | Work::Choose { .. }
        | Work::Try { .. }
        | Work::Set(_)
        | Work::Return(_)
        | Work::Fail { .. } => {}
    }
    Ok(depends_on)
}

fn refuse_cycle(written: &[Node]) -> Result<(), WorkflowLoadError> {
    let edges: Vec<Vec<usize>> = written
        .iter()
        .map(|step| step.depends_on.iter().copied().collect())
        .collect();
    let Some(cycle) = cycle::find(&edges) else {
        return Ok(());
    };
    let name = |at: usize| written.get(at).map(|step| step.step.segment.as_str());
    let names = cycle::names(&cycle, name);
    let first = cycle.first().and_then(|at| written.get(*at));
    let location = first.map(|step| step.location.clone()).unwrap_or_default();
    let what = "steps";
    Err(WorkflowLoadError::new(
        location,
        LoadProblem::Cycle { what, names },
    ))
}

/// Sorts the steps of a graph topologically. Steps that do not depend on each other retain the order of the definition where possible. The
/// graph must be acyclic.
fn in_order(written: Vec<Node>) -> Vec<GraphNode> {
    let mut left: Vec<(usize, Node)> = written.into_iter().enumerate().collect();
    let mut positions: BTreeMap<usize, usize> = BTreeMap::new();
    let mut nodes = Vec::new();
    while !left.is_empty() {
        let before = left.len();
        let mut later = Vec::new();
        for (at, written) in left {
            let depends_on = written
                .depends_on
                .iter()
                .map(|on| positions.get(on).copied());
            match depends_on.collect::<Option<Vec<_>>>() {
                Some(depends_on) => {
                    positions.insert(at, nodes.len());
                    let step = written.step;
                    nodes.push(GraphNode { step, depends_on });
                }
                None => later.push((at, written)),
            }
        }
        left = later;
        if left.len() == before {
            break;
        }
    }
    nodes
}
