//! Interprets steps that run side by side, in `parallel` steps, `for_each` steps and graphs.

use super::path::StepPath;
use super::progress::{BodyState, Cursor, Node, Produced, Settled, Vars};
use super::protocol::StepFailure;
use super::scope::Scope;
use super::walk::{End, Walk, Walked, unresolved};
use crate::model::Json;
use crate::workflow::ast::{Block, Branch, ForEach, Graph};
use crate::workflow::expression::{Unresolved, flow_value};
use crate::workflow::syntax::Join;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

/// The parts of a step that run side by side: the branches of a `parallel` step, or the items of a `for_each` step.
enum FanOut<'r> {
    Branches(&'r [Branch]),
    Items { each: &'r ForEach, list: Json },
}

impl<'r> FanOut<'r> {
    fn count(&self) -> usize {
        match self {
            Self::Branches(branches) => branches.len(),
            Self::Items { list, .. } => list.as_array().map_or(0, Vec::len),
        }
    }

    fn at_once(&self) -> usize {
        match self {
            Self::Branches(branches) => branches.len(),
            Self::Items { each, .. } => each.at_once,
        }
    }

    fn path(&self, path: &StepPath, at: usize) -> Option<StepPath> {
        match self {
            Self::Branches(branches) => Some(path.child(&branches.get(at)?.segment)),
            Self::Items { .. } => Some(path.iteration(at as u64 + 1)),
        }
    }

    fn body(&self, at: usize) -> Option<&'r Block> {
        match self {
            Self::Branches(branches) => Some(&branches.get(at)?.body),
            Self::Items { each, .. } => Some(&each.body),
        }
    }
}

impl<'r> Walk<'r> {
    pub(super) fn parallel(
        &mut self,
        branches: &'r [Branch],
        join: Join,
        path: &StepPath,
        scope: &Scope<'_>,
    ) -> Result<Walked, Walked> {
        self.enter(path, new_fan_out())?;
        Ok(self.fan_out(&FanOut::Branches(branches), join, path, scope))
    }

    pub(super) fn for_each(
        &mut self,
        each: &'r ForEach,
        path: &StepPath,
        scope: &Scope<'_>,
    ) -> Result<Walked, Walked> {
        self.enter(path, new_fan_out())?;
        // Outer variables do not change while the items run, so each walk computes the same list.
        let list = self.value(&each.list, scope).map_err(Walked::failed)?;
        let Some(items) = list.as_array() else {
            let message = "the value of for_each is not a list";
            return Err(Walked::failed(StepFailure::new("not_a_list", message)));
        };
        let most = self.workflow.policies.limits.items;
        if items.len() as u64 > most {
            let message = format!(
                "{} items where at most {most} are allowed by policies.limits.items",
                items.len()
            );
            return Err(Walked::failed(StepFailure::new("too_many_items", message)));
        }
        Ok(self.fan_out(&FanOut::Items { each, list }, each.join, path, scope))
    }

    fn fan_out(
        &mut self,
        fan_out: &FanOut<'r>,
        join: Join,
        path: &StepPath,
        scope: &Scope<'_>,
    ) -> Walked {
        let Some((begun, settled)) = self.fan_out_state(path) else {
            return self.misfit(path);
        };
        let begun = 0..fan_out.count().min(*begun);
        let open: Vec<usize> = begun.filter(|at| !settled.contains_key(at)).collect();
        for at in open {
            if let Some(end) = self.branch(fan_out, join, at, path, scope) {
                return Walked::Ended(end);
            }
        }
        loop {
            let Some((begun, settled)) = self.fan_out_state(path) else {
                return self.misfit(path);
            };
            let in_flight = begun.saturating_sub(settled.len());
            let at = *begun;
            if at >= fan_out.count() || in_flight >= fan_out.at_once() || self.is_start_blocked() {
                break;
            }
            if let Some((begun, _)) = self.fan_out_state(path) {
                *begun += 1;
            }
            if let Some(end) = self.branch(fan_out, join, at, path, scope) {
                return Walked::Ended(end);
            }
        }
        self.joined(fan_out.count(), path)
    }

