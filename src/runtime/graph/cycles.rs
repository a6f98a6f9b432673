use super::tarjan::components;
use super::{Cycle, Graph, Node, Step};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of executors of a group that are tried as the start of the group's shortest trigger cycle. A search from every executor
/// would take quadratic time. A cycle of two executors, the shortest possible one, ends the search.
const STARTS: usize = 64;

/// Returns one short trigger cycle of each group of executors that can all reach each other by triggers.
pub(super) fn of(graph: &Graph) -> Vec<Cycle> {
    let reach = Reach::of(graph);
    let mut groups: Vec<BTreeSet<usize>> = components(&reach.edges())
        .into_iter()
        .map(|group| {
            let executors = group.into_iter().filter(|at| *at < graph.nodes.len());
            executors.collect::<BTreeSet<usize>>()
        })
        .filter(|group| group.len() > 1)
        .collect();
    groups.sort();
    groups
        .iter()
        .filter_map(|group| reach.shortest(group))
        .collect()
}

/// Index of the trigger graph: for each schema, the executors that breadcrumbs of the schema trigger. Edges lead from executors
/// to schemas and back, which keeps the graph small: one schema with a thousand writers and a thousand readers has two thousand
/// edges, not a million.
struct Reach<'g> {
    graph: &'g Graph,
    /// For each schema in the graph's list `schemas`, the indexes in `nodes` of the executors that breadcrumbs of the schema
    /// trigger.
    triggered: Vec<Vec<usize>>,
    /// Indexes of the executors whose triggers are not limited to certain schemas.
    by_any: Vec<usize>,
}

impl<'g> Reach<'g> {
    fn of(graph: &'g Graph) -> Self {
        let mut triggered = vec![Vec::new(); graph.schemas.len()];
        let mut by_any = Vec::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            if node.any_trigger {
                by_any.push(at);
                continue;
            }
            for schema in &node.triggers {
                if let Some(executors) = triggered.get_mut(*schema) {
                    executors.push(at);
                }
            }
        }
        Self {
            graph,
            triggered,
            by_any,
        }
    }

    /// Returns the edges of the trigger graph: for each vertex, the indexes of the vertices to which it has an edge. The vertices
    /// are the executors, then the schemas, then one vertex for "any schema". Every schema has an edge to this last vertex.
    fn edges(&self) -> Vec<Vec<usize>> {
        let executors = self.graph.nodes.len();
        let any = executors + self.graph.schemas.len();
        let written = self.graph.nodes.iter().map(|node| {
            let schemas = writes(node).map(|schema| executors + schema);
            schemas.collect()
        });
        let triggered = self.triggered.iter().map(|executors| {
            let executors = executors.iter().copied();
            executors.chain([any]).collect()
        });
        written
            .chain(triggered)
            .chain([self.by_any.clone()])
            .collect()
    }

    fn node(&self, executor: usize) -> Option<&'g Node> {
        self.graph.nodes.get(executor)
    }

    /// Returns the shortest trigger cycle within a group of executors. Only cycles through one of the first [`STARTS`] executors
    /// of the group are searched; of several shortest cycles, the first one found is returned.
    fn shortest(&self, group: &BTreeSet<usize>) -> Option<Cycle> {
        let mut shortest: Option<Vec<(usize, usize)>> = None;
        for start in group.iter().take(STARTS) {
            let limit = shortest.as_ref().map_or(usize::MAX, Vec::len);
            if limit <= 2 {
                break;
            }
            shortest = self.through(*start, group, limit).or(shortest);
        }
        let steps = shortest?.into_iter().filter_map(|(executor, schema)| {
            Some(Step {
                executor: self.node(executor)?.id.clone(),
                schema: self.graph.schemas.get(schema)?.clone(),
            })
        });
        Some(Cycle {
            steps: steps.collect(),
        })
    }

    /// Returns the shortest trigger cycle through an executor, if this cycle has fewer steps than `limit`. Uses a breadth-first search.
    /// Each step is an executor and the schema by which it triggers the next executor.
    fn through(
        &self,
        start: usize,
        group: &BTreeSet<usize>,
        limit: usize,
    ) -> Option<Vec<(usize, usize)>> {
        let closes = self.node(start)?;
        // The previous executor, the schema, and the number of steps from the start, by the reached executor.
        let mut reached: BTreeMap<usize, (usize, usize, usize)> = BTreeMap::new();
        let mut visited_schemas = BTreeSet::new();
        let mut visited_any = false;
        let mut waiting = VecDeque::from([(start, 0)]);
        while let Some((executor, steps)) = waiting.pop_front() {
            if steps + 1 >= limit {
                return None;
            }
            for schema in writes(self.node(executor)?) {
                // Checked before a seen schema is skipped, because the start may have marked its own trigger schema as seen.
                if executor != start && (closes.any_trigger || closes.triggers.contains(&schema)) {
                    return Some(path(&reached, executor, schema));
                }
                if !visited_schemas.insert(schema) {
                    continue;
                }
                let by_any: &[usize] = if visited_any { &[] } else { &self.by_any };
                visited_any = true;
                let named = self.triggered.get(schema).into_iter().flatten();
                for to in named.chain(by_any) {
                    if *to != start && group.contains(to) && !reached.contains_key(to) {
                        reached.insert(*to, (executor, schema, steps + 1));
                        waiting.push_back((*to, steps + 1));
                    }
                }
            }
        }
        None
    }
}

/// Returns the steps of a trigger cycle, from the start executor of the search to the executor `last`. Breadcrumbs of `schema`, which
/// `last` writes, trigger the start executor again.
fn path(
    reached: &BTreeMap<usize, (usize, usize, usize)>,
    last: usize,
    schema: usize,
) -> Vec<(usize, usize)> {
    let mut steps = vec![(last, schema)];
    let mut at = last;
    while let Some((before, schema, _)) = reached.get(&at) {
        steps.push((*before, *schema));
        at = *before;
    }
    steps.reverse();
    steps
}

fn writes(node: &Node) -> impl Iterator<Item = usize> + '_ {
    node.writes.iter().flatten().copied()
}
