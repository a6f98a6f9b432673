//! Begins, ends and cancels the steps of a flow run, and records an event for each change.

use super::path::StepPath;
use super::progress::Node;
use super::protocol::{FlowEvent, FlowEventKind, StepFailure};
use super::walk::{End, Walk, Walked};

impl Walk<'_> {
    /// Returns `true` if no step of the run may start now: the run is paused, or this interpreter call has used up its work budget.
    pub(super) fn is_start_blocked(&mut self) -> bool {
        if self.progress.paused {
            return true;
        }
        let is_exhausted = self.work.is_exhausted();
        self.is_incomplete |= is_exhausted;
        is_exhausted
    }

    /// Starts a step of the flow run, and records its start event. If no step may start now, the walk through the run stops here.
    /// The run fails with `too_many_steps` if this step exceeds the limit of steps.
    pub(super) fn begin(&mut self, path: &StepPath, node: Option<Node>) -> Result<(), Walked> {
        if self.is_start_blocked() {
            return Err(Walked::Open);
        }
        self.work.begin();
        self.progress.steps = self.progress.steps.saturating_add(1);
        self.event(path, FlowEventKind::Started);
        let most = self.workflow.policies.limits.steps;
        if self.progress.steps > most {
            let message =
                format!("the run exceeds policies.limits.steps, which allows {most} steps");
            let failure = StepFailure::new("too_many_steps", message);
            return Err(Walked::Ended(End::Broken(failure)));
        }
        if let Some(node) = node {
            self.insert(path, node);
        }
        Ok(())
    }

    /// Sets the state of the step in flight at `path`, and updates the total size of the run's values.
    pub(super) fn insert(&mut self, path: &StepPath, node: Node) {
        self.total_size.add(node.bytes());
        let before = self.progress.nodes.insert(path.clone(), node);
        self.total_size
            .remove(before.as_ref().map_or(0, Node::bytes));
    }

    fn remove(&mut self, path: &StepPath) -> Option<Node> {
        let node = self.progress.nodes.remove(path)?;
        self.total_size.remove(node.bytes());
        Some(node)
    }

    /// Starts a step of the flow run with `node` as its initial state, unless the step has already started.
    pub(super) fn enter(&mut self, path: &StepPath, node: Node) -> Result<(), Walked> {
        if self.progress.nodes.contains_key(path) {
            return Ok(());
        }
        self.begin(path, Some(node))
    }

    /// Ends a step of the run: removes the step, cancels the steps inside it, and records the step's success or failure as an
    /// event.
    pub(super) fn close(&mut self, path: &StepPath, end: &End) {
        self.cancel_below(path);
        self.remove(path);
        let kind = match end {
            End::Produced(_) | End::Return(_) => FlowEventKind::Finished,
            End::Failed(failure) | End::Broken(failure) => FlowEventKind::Failed(failure.clone()),
        };
        self.event(path, kind);
    }

    pub(super) fn cancel_below(&mut self, path: &StepPath) {
        let ranges = path.below().into_iter();
        let below = ranges.flat_map(|range| self.progress.nodes.range(range));
        let below: Vec<StepPath> = below.map(|(path, _)| path.clone()).collect();
        // A path sorts before the paths in it, so the reverse order cancels inner steps first.
        for path in below.into_iter().rev() {
            self.cancel(&path);
        }
    }

    pub(super) fn cancel(&mut self, path: &StepPath) {
        let Some(node) = self.remove(path) else {
            return;
        };
        if node.is_with_driver() {
            let ready = self.next.ready.len();
            self.next.ready.retain(|ready| ready.path != *path);
            // A step that was still in `ready` has not reached the driver, so the driver has nothing to cancel.
            if self.next.ready.len() == ready {
                self.next.cancel.push(path.clone());
            }
        }
        self.event(path, FlowEventKind::Cancelled);
    }

    pub(super) fn event(&mut self, path: &StepPath, kind: FlowEventKind) {
        self.progress.sequence = self.progress.sequence.saturating_add(1);
        self.next.events.push(FlowEvent {
            sequence: self.progress.sequence,
            path: path.clone(),
            kind,
        });
    }
}
