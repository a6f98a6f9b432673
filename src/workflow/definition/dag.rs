//! Steps that name what they depend on.

use super::circle;
use super::steps::{Reader, id, twice};
use crate::model::DefinitionPath;
use crate::workflow::ast::{Graph, GraphNode, Step, TaskForm, Work};
use crate::workflow::error::{LoadProblem, WorkflowLoadError};
use crate::workflow::fields::Fields;
use crate::workflow::shape;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Whether the steps of a flow are a graph: it says so, or one of them depends on others.
pub(super) fn is_dag(fields: &Fields<'_>) -> Result<bool, WorkflowLoadError> {
    if let Some(said) = fields.flag("dag")? {
        return Ok(said);
    }
    let steps = fields.list("steps")?.unwrap_or_default();
    let depends = |step: &Value| step.get("depends_on").is_some();
    Ok(steps.iter().any(|(step, _)| depends(step)))
}

/// A step as it is written, and on which it depends by position.
struct Written {
    step: Step,
    place: DefinitionPath,
    depends_on: BTreeSet<usize>,
}

pub(super) fn read(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
) -> Result<Graph, WorkflowLoadError> {
    let list = fields.list("steps")?.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| fields.missing("steps", "a list of steps"))?;
    let mut ids: BTreeMap<String, usize> = BTreeMap::new();
    let mut read = Vec::new();
    for (at, (value, place)) in list.into_iter().enumerate() {
        let (step, depends_on) = node(reader, value, &place)?;
        if ids.insert(step.segment.clone(), at).is_some() {
            return Err(twice(&place, &step.segment));
        }
        read.push((step, place, depends_on));
    }
    let written = read.into_iter().map(|(step, place, depends_on)| {
        let depends_on = dependencies(&step, &place, &depends_on, &ids)?;
        Ok(Written {
            step,
            place,
            depends_on,
        })
    });
    let written = written.collect::<Result<Vec<_>, _>>()?;
    refuse_circle(&written)?;
    let at_once = fields.whole("at_once", 1..=256)?.unwrap_or(8);
    Ok(Graph {
        nodes: in_order(written),
        at_once: usize::try_from(at_once).unwrap_or(1),
    })
}

/// One step, and the ids in its `depends_on`.
fn node(
    reader: &mut Reader<'_>,
    value: &Value,
    place: &DefinitionPath,
) -> Result<(Step, Vec<String>), WorkflowLoadError> {
    let fields = Fields::of_any(value, place)?;
    if id(&fields)?.is_none() {
        return Err(fields.missing("id", "a name that others can depend on"));
    }
    let kind = fields.only_one_of(&shape::node_kinds())?;
    fields.only(&shape::node_fields(kind))?;
    let depends_on = fields.texts("depends_on")?;
    let mut plain = value.clone();
    if let Value::Object(map) = &mut plain {
        map.remove("depends_on");
    }
    let step = reader.step(0, &plain, place)?;
    Ok((step, depends_on))
}

/// What a step says it depends on, and the steps whose results it uses.
fn dependencies(
    step: &Step,
    place: &DefinitionPath,
    named: &[String],
    ids: &BTreeMap<String, usize>,
) -> Result<BTreeSet<usize>, WorkflowLoadError> {
    let mut depends_on = BTreeSet::new();
    for (at, name) in named.iter().enumerate() {
        let Some(position) = ids.get(name) else {
            let place = place.field("depends_on").item(at);
            let known = ids.keys().map(String::as_str);
            return Err(WorkflowLoadError::unknown(place, "step", name, known));
        };
        depends_on.insert(*position);
    }
    let mut used = |name: &str| depends_on.extend(ids.get(name));
    match &step.work {
        Work::Flow { input, .. } => input.each_variable(&mut used),
        Work::Do(doing) => match &doing.task {
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

fn refuse_circle(written: &[Written]) -> Result<(), WorkflowLoadError> {
    let edges: Vec<Vec<usize>> = written
        .iter()
        .map(|step| step.depends_on.iter().copied().collect())
        .collect();
    let Some(circle) = circle::find(&edges) else {
        return Ok(());
    };
    let name = |at: usize| written.get(at).map(|step| step.step.segment.as_str());
    let names = circle::names(&circle, name);
    let first = circle.first().and_then(|at| written.get(*at));
    let place = first.map(|step| step.place.clone()).unwrap_or_default();
    let what = "steps";
    Err(WorkflowLoadError::new(
        place,
        LoadProblem::Cycle { what, names },
    ))
}

/// Each after all it depends on, else as written. There is no circle.
fn in_order(written: Vec<Written>) -> Vec<GraphNode> {
    let mut left: Vec<(usize, Written)> = written.into_iter().enumerate().collect();
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
