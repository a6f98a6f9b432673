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

/// Emitter of a turn's events for listeners. Renumbers the events of the workload's runs, and withholds their ends
/// until the outcome of the turn is known. An emitter that is dropped before its end emits the end of a cancelled turn.
#[derive(Debug)]
pub(super) struct Telling {
    run: Arc<str>,
    parent: Option<Arc<str>>,
    sink: Sink,
    last: u64,
    /// If `true`, an attempt of the turn has set the name of the turn's run.
    #[cfg(feature = "workloads")]
    is_named: bool,
    /// The running steps of the turn. The path of an outer step is a prefix of its inner steps' paths, and sorts before
    /// them.
    open: BTreeSet<StepPath>,
    is_over: bool,
}

impl Telling {
    pub(super) const fn new(run: Arc<str>, parent: Option<Arc<str>>, sink: Sink) -> Self {
        Self {
            run,
            parent,
            sink,
            last: 0,
            #[cfg(feature = "workloads")]
            is_named: false,
            open: BTreeSet::new(),
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
    pub(super) fn tell(&mut self, event: WorkloadEvent) {
        let WorkloadEvent { path, at, kind, .. } = event;
        self.begin(at);
        if kind.is_end() || kind.begins() {
            return;
        }
        if let WorkloadEventKind::Step(step) = &kind {
            self.note(&path, step);
        }
        self.send(path, at, kind);
    }

    /// Emits the end event of the turn, once.
    pub(super) fn end(&mut self, status: &TurnStatus) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.begin(now());
        let waits = matches!(status, TurnStatus::Suspended { .. });
        if !waits {
            self.close_steps();
        }
        self.send(StepPath::new(""), now(), status.end());
    }

    fn begin(&mut self, at: Timestamp) {
        if self.last == 0 {
            self.send(StepPath::new(""), at, WorkloadEventKind::Started);
        }
    }

    fn note(&mut self, path: &StepPath, step: &FlowEventKind) {
        match step {
            FlowEventKind::Started => {
                self.open.insert(path.clone());
            }
            FlowEventKind::Finished | FlowEventKind::Failed(_) | FlowEventKind::Cancelled => {
                self.open.remove(path);
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

    /// Emits a cancellation event for each running step of the turn.
    fn close_steps(&mut self) {
        while let Some(path) = self.open.pop_last() {
            let kind = WorkloadEventKind::Step(FlowEventKind::Cancelled);
            self.send(path, now(), kind);
        }
    }

    fn send(&mut self, path: StepPath, at: Timestamp, kind: WorkloadEventKind) {
        self.last += 1;
        self.sink.tell(WorkloadEvent {
            run: Arc::clone(&self.run),
            parent: self.parent.clone(),
            path,
            sequence: self.last,
            at,
            kind,
        });
    }
}

impl Drop for Telling {
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

/// Prefix of the tag with which a trigger names the outer run of its run.
pub(super) const PARENT: &str = "parent:";

tokio::task_local! {
    static OUTER: Outer;
}

/// Outer run of the runs that start in the current task. The outer run is a task-local value, because `process_event`
/// has no argument for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Outer {
    pub(super) run: Option<Arc<str>>,
    /// Listeners for the events of the outer run.
    pub(super) sink: Sink,
}

impl Outer {
    /// Runs a future in which this outer run is the outer run of all started runs.
    #[cfg(feature = "workloads")]
    pub(super) async fn around<T>(self, work: impl Future<Output = T>) -> T {
        OUTER.scope(self, work).await
    }

    /// Returns the outer run of the current task, or an empty value.
    pub(super) fn current() -> Self {
        OUTER.try_with(Self::clone).unwrap_or_default()
    }
}
