//! One row of the ledger.

use crate::model::{BreadcrumbId, Timestamp};
use crate::store::{Claim, Lease, Lineage, Run, RunRef, RunState, Saved, StoreError, Wake};

#[derive(Debug)]
pub(super) struct Row {
    pub(super) run: RunRef,
    pub(super) state: RunState,
    pub(super) epoch: u32,
    pub(super) attempts: u32,
    pub(super) abandoned: u32,
    pub(super) token: u64,
    /// The handle in which the lease is parked, until it is taken.
    pub(super) parked_in: Option<u64>,
    pub(super) granted_at: Timestamp,
    pub(super) enqueued_at: Timestamp,
    /// Orders rows that are due at the same time.
    pub(super) sequence: u64,
    /// When it can be claimed: its time, the end of its lease or of its wait.
    pub(super) due: Option<Timestamp>,
    /// Where the trigger came from, noted while its version was the current one.
    pub(super) lineage: Option<Lineage>,
    pub(super) saved: Option<Saved>,
    pub(super) wait: Option<Wait>,
    pub(super) written: Vec<BreadcrumbId>,
    pub(super) reason: Option<String>,
    /// Which of the rows that are over this was.
    pub(super) over: Option<u64>,
}

/// What a suspended row waits for, and since when.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) wake: Wake,
    pub(super) since: Timestamp,
}

impl Row {
    /// A row that is ready.
    pub(super) fn new(
        run: RunRef,
        sequence: u64,
        lineage: Option<Lineage>,
        now: Timestamp,
    ) -> Self {
        Self {
            run,
            state: RunState::Ready,
            epoch: 0,
            attempts: 0,
            abandoned: 0,
            token: 0,
            parked_in: None,
            granted_at: now,
            enqueued_at: now,
            sequence,
            due: None,
            lineage,
            saved: None,
            wait: None,
            written: Vec::new(),
            reason: None,
            over: None,
        }
    }

    /// Makes a row that is over ready again, in a new epoch, as if it had been added now.
    pub(super) fn reopen(&mut self, sequence: u64, now: Timestamp) {
        self.state = RunState::Ready;
        self.epoch = self.epoch.saturating_add(1);
        (self.attempts, self.abandoned) = (0, 0);
        (self.saved, self.wait, self.reason, self.over) = (None, None, None, None);
        self.written.clear();
        (self.sequence, self.enqueued_at) = (sequence, now);
    }

    pub(super) fn lineage(&self) -> Lineage {
        self.lineage
            .clone()
            .unwrap_or_else(|| Lineage::origin(self.run.trigger_id))
    }

    pub(super) fn lease(&self) -> Lease {
        let lease = Lease::new(self.run.clone(), self.token, self.granted_at);
        let mut lease = lease.history(self.epoch, self.abandoned, self.enqueued_at);
        lease.until = self.due.unwrap_or(lease.until);
        lease
    }

    pub(super) fn granted(&self) -> Claim {
        Claim::Granted {
            lease: self.lease(),
            attempt: self.attempts,
            lineage: self.lineage(),
            state: self.saved.clone(),
        }
    }

    pub(super) fn state_at(&self, now: Timestamp) -> RunState {
        let waits = matches!(self.state, RunState::Running | RunState::Suspended);
        if waits && self.due.is_some_and(|due| due <= now) {
            RunState::Ready
        } else {
            self.state
        }
    }

    pub(super) fn wrong_state(&self, operation: &'static str) -> StoreError {
        StoreError::WrongState {
            operation,
            run: self.run.clone(),
            state: self.state,
        }
    }

    pub(super) fn view(&self, state: RunState, handle: u64) -> Run {
        let wait = self.wait.as_ref();
        Run {
            lease: (self.parked_in == Some(handle)).then(|| self.lease()),
            attempts: self.attempts,
            due: self.due,
            wake: wait.map(|wait| wait.wake.clone()),
            suspended_at: wait
                .filter(|_| state == RunState::Suspended)
                .map(|wait| wait.since),
            written: self.written.clone(),
            reason: self.reason.clone(),
            ..Run::new(self.run.clone(), state, self.enqueued_at)
        }
    }
}
