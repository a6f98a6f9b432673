//! Unacknowledged event deliveries whose runs are in a ledger in memory. A delivery is acknowledged when its runs have ended.
//!
//! A crash loses such a ledger, so the source has to deliver the event again. With a ledger that outlives the process, a
//! delivery is settled as soon as its runs are in the ledger.

use super::ack_tracker::AckTracker;
use super::arrival::Arrival;
use super::registry::Registry;
use super::store_context::StoreContext;
use super::timeouts::RETRY_PAUSE;
use crate::store::{ProcessRunState, RunRef};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Trackers of the event deliveries that wait for runs to end, grouped by run. The permits for deliveries bound the number of trackers.
pub(super) struct PendingAcks {
    store_context: Arc<StoreContext>,
    trackers: Mutex<HashMap<RunRef, Vec<AckTracker>>>,
}

impl PendingAcks {
    pub(super) fn new(store_context: Arc<StoreContext>) -> Self {
        let trackers = Mutex::default();
        Self {
            store_context,
            trackers,
        }
    }

    pub(super) fn store_context(&self) -> &Arc<StoreContext> {
        &self.store_context
    }

    /// Acknowledges an event delivery whose runs are in a durable ledger. If the ledger is in memory, holds the delivery until the runs
    /// end.
    pub(super) fn ack_or_hold(&self, arrival: Arrival) {
        let Arrival { tracker, executors } = arrival;
        if !self.store_context.runs().is_durable() {
            let event = tracker.event();
            for candidate in executors {
                let run = RunRef::new(candidate.id, event.breadcrumb_id, event.version);
                let mut trackers = self.trackers();
                trackers
                    .entry(run.clone())
                    .or_default()
                    .push(tracker.another_handle());
                drop(trackers);
                // The run may have ended before its delivery was stored.
                if self.store_context.runs().run_state(&run) == ProcessRunState::Over {
                    self.settle(&run);
                }
            }
        }
        tracker.settle();
    }

    /// Records that an attempt of a run has ended. Settles the event deliveries of an ended run. If the run waits for a retry, its
    /// deliveries are requested again when the run is due, because a source may limit the time for an acknowledgement.
    pub(super) fn note_attempt_ended(&self, run: &RunRef) {
        if !self.trackers().contains_key(run) {
            return;
        }
        match self.store_context.runs().run_state(run) {
            ProcessRunState::Over => self.settle(run),
            ProcessRunState::Later(delay) => {
                for tracker in self.take(run) {
                    tracker.redeliver_after(delay.max(RETRY_PAUSE));
                }
            }
            ProcessRunState::Due | ProcessRunState::Running => {}
        }
    }

    /// Ends the wait of event deliveries for runs that have ended in any way, or that will not start because their executor was
    /// removed. A delivery that waits for no other run is then acknowledged. If the executor moved to another store, the delivery
    /// is requested again.
    pub(super) fn settle_ended(&self, registry: &Registry) {
        let held: Vec<RunRef> = self.trackers().keys().cloned().collect();
        for run in held {
            let member = registry.get(&run.executor);
            let is_here =
                member.map(|member| member.store_context.number == self.store_context.number);
            match (self.store_context.runs().run_state(&run), is_here) {
                (ProcessRunState::Over, _)
                | (ProcessRunState::Later(_) | ProcessRunState::Due, None) => {
                    self.settle(&run);
                }
                // The executor moved to another store, whose ledger does not have the run.
                (ProcessRunState::Later(_) | ProcessRunState::Due, Some(false)) => {
                    for tracker in self.take(&run) {
                        tracker.redeliver_after(RETRY_PAUSE);
                    }
                }
                (ProcessRunState::Later(_) | ProcessRunState::Due, Some(true))
                | (ProcessRunState::Running, _) => {}
            }
        }
    }

    fn settle(&self, run: &RunRef) {
        self.take(run).into_iter().for_each(AckTracker::settle);
    }

    fn take(&self, run: &RunRef) -> Vec<AckTracker> {
        self.trackers().remove(run).unwrap_or_default()
    }

    fn trackers(&self) -> MutexGuard<'_, HashMap<RunRef, Vec<AckTracker>>> {
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
