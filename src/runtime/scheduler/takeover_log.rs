//! Log lines about runs that start after the loss of a worker.

use crate::store::{Lease, RunRef};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

/// Maximum number of remembered runs that were logged because of a lost worker. A remembered run is not logged again.
const MAX_LOGGED: usize = 256;

/// Runs that restart because their last workers stopped renewing the leases, collected for the next log line. Each claim logs
/// them in one line.
#[derive(Default)]
pub(super) struct TakeoverLog {
    /// Number of runs that restarted because their workers were lost, since the last log line.
    runs: usize,
    /// The first run since the last log line that restarted because its worker was lost: its lease and attempt number.
    first: Option<(Lease, u32)>,
    /// A restarted run that may have killed its last workers: its lease and attempt number. The scheduler executes one such run at a time.
    suspect: Option<(Lease, u32)>,
    /// The worker losses that were logged most recently, oldest first.
    logged: VecDeque<WorkerLoss>,
}

/// The loss of a worker during a run.
struct WorkerLoss {
    run: RunRef,
    epoch: u32,
    abandoned: u32,
}

impl WorkerLoss {
    /// Returns the loss of a run's earlier worker, as `lease.abandoned` counts it, or `None` if the run lost no worker.
    fn of(lease: &Lease) -> Option<Self> {
        if lease.abandoned == 0 {
            return None;
        }
        let run = &lease.run;
        Some(Self {
            // Without the event, which may be large.
            run: RunRef::new(
                Arc::clone(&run.executor),
                run.trigger_id,
                run.trigger_version,
            ),
            epoch: lease.epoch,
            abandoned: lease.abandoned,
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.abandoned == other.abandoned && self.run == other.run
    }
}

impl TakeoverLog {
    /// Records the start of a run for the next log line about lost workers. Ignores a run that has lost no worker since it was logged, such
    /// as a run that starts again after a rate limit.
    pub(super) fn note(&mut self, lease: &Lease, attempt: u32, suspect: bool) {
        let Some(loss) = WorkerLoss::of(lease) else {
            return;
        };
        if self.logged.iter().any(|logged| logged.is_same(&loss)) {
            return;
        }
        if self.logged.len() >= MAX_LOGGED {
            self.logged.pop_front();
        }
        self.logged.push_back(loss);
        self.runs += 1;
        self.first.get_or_insert_with(|| (lease.clone(), attempt));
        if suspect {
            self.suspect = Some((lease.clone(), attempt));
        }
    }

    /// Logs in one line the runs that restarted since the last call because their workers were lost. Logs a run that may have killed its
    /// last workers in a second line.
    pub(super) fn log(&mut self) {
        let runs = mem::take(&mut self.runs);
        if let Some((lease, attempt)) = self.first.take() {
            let (executor, abandoned) = (&*lease.run.executor, lease.abandoned);
            if runs == 1 {
                tracing::warn!(
                    executor,
                    run = %lease.run,
                    attempt,
                    abandoned,
                    "a run restarts because its worker stopped renewing the lease"
                );
            } else {
                tracing::warn!(
                    runs,
                    executor,
                    run = %lease.run,
                    attempt,
                    abandoned,
                    "runs restart because their workers stopped renewing the leases"
                );
            }
        }
        if let Some((lease, attempt)) = self.suspect.take() {
            tracing::warn!(
                executor = &*lease.run.executor,
                run = %lease.run,
                attempt,
                abandoned = lease.abandoned,
                "a run that may have crashed its workers restarts; until it ends, this worker starts no other such run, but all other runs as usual"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, Timestamp};

    /// A lease of a run on a version of its trigger.
    fn lease(version: u64, epoch: u32, abandoned: u32) -> Lease {
        let run = RunRef::new("agent", BreadcrumbId::NIL, version);
        let now = Timestamp::UNIX_EPOCH;
        Lease::new(run, 1, now).history(epoch, abandoned, now)
    }

    #[test]
    fn a_run_is_logged_again_only_after_the_loss_of_another_worker() {
        let mut takeovers = TakeoverLog::default();
        let mut logs = |lease: &Lease| {
            takeovers.note(lease, 2, false);
            let is_noted = takeovers.first.is_some();
            takeovers.log();
            is_noted && takeovers.runs == 0
        };

        assert!(!logs(&lease(1, 0, 0)));
        assert!(logs(&lease(1, 0, 1)));
        assert!(!logs(&lease(1, 0, 1)));
        assert!(logs(&lease(2, 0, 1)));
        assert!(logs(&lease(1, 0, 2)));
        assert!(logs(&lease(1, 1, 1)), "a run that was redone");
    }

    #[test]
    fn the_number_of_logged_runs_is_bounded() {
        let mut takeovers = TakeoverLog::default();

        for version in 0..=MAX_LOGGED as u64 {
            takeovers.note(&lease(version, 0, 1), 2, false);
        }

        assert_eq!(
            (takeovers.runs, takeovers.logged.len()),
            (MAX_LOGGED + 1, MAX_LOGGED)
        );
        takeovers.note(&lease(MAX_LOGGED as u64, 0, 1), 2, false);
        assert_eq!(takeovers.runs, MAX_LOGGED + 1);
        takeovers.note(&lease(0, 0, 1), 2, false);
        assert_eq!(takeovers.runs, MAX_LOGGED + 2, "the oldest run was dropped");
    }
}
