//! Events of a turn that the supervisor retries after a failed attempt.

use super::{TurnEmitter, now};
use crate::workflow::{StepFailure, StepPath};
use crate::workload::event::WorkloadEventKind;
use std::sync::Arc;
use std::time::Duration;

impl TurnEmitter {
    /// Sets the name of the run that executes the workload turn. Returns `false` if listeners know the run under
    /// another name.
    pub(in crate::workload) fn name(&mut self, run: &Arc<str>) -> bool {
        if self.last_sequence == 0 {
            self.run = Arc::clone(run);
        }
        self.is_named = true;
        self.run == *run
    }

    /// Emits the event of a retry of the workload turn. Emits nothing for an attempt that ended before its run
    /// had a name.
    pub(in crate::workload) fn restart(
        &mut self,
        attempt: u32,
        failure: StepFailure,
        after: Duration,
    ) {
        if !self.is_named {
            return;
        }
        self.ensure_started(now());
        self.close_steps();
        let kind = WorkloadEventKind::Restarted {
            attempt,
            failure,
            after,
        };
        self.send(StepPath::new(""), now(), kind);
    }
}
