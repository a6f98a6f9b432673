//! A run's row in the ledger, and the transitions of its state. Pure: times are arguments.

use super::{
    ClaimId, Claimed, DeadLetter, KeyPosition, Lease, Lineage, Run, RunEnd, RunFilter, RunQuery,
    RunRef, RunState, Saved, StoreError, Wake,
};
use crate::bugs::planted;
use crate::error::excerpt;
use crate::model::{BreadcrumbId, Json, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of transferred runs of one executor version that one call of `accept_transfers` makes due.
pub(crate) const MOST_ACCEPTED: usize = 1_000;

/// Expands to an SQL literal: the bit in the sequence numbers of runs that do not count in the order of their ordering key. The
/// constant [`OUT_OF_ORDER`] has the same value.
macro_rules! out_of_order_bit {
    () => {
        4_611_686_018_427_387_904
    };
}
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(in crate::store) use out_of_order_bit;

/// Bit of [`RunRow::sequence`] that is set while a transferred run does not count in the order of its ordering key.
pub(in crate::store) const OUT_OF_ORDER: u64 = out_of_order_bit!();

/// Value of [`RunRow::granted_at`] before the first claim of an attempt, so that the next claim begins a new attempt.
const NOT_CLAIMED: Timestamp = Timestamp::UNIX_EPOCH;

#[derive(Clone, Debug)]
pub(in crate::store) struct RunRow {
    pub(in crate::store) run: RunRef,
    pub(in crate::store) state: RunState,
    pub(in crate::store) epoch: u32,
    pub(in crate::store) attempts: u32,
    pub(in crate::store) abandoned: u32,
    /// If `true`, a lease of the run's current epoch expired.
    pub(in crate::store) has_expired: bool,
    pub(in crate::store) token: u64,
    /// The ID of the claim that granted the newest lease, if it was a claim of due runs; `None` after a claim of this run alone.
    pub(in crate::store) claim: Option<ClaimId>,
    /// The start of the run's newest lease; [`NOT_CLAIMED`] before the first claim of an attempt.
    pub(in crate::store) granted_at: Timestamp,
    /// The time when the row was added, or when the suspended run was woken. After the first claim of an attempt, the time of
    /// that claim.
    pub(in crate::store) since: Timestamp,
    /// The time when the row was added to the ledger.
    pub(in crate::store) added_at: Timestamp,
    /// The sequence number of the run's row, which orders runs with the same ordering key or the same due time. It also orders
    /// the rows of a page.
    pub(in crate::store) sequence: u64,
    /// If `true`, no other row is before this row in the order of its ordering key.
    pub(in crate::store) head: bool,
    /// The time from which the run can be claimed: its scheduled time, the end of its lease, or the time limit of its
    /// suspension.
    pub(in crate::store) due: Option<Timestamp>,
    /// The origin of the run's trigger, recorded while the trigger version was the current one.
    pub(in crate::store) lineage: Option<Lineage>,
    pub(in crate::store) saved: Option<Saved>,
    pub(in crate::store) wait: Option<Wait>,
    pub(in crate::store) written: Vec<BreadcrumbId>,
    /// The reason for which the run ended. While the row is ready: the version of the executor to which the run was transferred.
    pub(in crate::store) reason: Option<String>,
    /// The code of the failure that ended the run.
    pub(in crate::store) code: Option<String>,
    /// The cause of the run's last failed attempt.
    pub(in crate::store) cause: Option<String>,
    /// The sequence number of the run's end, which orders the rows of ended runs.
    pub(in crate::store) over: Option<u64>,
}

/// The condition for which a suspended run waits, and the time of the suspension.
#[derive(Clone, Debug)]
pub(in crate::store) struct Wait {
    pub(in crate::store) wake: Wake,
    pub(in crate::store) since: Timestamp,
}

/// Effect of a commit on the ledger row of its run: the run is over, is suspended, or continues its attempt.
pub(in crate::store) enum AttemptEnd {
    Over {
        state: RunState,
        reason: Option<String>,
        /// The error code of a failed run.
        code: Option<String>,
        cause: Option<String>,
    },
    Suspended {
        wake: Wake,
        state: Json,
        at: Timestamp,
    },
    Continues,
}

impl AttemptEnd {
    /// Returns the change of a run's ledger row that a commit with the run end `end` causes. `at` is the time of the commit.
    pub(in crate::store) fn of(end: RunEnd, at: Timestamp) -> Self {
        let over = |state, reason: Option<&str>| Self::Over {
            state,
            reason: reason.map(str::to_owned),
            code: None,
            cause: None,
        };
        match end {
            RunEnd::Done => over(RunState::Done, None),
            RunEnd::Failed(letter) => Self::Over {
                state: RunState::Failed,
                reason: Some(letter.class.as_str().to_owned()),
                code: Some(letter.code),
                cause: letter.cause,
            },
            RunEnd::Skipped(reason) => over(RunState::Skipped, Some(reason)),
            RunEnd::Superseded => over(RunState::Superseded, None),
            RunEnd::Suspended { wake, state } => Self::Suspended { wake, state, at },
            RunEnd::Continues => Self::Continues,
        }
    }
}

/// Origin of a run's trigger, as far as the store has recorded it.
#[derive(Clone, Debug)]
pub(in crate::store) enum Origin {
    /// The executor of the run wrote the trigger.
    Own,
    Known(Lineage),
    /// The origin is unknown, because another version of the trigger is current.
    Unknown,
}

impl Origin {
    pub(in crate::store) fn lineage(self) -> Option<Lineage> {
        match self {
            Self::Known(lineage) => Some(lineage),
            Self::Own | Self::Unknown => None,
        }
    }
}

impl RunRow {
    /// Returns the size of the run's saved state in bytes.
    pub(in crate::store) fn state_bytes(&self) -> usize {
        self.saved.as_ref().map_or(0, |saved| saved.state.size())
    }

    /// Creates the ledger row of a new run, with the run state `ready`. The row omits the context of the event, which may be
    /// large.
    pub(in crate::store) fn new(mut run: RunRef, lineage: Option<Lineage>, now: Timestamp) -> Self {
        if let Some(event) = run.event.as_mut().filter(|event| event.context.is_some()) {
            *event = Arc::new(event.envelope());
        }
        Self {
            run,
            state: RunState::Ready,
            epoch: 0,
            attempts: 0,
            abandoned: 0,
            has_expired: false,
            token: 0,
            claim: None,
            granted_at: NOT_CLAIMED,
            since: now,
            added_at: now,
            sequence: 0,
            head: false,
            due: None,
            lineage,
            saved: None,
            wait: None,
            written: Vec::new(),
            reason: None,
            code: None,
            cause: None,
            over: None,
        }
    }

    /// Makes the ledger row of an ended run ready again at `now`, in a new epoch.
    pub(in crate::store) fn reopen(&mut self, now: Timestamp) {
        self.state = RunState::Ready;
        self.epoch = self.epoch.saturating_add(1);
        (self.attempts, self.abandoned, self.has_expired) = (0, 0, false);
        (self.saved, self.wait, self.reason, self.over) = (None, None, None, None);
        (self.code, self.cause) = (None, None);
        self.written.clear();
        self.since = now;
        self.granted_at = NOT_CLAIMED;
    }

    /// Records the origin of the run's trigger. Returns `true` if the row ended because an event announced the trigger version
    /// before the store had it. The row must then be made ready again.
    pub(in crate::store) fn record_origin(&mut self, lineage: Option<Lineage>) -> bool {
        let reopens = self.would_reopen(lineage.is_some());
        self.lineage = self.lineage.take().or(lineage);
        reopens
    }

    /// Returns `true` if the run ended only because the store lacked the trigger version, and the store has this version now.
    /// `is_known` states that the store has the trigger version.
    pub(in crate::store) fn would_reopen(&self, is_known: bool) -> bool {
        self.lineage.is_none()
            && is_known
            && matches!(self.state, RunState::Failed | RunState::Skipped)
            && self.reason.as_deref() != Some(RunEnd::CANCELLED)
    }

    /// Grants a lease of this row's run, in any state of the run, from `now` for the duration `length`.
    pub(in crate::store) fn grant(
        &mut self,
        length: Duration,
        claim: Option<ClaimId>,
        now: Timestamp,
    ) {
        if self.state == RunState::Running {
            self.abandoned = self.abandoned.saturating_add(1);
            self.has_expired = true;
        }
        if self.state == RunState::Suspended {
            self.wait = None;
        }
        if self.state == RunState::Suspended || self.granted_at == NOT_CLAIMED {
            self.since = now;
        }
        self.state = RunState::Running;
        self.reason = None;
        if planted("late-count") {
            self.abandoned = 0;
        } else {
            self.attempts = self.attempts.saturating_add(1);
        }
        self.token += 1;
        self.run.lease = length;
        self.granted_at = now;
        self.claim = claim;
    }

    /// Records that the worker that lost its lease of the run is still alive, so that only leases after this one count as
    /// abandoned. A repeated call has no effect.
    pub(in crate::store) fn record_live_owner(&mut self, lost: &Lease) {
        if self.epoch != lost.epoch {
            return;
        }
        if let Some(later @ 1..) = self.token.checked_sub(lost.token) {
            let later = u32::try_from(later - 1).unwrap_or(u32::MAX);
            self.abandoned = self.abandoned.min(later);
        }
    }

    /// Releases the lease of the run after a failed attempt.
    pub(in crate::store) fn retry(&mut self, counts: bool, cause: Option<&str>) {
        self.record_cause(cause.map(str::to_owned));
        // A postponed attempt proves nothing about the workers that died before, so their count stays.
        if counts {
            self.abandoned = 0;
            self.granted_at = NOT_CLAIMED;
        } else {
            self.attempts = self.attempts.saturating_sub(1);
        }
        self.state = RunState::Ready;
    }

    /// Releases the lease of the run as if the run had not been claimed.
    pub(in crate::store) fn release(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
        self.granted_at = NOT_CLAIMED;
        self.state = RunState::Ready;
    }

    /// Transfers the claimed run to another version of its executor, and releases the lease as if the run had not been claimed.
    pub(in crate::store) fn transfer(&mut self, version: &str, position: KeyPosition) {
        self.release();
        self.reason = Some(version.to_owned());
        match position {
            KeyPosition::Left if self.run.order.is_some() => self.sequence |= OUT_OF_ORDER,
            KeyPosition::Held | KeyPosition::Left => {}
        }
    }

    /// Returns `true` while a transfer has taken the run out of the processing order of its ordering key.
    pub(in crate::store) fn is_out_of_order(&self) -> bool {
        self.sequence >= OUT_OF_ORDER && !self.state.is_over()
    }

    /// Returns the executor version for which the transferred run waits, or `None` if the run was not transferred or a worker has
    /// accepted it.
    pub(in crate::store) fn transferred_to(&self) -> Option<&str> {
        let ready = self.state == RunState::Ready;
        self.reason.as_deref().filter(|_| ready)
    }

    /// Returns an error unless the state of the run permits a redo.
    pub(in crate::store) fn check_redo(&self) -> Result<(), StoreError> {
        let unmatched =
            self.state == RunState::Skipped && self.reason.as_deref() == Some(RunEnd::UNMATCHED);
        match self.state == RunState::Failed || unmatched {
            true => Ok(()),
            false => Err(self.wrong_state("redo")),
        }
    }

    /// Returns an error unless the run still waits for a worker with the executor version to which it was transferred.
    pub(in crate::store) fn check_skip(&self) -> Result<(), StoreError> {
        match self.transferred_to() {
            Some(_) => Ok(()),
            None => Err(self.wrong_state("skip")),
        }
    }

    pub(in crate::store) fn save(&mut self, state: Json) {
        let with = self.saved.as_ref().and_then(|saved| saved.with);
        self.saved = Some(Saved { state, with });
    }

    /// Wakes the run, or returns an error if the run is not suspended.
    pub(in crate::store) fn resume(
        &mut self,
        with: BreadcrumbId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if self.state != RunState::Suspended {
            return Err(self.wrong_state("resume"));
        }
        self.state = RunState::Ready;
        self.wait = None;
        (self.since, self.granted_at) = (now, NOT_CLAIMED);
        self.saved.get_or_insert_default().with = Some(with);
        Ok(())
    }

    /// Suspends the run until the condition `wake` is met. Returns the time limit of the wait.
    pub(in crate::store) fn suspend(
        &mut self,
        wake: Wake,
        state: Json,
        at: Timestamp,
    ) -> Option<Timestamp> {
        self.state = RunState::Suspended;
        (self.attempts, self.abandoned) = (0, 0);
        self.saved = Some(Saved { state, with: None });
        let until = wake.until;
        self.wait = Some(Wait { wake, since: at });
        until
    }

    /// Ends the run with the final state `state`. `over` is the sequence number of the end.
    pub(in crate::store) fn finish(
        &mut self,
        state: RunState,
        (reason, cause): (Option<String>, Option<String>),
        over: u64,
    ) {
        self.record_cause(cause);
        self.state = state;
        self.reason = reason;
        self.over = Some(over);
        (self.saved, self.wait) = (None, None);
    }

    /// Records the cause of a failed attempt of the run. Without a cause, the previous one stays.
    fn record_cause(&mut self, cause: Option<String>) {
        let bounded = |cause: String| match cause.len() > DeadLetter::LONGEST_CAUSE {
            true => excerpt(&cause, DeadLetter::LONGEST_CAUSE - 2).into_owned(),
            false => cause,
        };
        self.cause = cause.map(bounded).or_else(|| self.cause.take());
    }

    /// Returns `true` if a lease is the newest lease of the run and has not ended.
    pub(in crate::store) fn is_held(&self, lease: &Lease) -> bool {
        let is_newest = self.token == lease.token && self.epoch == lease.epoch;
        (self.state == RunState::Running && is_newest) || planted("no-token")
    }

    pub(in crate::store) fn lineage(&self) -> Lineage {
        self.lineage
            .clone()
            .unwrap_or_else(|| Lineage::origin(self.run.trigger_id))
    }

    pub(in crate::store) fn lease(&self) -> Lease {
        let lease = Lease::new(self.run.clone(), self.token, self.granted_at);
        let lease = lease.history(self.epoch, self.abandoned, self.since);
        let mut lease = lease.may_have_executed(self.has_expired);
        lease.until = self.due.unwrap_or(lease.until);
        lease
    }

    /// Returns the run as a claim returns it: with its lease, attempt number, lineage and saved state.
    pub(in crate::store) fn claimed(&self) -> Claimed {
        Claimed::new(self.lease(), self.attempts, self.lineage()).state(self.saved.clone())
    }

    /// Returns `true` if a claim of due runs granted the newest lease of the run, and the lease has not ended.
    pub(in crate::store) fn is_of_claim(&self, id: ClaimId) -> bool {
        self.state == RunState::Running && self.claim == Some(id)
    }

    pub(in crate::store) fn state_at(&self, now: Timestamp) -> RunState {
        let waits = matches!(self.state, RunState::Running | RunState::Suspended);
        if waits && self.due.is_some_and(|due| due <= now) {
            RunState::Ready
        } else {
            self.state
        }
    }

    /// Returns `true` if the filter of a run list selects this ledger row.
    pub(in crate::store) fn matches_filter(&self, filter: &RunFilter, now: Timestamp) -> bool {
        let executor = filter.executor.as_ref();
        executor.is_none_or(|id| **id == *self.run.executor)
            && filter.trigger_id.is_none_or(|id| id == self.run.trigger_id)
            && filter.claim.is_none_or(|id| self.is_of_claim(id))
            && (filter.states.is_empty() || filter.states.contains(&self.state_at(now)))
    }

    /// Returns `true` if the run matches a page query by executor, state, failure code and time of addition, and follows the
    /// previous page.
    pub(in crate::store) fn matches_query(&self, query: &RunQuery, now: Timestamp) -> bool {
        let executor = query.executor.as_ref();
        let code = query.code.as_deref();
        executor.is_none_or(|id| **id == *self.run.executor)
            && query.has_state(self.state_at(now))
            && code.is_none_or(|code| self.code.as_deref() == Some(code))
            && query.added_from.is_none_or(|from| self.added_at >= from)
            && query.added_before.is_none_or(|end| self.added_at < end)
            && query
                .after
                .is_none_or(|after| self.sequence < after.as_u64())
    }

    pub(in crate::store) fn wrong_state(&self, operation: &'static str) -> StoreError {
        StoreError::WrongState {
            operation,
            run: self.run.clone(),
            state: self.state,
        }
    }

    /// Returns this ledger row as an item of a run list. The item has the lease if the filter selects the runs of one claim.
    pub(in crate::store) fn list_item(&self, filter: &RunFilter, now: Timestamp) -> Run {
        let lease = filter.claim.map(|_| self.lease());
        Run {
            lease,
            ..self.to_run(now)
        }
    }

    /// Returns this ledger row as an item of a page of runs, together with the row's sequence number.
    pub(in crate::store) fn page_item(&self, now: Timestamp) -> (u64, Run) {
        (self.sequence, self.to_run(now))
    }

    fn to_run(&self, now: Timestamp) -> Run {
        let state = self.state_at(now);
        let wait = self.wait.as_ref();
        Run {
            added_at: self.added_at,
            attempts: self.attempts,
            due: self.due,
            due_for: self.due.filter(|due| *due <= now).map(|due| now.since(due)),
            wake: wait.map(|wait| wait.wake.clone()),
            suspended_at: wait
                .filter(|_| state == RunState::Suspended)
                .map(|wait| wait.since),
            written: self.written.clone(),
            reason: self.reason.clone().filter(|_| self.state.is_over()),
            code: self.code.clone(),
            cause: self.cause.clone(),
            transferred_to: self.transferred_to().map(str::to_owned),
            ..Run::new(self.run.clone(), state, self.since)
        }
    }
}