    fn fan_out_state(
        &mut self,
        path: &StepPath,
    ) -> Option<(&mut usize, &mut BTreeMap<usize, Settled>)> {
        match self.progress.nodes.get_mut(path)? {
            Node::Fan { begun, settled } => Some((begun, settled)),
            Node::Leaf(_)
            | Node::Flow { .. }
            | Node::Branch { .. }
            | Node::Loop { .. }
            | Node::Chosen { .. }
            | Node::Try { .. }
            | Node::Escalated { .. } => None,
        }
    }

    /// Advances one branch of a `parallel` step or one item of a `for_each` step. Returns the result or failure of the whole step
    /// if the end of this branch decides it.
    fn branch(
        &mut self,
        fan_out: &FanOut<'r>,
        join: Join,
        at: usize,
        path: &StepPath,
        scope: &Scope<'_>,
    ) -> Option<End> {
        let key = fan_out.path(path, at)?;
        let end = match self.within(fan_out, at, &key, scope) {
            Ok(Walked::Open) | Err(Walked::Open) => return None,
            Ok(Walked::Ended(end)) | Err(Walked::Ended(end)) => end.of(&key),
        };
        self.close(&key, &end);
        let end = match (end, join) {
            (End::Produced(produced), Join::All | Join::FailFast) => Settled::Succeeded(produced),
            (End::Failed(failure), Join::All | Join::First) => Settled::Failed(failure),
            (end @ (End::Produced(_) | End::Return(_) | End::Broken(_)), _)
            | (end @ End::Failed(_), Join::FailFast) => return Some(end),
        };
        let most = self.workflow.policies.limits.value_bytes;
        self.total_size.add(end.bytes());
        let (_, settled) = self.fan_out_state(path)?;
        settled.insert(at, end);
        // The results become one value, so the step fails as soon as they are too large together.
        let bytes = settled.values().map(Settled::bytes);
        let bytes = bytes.fold(0, usize::saturating_add);
        (bytes > most).then(|| End::Failed(unresolved(&Unresolved::TooLarge(most))))
    }

    fn within(
        &mut self,
        fan_out: &FanOut<'r>,
        at: usize,
        key: &StepPath,
        scope: &Scope<'_>,
    ) -> Result<Walked, Walked> {
        let Some(body) = fan_out.body(at) else {
            return Err(self.misfit(key));
        };
        if !self.progress.nodes.contains_key(key) {
            self.begin(key, None)?;
            let vars = self.own_input(fan_out, at, scope).map_err(Walked::failed)?;
            let cursor = Cursor::default();
            self.insert(key, Node::Branch { vars, cursor });
        }
        let Some(Node::Branch { vars, .. }) = self.progress.nodes.get_mut(key) else {
            return Err(self.misfit(key));
        };
        let mut inner = Scope::of_branch(mem::take(vars), scope);
        if let FanOut::Items { each, list } = fan_out {
            let item = list.get(at).cloned().unwrap_or_default();
            inner.push(&each.item, item);
            inner.push("index", json!(at));
        }
        let walked = self.block(body, key, key, &mut inner);
        if let Some(Node::Branch { vars, .. }) = self.progress.nodes.get_mut(key) {
            *vars = inner.vars;
        }
        Ok(walked)
    }

    fn own_input(
        &self,
        fan_out: &FanOut<'r>,
        at: usize,
        scope: &Scope<'_>,
    ) -> Result<Vars, StepFailure> {
        let input = match fan_out {
            FanOut::Branches(branches) => branches.get(at).and_then(|one| one.input.as_ref()),
            FanOut::Items { .. } => None,
        };
        let Some(input) = input else {
            return Ok(Vars::new());
        };
        let input = self.value(input, scope)?;
        self.total_size.check(input.size())?;
        Ok(Vars::from([("input".to_owned(), input)]))
    }

    /// Returns the result or failure of a `parallel` or `for_each` step whose branches have all ended, or [`Walked::Open`] while
    /// a branch is in flight. The step succeeds with the branches' results in order, or fails with the first failure in this
    /// order.
    fn joined(&mut self, count: usize, path: &StepPath) -> Walked {
        let most = self.workflow.policies.limits.value_bytes;
        let Some((_, settled)) = self.fan_out_state(path) else {
            return self.misfit(path);
        };
        if settled.len() < count {
            return Walked::Open;
        }
        let settled = mem::take(settled);
        let bytes = settled.values().map(Settled::bytes);
        self.total_size.remove(bytes.fold(0, usize::saturating_add));
        let mut results = Vec::new();
        for settled in settled.into_values() {
            match settled {
                Settled::Succeeded(produced) => results.push(produced.into_json().into_value()),
                Settled::Failed(failure) => return Walked::failed(failure),
            }
        }
        let results = flow_value(Value::Array(results).into(), most);
        Walked::of(results.map_err(|error| unresolved(&error)))
    }

