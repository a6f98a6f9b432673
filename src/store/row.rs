//! One row of the ledger and each transition of its state, with time as an argument.

use super::{
    ClaimId, Claimed, DeadLetter, KeyPosition, Lease, Lineage, Run, RunEnd, RunFilter, RunQuery,
    RunRef, RunState, Saved, StoreError, Wake,
};
use crate::bugs::planted;
use crate::error::excerpt;
use crate::model::{BreadcrumbId, Json, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of transferred runs of one version of an executor that one call accepts.
pub(crate) const MOST_ACCEPTED: usize = 1_000;

/// Expands to [`ASIDE`] as a literal, for SQL statements.
macro_rules! aside {
    () => {
        4_611_686_018_427_387_904
    };
}
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(in crate::store) use aside;

/// The bit in the sequence of a row that left the line of its ordering key.
pub(in crate::store) const ASIDE: u64 = aside!();

/// Start of the lease of a row whose next claim begins an attempt.
const NOT_CLAIMED: Timestamp = Timestamp::UNIX_EPOCH;

#[derive(Clone, Debug)]
pub(in crate::store) struct Row {
    pub(in crate::store) run: RunRef,
    pub(in crate::store) state: RunState,
    pub(in crate::store) epoch: u32,
    pub(in crate::store) attempts: u32,
    pub(in crate::store) abandoned: u32,
    /// If `true`, a lease of this epoch expired.
    pub(in crate::store) has_expired: bool,
    pub(in crate::store) token: u64,
    /// The claim of due runs from which the newest lease comes; `None` after a claim of this run alone.
    pub(in crate::store) claim: Option<ClaimId>,
    /// Start of the lease; [`NOT_CLAIMED`] before the first claim of an attempt.
    pub(in crate::store) granted_at: Timestamp,
    /// The time when the row was added or woken; from the first claim of an attempt on, the time of that claim.
    pub(in crate::store) since: Timestamp,
    /// The time when the row was added.
    pub(in crate::store) added_at: Timestamp,
    /// Orders rows that are due at the same time, and the rows of a page.
    pub(in crate::store) sequence: u64,
    /// If `true`, no other row stands before it in the order of its key.
    pub(in crate::store) head: bool,
    /// When it can be claimed: its time, the end of its lease or of its wait.
    pub(in crate::store) due: Option<Timestamp>,
    /// Where the trigger came from, noted while its version was the current one.
    pub(in crate::store) lineage: Option<Lineage>,
    pub(in crate::store) saved: Option<Saved>,
    pub(in crate::store) wait: Option<Wait>,
    pub(in crate::store) written: Vec<BreadcrumbId>,
    /// Reason of the end. While the row is ready: version of the executor to which it was transferred.
    pub(in crate::store) reason: Option<String>,
    /// Code of the failure that ended the run.
    pub(in crate::store) code: Option<String>,
    /// Cause of the last failed attempt.
    pub(in crate::store) cause: Option<String>,
    /// Which of the rows that are over this was.
    pub(in crate::store) over: Option<u64>,
}

/// What a suspended row waits for, and since when.
#[derive(Clone, Debug)]
pub(in crate::store) struct Wait {
    pub(in crate::store) wake: Wake,
    pub(in crate::store) since: Timestamp,
}

/// How a lease ends, as a row sees it.
pub(in crate::store) enum End {
    Over {
        state: RunState,
        reason: Option<String>,
        /// Code and cause of the failure.
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

impl End {
    /// What the end of a run is to its row, as of the time of the commit.
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

/// What a store knows of where a trigger comes from.
#[derive(Clone, Debug)]
pub(in crate::store) enum Origin {
    /// The run's own executor wrote it.
    Own,
    Known(Lineage),
    /// The version is not the current one.
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

impl Row {
    /// Size of the saved state in bytes.
    pub(in crate::store) fn state_bytes(&self) -> usize {
        self.saved.as_ref().map_or(0, |saved| saved.state.size())
    }

    /// A row that is ready. It keeps the event without its context, which may be large.
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

    /// Makes a row that is over ready again, in a new epoch, as if it had been added now.
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

    /// Notes where the trigger came from, and says whether the row ended for want of a version that was announced
    /// before it came.
    pub(in crate::store) fn learn(&mut self, lineage: Option<Lineage>) -> bool {
        let reopens = self.would_reopen(lineage.is_some());
        self.lineage = self.lineage.take().or(lineage);
        reopens
    }

    /// Whether it ended for want of a version, and is made ready again if that is known by now.
    pub(in crate::store) fn would_reopen(&self, is_known: bool) -> bool {
        self.lineage.is_none()
            && is_known
            && matches!(self.state, RunState::Failed | RunState::Skipped)
            && self.reason.as_deref() != Some(RunEnd::CANCELLED)
    }

    /// Leases it for a length from now, whatever its state.
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

    /// Notes that the owner of a lost lease lives: only later leases can have been abandoned. Has no effect a second time.
    pub(in crate::store) fn owner_lives(&mut self, lost: &Lease) {
        if self.epoch != lost.epoch {
            return;
        }
        if let Some(later @ 1..) = self.token.checked_sub(lost.token) {
            let later = u32::try_from(later - 1).unwrap_or(u32::MAX);
            self.abandoned = self.abandoned.min(later);
        }
    }

    /// Releases the lease after a failed attempt.
    pub(in crate::store) fn retry(&mut self, counts: bool, cause: Option<&str>) {
        self.note_cause(cause.map(str::to_owned));
        // What is put off says nothing of the workers that died before.
        if counts {
            self.abandoned = 0;
            self.granted_at = NOT_CLAIMED;
        } else {
            self.attempts = self.attempts.saturating_sub(1);
        }
        self.state = RunState::Ready;
    }

    /// Gives it back as if it had not been claimed.
    pub(in crate::store) fn release(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
        self.granted_at = NOT_CLAIMED;
        self.state = RunState::Ready;
    }

    /// Releases the lease as if the row had not been claimed, for another version of the executor.
    pub(in crate::store) fn transfer(&mut self, version: &str, position: KeyPosition) {
        self.release();
        self.reason = Some(version.to_owned());
        match position {
            KeyPosition::Left if self.run.order.is_some() => self.sequence |= ASIDE,
            KeyPosition::Held | KeyPosition::Left => {}
        }
    }

    /// Returns `true` while the row is not in the line of its ordering key, which it left with a transfer.
    pub(in crate::store) fn is_aside(&self) -> bool {
        self.sequence >= ASIDE && !self.state.is_over()
    }

    /// Returns the version of the executor to which the row was transferred, until a worker of that version accepts it.
    pub(in crate::store) fn transferred_to(&self) -> Option<&str> {
        let ready = self.state == RunState::Ready;
        self.reason.as_deref().filter(|_| ready)
    }

    /// Fails unless the row can be redone.
    pub(in crate::store) fn check_redo(&self) -> Result<(), StoreError> {
        let unmatched =
            self.state == RunState::Skipped && self.reason.as_deref() == Some(RunEnd::UNMATCHED);
        match self.state == RunState::Failed || unmatched {
            true => Ok(()),
            false => Err(self.wrong_state("redo")),
        }
    }

    /// Fails unless the row waits for another version of its executor.
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

    /// Wakes it, if it is suspended.
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

    /// Suspends it, and says until when at the longest.
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

    /// Ends it; `over` says which of the rows that are over it is.
    pub(in crate::store) fn finish(
        &mut self,
        state: RunState,
        (reason, cause): (Option<String>, Option<String>),
        over: u64,
    ) {
        self.note_cause(cause);
        self.state = state;
        self.reason = reason;
        self.over = Some(over);
        (self.saved, self.wait) = (None, None);
    }

    /// Notes the cause of a failed attempt. Without one, that of the attempt before stays.
    fn note_cause(&mut self, cause: Option<String>) {
        let bounded = |cause: String| match cause.len() > DeadLetter::LONGEST_CAUSE {
            true => excerpt(&cause, DeadLetter::LONGEST_CAUSE - 2).into_owned(),
            false => cause,
        };
        self.cause = cause.map(bounded).or_else(|| self.cause.take());
    }

    /// Whether a lease is still the newest of it.
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

    /// Returns the run as its claim grants it.
    pub(in crate::store) fn claimed(&self) -> Claimed {
        Claimed::new(self.lease(), self.attempts, self.lineage()).state(self.saved.clone())
    }

    /// Returns `true` if the newest lease comes from a claim and has not ended.
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

    /// Reports whether a list with a filter shows the row.
    pub(in crate::store) fn is_in(&self, filter: &RunFilter, now: Timestamp) -> bool {
        let executor = filter.executor.as_ref();
        executor.is_none_or(|id| **id == *self.run.executor)
            && filter.trigger_id.is_none_or(|id| id == self.run.trigger_id)
            && filter.claim.is_none_or(|id| self.is_of_claim(id))
            && (filter.states.is_empty() || filter.states.contains(&self.state_at(now)))
    }

    /// Reports whether a page of a query shows the row.
    pub(in crate::store) fn is_on_page(&self, query: &RunQuery, now: Timestamp) -> bool {
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

    /// Returns the row as a list shows it, with its lease if the list is of one claim.
    pub(in crate::store) fn view(&self, filter: &RunFilter, now: Timestamp) -> Run {
        let lease = filter.claim.map(|_| self.lease());
        Run {
            lease,
            ..self.seen(now)
        }
    }

    /// Returns the row as a page shows it, with its position.
    pub(in crate::store) fn on_page(&self, now: Timestamp) -> (u64, Run) {
        (self.sequence, self.seen(now))
    }

    fn seen(&self, now: Timestamp) -> Run {
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
