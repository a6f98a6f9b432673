//! Concurrency, rate, retry and circuit breaker limits of one executor.

use super::limits::{Breaker, Bucket, Budget, Change, Open, Ticket, Trigger};
use super::process::Processed;
use super::settings::Settings;
use crate::clock::later;
use crate::executor::{Commits, ExecutorError, Outcome, Profile, Rate};
use crate::store::{FailureClass, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The limits of one executor's runs, and their current usage.
#[derive(Debug)]
pub(super) struct Quota {
    in_flight: usize,
    /// Counter of the executor's runs in flight that only wait for their commits. Other runs may start meanwhile.
    commits: Arc<Commits>,
    bucket: Option<(Rate, Bucket)>,
    budget: Budget,
    /// Number of the executor's retries postponed since its last admitted run.
    put_off: u32,
    breaker: Breaker,
    /// The number of retries that do not count against the executor's retry budget: one for each run that failed while the breaker was
    /// open, and for each run whose heartbeats the ledger did not answer. Otherwise the budget would spread the backlog of an outage over
    /// hours.
    recovering: u32,
    /// If `true`, the executor is queued for a claim of its due runs.
    pub(super) hot: bool,
    /// If `true`, the executor may have due runs that were not claimed because no run could start.
    pub(super) more: bool,
}

/// The number of an executor's runs that may start now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Free {
    /// Up to this many runs of the executor may start.
    Runs(usize),
    /// No run of the executor may start before this moment.
    NotBefore(Instant),
    /// No run of the executor may start before a run in flight ends or starts to commit.
    Busy,
}

impl Quota {
    pub(super) fn new(now: Instant, commits: Commits) -> Self {
        Self {
            in_flight: 0,
            commits: Arc::new(commits),
            bucket: None,
            budget: Budget::new(now),
            put_off: 0,
            breaker: Breaker::new(),
            recovering: 0,
            hot: false,
            more: false,
        }
    }

    /// Returns the number of the executor's runs that may start now, or the reason that none may start.
    pub(super) fn free(&mut self, profile: &Profile, most: usize, now: Instant) -> Free {
        let most = profile.max_inflight.unwrap_or(most);
        let commits = if most > 1 { self.commits.runs() } else { 0 };
        let working = self.in_flight.saturating_sub(commits);
        let in_all = most.saturating_mul(2);
        let room = most.saturating_sub(working);
        let room = room.min(in_all.saturating_sub(self.in_flight));
        if room == 0 {
            return Free::Busy;
        }
        let Some(bucket) = self.bucket(profile.rate) else {
            return Free::Runs(room);
        };
        match bucket.available(now) {
            0 => bucket.next(now).map_or(Free::Busy, Free::NotBefore),
            tokens => Free::Runs(room.min(tokens)),
        }
    }

    /// Returns the counter of committing runs, if a run of the executor may start while another one commits. Returns `None` for an executor
    /// with one run at a time, because it may rely on the response of the last run.
    pub(super) fn commits(&self, profile: &Profile, settings: Settings) -> Option<Arc<Commits>> {
        let most = profile.max_inflight.unwrap_or(settings.max_inflight);
        (most.min(settings.concurrency) > 1).then(|| Arc::clone(&self.commits))
    }

    /// Returns `true` if the executor may have due runs that can start now, because other runs are committing. Resets the state, so that
    /// the next call returns `false` unless another claim was refused in the meantime.
    pub(super) fn has_freed(&mut self) -> bool {
        self.commits.runs() > 0 && std::mem::take(&mut self.more)
    }

    /// Admits a claimed run to its start. `again` is `true` if the run failed before.
    ///
    /// # Errors
    /// Returns the moment at which a retry may start, if too much of the traffic is retries or the circuit breaker is
    /// open.
    pub(super) fn start(
        &mut self,
        again: bool,
        trigger: Trigger,
        now: Instant,
    ) -> Result<Ticket, Instant> {
        self.in_flight += 1;
        let ticket = match self.breaker.start(again, trigger, now) {
            Ok(ticket) => ticket,
            Err(moment) => return Err(self.put_off(moment)),
        };
        if again && self.recovering > 0 {
            self.recovering -= 1;
        } else if again && !self.budget.retry(now) {
            self.breaker.abandoned(ticket);
            let next = self.budget.next(now).unwrap_or(now);
            return Err(self.put_off(next));
        }
        self.put_off = 0;
        if !again {
            self.budget.first();
        }
        if let Some((_, bucket)) = &mut self.bucket {
            bucket.take(now, 1);
        }
        Ok(ticket)
    }

