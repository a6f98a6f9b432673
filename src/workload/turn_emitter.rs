//! Events of a turn: one stream with one end, for all attempts of the turn.

#[cfg(feature = "workloads")]
mod restart;

use super::event::{WorkloadEvent, WorkloadEventKind};
use super::sink::Sink;
use super::turn_status::TurnStatus;
use crate::clock;
use crate::model::Timestamp;
use crate::workflow::{FlowEventKind, StepPath};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Emitter that sends the events of all attempts of a turn to listeners as one stream. Renumbers the events of the
/// workload's runs, and withholds their ends until the outcome of the turn is known. An emitter that is dropped before
/// its end emits the end of a cancelled turn.
#[derive(Debug)]
pub(super) struct TurnEmitter {
    run: Arc<str>,
    parent: Option<Arc<str>>,
    sink: Sink,
    last_sequence: u64,
    /// If `true`, an attempt of the turn has set the name of the turn's run, so a retry of the turn emits an event.
    #[cfg(feature = "workloads")]
    is_named: bool,
    /// The running steps of the workload turn. The path of an outer step is a prefix of its inner steps' paths, and
    /// sorts before them.
    running_steps: BTreeSet<StepPath>,
    is_over: bool,
}

impl TurnEmitter {
    pub(super) const fn new(run: Arc<str>, parent: Option<Arc<str>>, sink: Sink) -> Self {
        Self {
            run,
            parent,
            sink,
            last_sequence: 0,
            #[cfg(feature = "workloads")]
            is_named: false,
            running_steps: BTreeSet::new(),
            is_over: false,
        }
    }

    pub(super) const fn run(&self) -> &Arc<str> {
        &self.run
    }

    pub(super) const fn parent(&self) -> Option<&Arc<str>> {
        self.parent.as_ref()
    }

    pub(super) const fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Emits an event of an attempt of the turn, except for the start and the end of the attempt.
    pub(super) fn emit(&mut self, event: WorkloadEvent) {
        let WorkloadEvent { path, at, kind, .. } = event;
        self.ensure_started(at);
        if kind.is_end() || kind.begins() {
            return;
        }
        if let WorkloadEventKind::Step(step) = &kind {
            self.track_step(&path, step);
        }
        self.send(path, at, kind);
    }

    /// Emits the end event of the workload turn, once.
    pub(super) fn end(&mut self, status: &TurnStatus) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.ensure_started(now());
        let waits = matches!(status, TurnStatus::Suspended { .. });
        if !waits {
            self.close_steps();
        }
        self.send(StepPath::new(""), now(), status.end());
    }

    fn ensure_started(&mut self, at: Timestamp) {
        if self.last_sequence == 0 {
            self.send(StepPath::new(""), at, WorkloadEventKind::Started);
        }
    }

    fn track_step(&mut self, path: &StepPath, step: &FlowEventKind) {
        match step {
            FlowEventKind::Started => {
                self.running_steps.insert(path.clone());
            }
            FlowEventKind::Finished | FlowEventKind::Failed(_) | FlowEventKind::Cancelled => {
                self.running_steps.remove(path);
            }
            FlowEventKind::Retried { .. }
            | FlowEventKind::Suspended { .. }
            | FlowEventKind::Resumed { .. }
            | FlowEventKind::Escalated { .. }
            | FlowEventKind::LoopExhausted { .. }
            | FlowEventKind::Paused
            | FlowEventKind::Unpaused => {}
        }
    }

    /// Emits a cancellation event for each running step of the workload turn.
    fn close_steps(&mut self) {
        while let Some(path) = self.running_steps.pop_last() {
            let kind = WorkloadEventKind::Step(FlowEventKind::Cancelled);
            self.send(path, now(), kind);
        }
    }

    fn send(&mut self, path: StepPath, at: Timestamp, kind: WorkloadEventKind) {
        self.last_sequence += 1;
        self.sink.send(WorkloadEvent {
            run: Arc::clone(&self.run),
            parent: self.parent.clone(),
            path,
            sequence: self.last_sequence,
            at,
            kind,
        });
    }
}

impl Drop for TurnEmitter {
    fn drop(&mut self) {
        // A listener that panics during another panic would abort the process.
        if !std::thread::panicking() {
            self.end(&TurnStatus::Cancelled);
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from_micros(clock::wall_micros())
}

/// Prefix of the trigger tag that contains the name of the outer run, within which the trigger's run was started.
pub(super) const PARENT_TAG: &str = "parent:";

tokio::task_local! {
    static OUTER_RUN: OuterRun;
}

/// Outer run of the runs that start in the current tokio task. The outer run is a task-local value, because
/// `process_event` has no argument for it.
#[derive(Clone, Debug, Default)]
pub(super) struct OuterRun {
    pub(super) run: Option<Arc<str>>,
    /// Listeners for the events of the outer run.
    pub(super) sink: Sink,
}

impl OuterRun {
    /// Runs a future, and sets this outer run for all runs that start within the future.
    #[cfg(feature = "workloads")]
    pub(super) async fn around<T>(self, work: impl Future<Output = T>) -> T {
        OUTER_RUN.scope(self, work).await
    }

    /// Returns the outer run of the current tokio task, or an empty [`OuterRun`] if the task has none.
    pub(super) fn current() -> Self {
        OUTER_RUN.try_with(Self::clone).unwrap_or_default()
    }
}