    pub(super) fn graph(
        &mut self,
        graph: &'r Graph,
        path: &StepPath,
        base: &StepPath,
        scope: &mut Scope<'_>,
    ) -> Walked {
        let has_begun = |walk: &Self, path: &StepPath| walk.progress.nodes.contains_key(path);
        let paths = graph
            .nodes
            .iter()
            .map(|node| base.child(&node.step.segment));
        let paths: Vec<StepPath> = paths.collect();
        let mut in_flight = paths.iter().filter(|path| has_begun(self, path)).count();
        let Some(mut settled) = self.graph_state(path).map(mem::take) else {
            return self.misfit(path);
        };
        // A step that ends frees a slot for another step, and can be the last dependency of a step earlier in the list.
        loop {
            let before = settled.len();
            for (at, (node, path)) in graph.nodes.iter().zip(&paths).enumerate() {
                let was_started = has_begun(self, path);
                let is_due = node.depends_on.iter().all(|on| settled.contains(on));
                if settled.contains(&at) || !is_due || (!was_started && in_flight >= graph.at_once)
                {
                    continue;
                }
                let walked = self.step(&node.step, path, scope);
                in_flight =
                    in_flight + usize::from(has_begun(self, path)) - usize::from(was_started);
                match walked {
                    Walked::Open => {}
                    Walked::Ended(End::Produced(produced)) => {
                        let value = produced.into_json();
                        self.total_size
                            .set(&mut scope.vars, &node.step.segment, value);
                        settled.insert(at);
                    }
                    Walked::Ended(end) => return Walked::Ended(end),
                }
            }
            if settled.len() == before {
                break;
            }
        }
        let is_done = settled.len() == graph.nodes.len();
        if let Some(state) = self.graph_state(path) {
            *state = settled;
        }
        if is_done {
            self.results(graph, scope)
        } else {
            Walked::Open
        }
    }

    fn graph_state(&mut self, path: &StepPath) -> Option<&mut BTreeSet<usize>> {
        match self.progress.nodes.get_mut(path)? {
            Node::Flow {
                body: BodyState::Graph(settled),
                ..
            } => Some(settled),
            Node::Flow {
                body: BodyState::Steps(_),
                ..
            }
            | Node::Leaf(_)
            | Node::Branch { .. }
            | Node::Fan { .. }
            | Node::Loop { .. }
            | Node::Chosen { .. }
            | Node::Try { .. }
            | Node::Escalated { .. } => None,
        }
    }

    /// Returns the result of a graph, which is the result of the step on which no other step depends. If there are several, returns an
    /// object of their results by ID.
    fn results(&self, graph: &Graph, scope: &Scope<'_>) -> Walked {
        let needed = graph.nodes.iter().flat_map(|node| &node.depends_on);
        let needed: BTreeSet<usize> = needed.copied().collect();
        let nodes = graph.nodes.iter().enumerate();
        let last = nodes.filter(|(at, _)| !needed.contains(at));
        let last: Vec<&str> = last.map(|(_, node)| node.step.segment.as_str()).collect();
        let result = |id: &str| scope.vars.get(id).cloned().unwrap_or_default();
        if let [only] = last.as_slice() {
            return Walked::Ended(End::Produced(Produced::Value(result(only))));
        }
        let all = last
            .into_iter()
            .map(|id| (id.to_owned(), result(id).into_value()));
        let all = Value::Object(all.collect::<Map<_, _>>());
        let most = self.workflow.policies.limits.value_bytes;
        Walked::of(flow_value(all.into(), most).map_err(|error| unresolved(&error)))
    }
}

fn new_fan_out() -> Node {
    Node::Fan {
        begun: 0,
        settled: BTreeMap::new(),
    }
}