    /// Returns the moment at which a postponed retry may start, at or after `next`. Each retry gets a later moment than the one before, so
    /// that the retries do not all compete for the first free start.
    fn put_off(&mut self, next: Instant) -> Instant {
        const APART: Duration = Duration::from_millis(100);
        const MOST: u32 = 300;
        let at = later(next, APART * self.put_off);
        self.put_off = (self.put_off + 1).min(MOST);
        at
    }

    /// Records the end of a run, and the result of the run if the run was started. Returns the change of the circuit breaker, if any.
    pub(super) fn end(
        &mut self,
        ticket: Option<Ticket>,
        trigger: Trigger,
        how: Ended,
        now: Instant,
    ) -> Option<Change> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let ticket = ticket?;
        let change = match how {
            Ended::Well => self.breaker.succeeded(ticket),
            Ended::Badly => self.breaker.failed(ticket, trigger, now),
            Ended::Neither => {
                self.breaker.abandoned(ticket);
                None
            }
        };
        if let Some(Change::Closed { failures }) = change {
            self.recovering = self.recovering.saturating_add(failures);
        }
        change
    }

    /// Exempts one retry from the executor's retry budget, for a run that an outage of the ledger interrupted.
    pub(super) fn recover_one(&mut self) {
        self.recovering = self.recovering.saturating_add(1);
    }

    /// Returns the state of the executor's circuit breaker if it is open.
    pub(super) fn open_breaker(&self) -> Option<Open> {
        self.breaker.open()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Returns the token bucket for the executor's rate limit. A changed rate creates a new bucket.
    fn bucket(&mut self, rate: Option<Rate>) -> Option<&mut Bucket> {
        let rate = rate?;
        if self.bucket.as_ref().is_none_or(|(of, _)| *of != rate) {
            self.bucket = Some((rate, Bucket::new(rate)));
        }
        self.bucket.as_mut().map(|(_, bucket)| bucket)
    }
}

/// Evidence from an attempt of a run about the services on which the executor depends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// The attempt shows that the executor's dependencies work.
    Well,
    /// The attempt shows that one of the executor's dependencies fails at present.
    Badly,
    /// The attempt shows nothing about the executor's dependencies.
    Neither,
}

impl Ended {
    /// Classifies the result of an attempt of a run. Permanent errors of the executor or its input are no evidence about its dependencies.
    pub(super) fn of(processed: &Processed) -> Self {
        match processed {
            Ok(Outcome::Responded { .. } | Outcome::Suspended { .. }) => Self::Well,
            Ok(Outcome::Failed { class, .. }) => Self::of_failure(*class),
            Ok(
                Outcome::Unmatched
                | Outcome::ContextNoted
                | Outcome::OwnBreadcrumb
                | Outcome::Gone
                | Outcome::Superseded
                | Outcome::AlreadyDone { .. }
                | Outcome::InProgress { .. }
                | Outcome::Paused { .. },
            ) => Self::Neither,
            Err(error) => Self::of_error(error),
        }
    }

    fn of_failure(class: FailureClass) -> Self {
        match class {
            FailureClass::AttemptsUsedUp | FailureClass::Timeout | FailureClass::Panic => {
                Self::Badly
            }
            FailureClass::Permanent
            | FailureClass::CrashLoop
            | FailureClass::HopLimit
            | FailureClass::OutcomeUnknown => Self::Neither,
        }
    }

    fn of_error(error: &ExecutorError) -> Self {
        match error {
            ExecutorError::Postponed { source, .. } => Self::of_error(source),
            ExecutorError::Execute(_)
            | ExecutorError::Respond(_)
            | ExecutorError::RequiredSource { .. }
            | ExecutorError::Timeout { .. }
            | ExecutorError::Panicked { .. }
            | ExecutorError::Store {
                source: StoreError::Unavailable { .. },
                ..
            } => Self::Badly,
            ExecutorError::Store { .. }
            | ExecutorError::StaleRead { .. }
            | ExecutorError::RequiredNotFound { .. }
            | ExecutorError::ContextTooLarge { .. }
            | ExecutorError::BadResponse { .. }
            | ExecutorError::LeaseLost { .. } => Self::Neither,
        }
    }
}
