//! Concurrency, rate, retry and circuit breaker limits of one executor.

use super::limits::{
    Breaker, BreakerChange, OpenCircuit, RetryBudget, Ticket, TokenBucket, Trigger,
};
use super::process::Processed;
use super::settings::Settings;
use crate::clock::later;
use crate::executor::{CommitCounter, ExecutorError, Outcome, Profile, Rate};
use crate::store::{FailureClass, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The limits of one executor's runs, and their current usage.
#[derive(Debug)]
pub(super) struct Quota {
    in_flight: usize,
    /// Counter of the executor's runs in flight that only wait for the commit of their response. Other runs may start meanwhile.
    commits: Arc<CommitCounter>,
    bucket: Option<(Rate, TokenBucket)>,
    budget: RetryBudget,
    /// Number of the executor's retries postponed since its last admitted run.
    postponed: u32,
    breaker: Breaker,
    /// The number of retries that do not count against the executor's retry budget, because an outage caused them. Each run that
    /// failed while the circuit breaker was open adds one, and each run whose heartbeats the ledger did not answer. Otherwise the
    /// budget would spread the backlog of an outage over hours.
    exempt_retries: u32,
    /// If `true`, the executor is queued for a claim of its due runs.
    pub(super) is_queued: bool,
    /// If `true`, the executor may have due runs that were not claimed because no run could start.
    pub(super) has_more: bool,
}

/// The number of an executor's runs that may start now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum StartCapacity {
    /// Up to this many runs of the executor may start.
    Runs(usize),
    /// No run of the executor may start before this moment.
    NotBefore(Instant),
    /// No run of the executor may start before a run in flight ends or starts to commit.
    Busy,
}

impl Quota {
    pub(super) fn new(now: Instant, commits: CommitCounter) -> Self {
        Self {
            in_flight: 0,
            commits: Arc::new(commits),
            bucket: None,
            budget: RetryBudget::new(now),
            postponed: 0,
            breaker: Breaker::new(),
            exempt_retries: 0,
            is_queued: false,
            has_more: false,
        }
    }

    /// Returns the number of the executor's runs that may start now, or the reason that none may start.
    pub(super) fn start_capacity(
        &mut self,
        profile: &Profile,
        max_inflight: usize,
        now: Instant,
    ) -> StartCapacity {
        let max_inflight = profile.max_inflight.unwrap_or(max_inflight);
        let commits = if max_inflight > 1 {
            self.commits.runs()
        } else {
            0
        };
        let working = self.in_flight.saturating_sub(commits);
        let max_with_commits = max_inflight.saturating_mul(2);
        let free = max_inflight.saturating_sub(working);
        let free = free.min(max_with_commits.saturating_sub(self.in_flight));
        if free == 0 {
            return StartCapacity::Busy;
        }
        let Some(bucket) = self.bucket(profile.rate) else {
            return StartCapacity::Runs(free);
        };
        match bucket.available(now) {
            0 => bucket
                .next(now)
                .map_or(StartCapacity::Busy, StartCapacity::NotBefore),
            tokens => StartCapacity::Runs(free.min(tokens)),
        }
    }

    /// Returns the counter of the executor's runs that only wait for the commit of their response, or `None` if the executor runs
    /// one run at a time. Such an executor may rely on the response of the last run, so the next run starts after the commit.
    pub(super) fn commits(
        &self,
        profile: &Profile,
        settings: Settings,
    ) -> Option<Arc<CommitCounter>> {
        let max_inflight = profile.max_inflight.unwrap_or(settings.max_inflight);
        (max_inflight.min(settings.concurrency) > 1).then(|| Arc::clone(&self.commits))
    }

    /// Returns `true` if the executor may have due runs that can start now, because other runs are committing. Resets the state, so that
    /// the next call returns `false` unless another claim was refused in the meantime.
    pub(super) fn take_freed(&mut self) -> bool {
        self.commits.runs() > 0 && std::mem::take(&mut self.has_more)
    }

    /// Returns a ticket for a claimed run if the executor's limits allow the run to start now. The run counts as in flight in any
    /// case. `is_retry` is `true` if the run failed before.
    ///
    /// # Errors
    /// Returns the moment at which a retry may start, if too much of the traffic is retries or the circuit breaker is
    /// open.
    pub(super) fn start(
        &mut self,
        is_retry: bool,
        trigger: Trigger,
        now: Instant,
    ) -> Result<Ticket, Instant> {
        self.in_flight += 1;
        let ticket = match self.breaker.start(is_retry, trigger, now) {
            Ok(ticket) => ticket,
            Err(moment) => return Err(self.postpone_retry(moment)),
        };
        if is_retry && self.exempt_retries > 0 {
            self.exempt_retries -= 1;
        } else if is_retry && !self.budget.take_retry(now) {
            self.breaker.abandoned(ticket);
            let next = self.budget.next(now).unwrap_or(now);
            return Err(self.postpone_retry(next));
        }
        self.postponed = 0;
        if !is_retry {
            self.budget.record_first_attempt();
        }
        if let Some((_, bucket)) = &mut self.bucket {
            bucket.take(now, 1);
        }
        Ok(ticket)
    }

    /// Returns the time at which a postponed retry may start: the earliest permitted time `next`, plus a delay that grows with each
    /// postponed retry. The delay prevents all retries from competing for the first free start.
    fn postpone_retry(&mut self, next: Instant) -> Instant {
        const SPACING: Duration = Duration::from_millis(100);
        const MAX_POSTPONED: u32 = 300;
        let at = later(next, SPACING * self.postponed);
        self.postponed = (self.postponed + 1).min(MAX_POSTPONED);
        at
    }

    /// Records in the executor's limits that a run ended, with the result of the run if the run was started. Returns the change
    /// of the circuit breaker, if any.
    pub(super) fn end(
        &mut self,
        ticket: Option<Ticket>,
        trigger: Trigger,
        evidence: Evidence,
        now: Instant,
    ) -> Option<BreakerChange> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let ticket = ticket?;
        let change = match evidence {
            Evidence::Working => self.breaker.succeeded(ticket),
            Evidence::Failing => self.breaker.failed(ticket, trigger, now),
            Evidence::Unknown => {
                self.breaker.abandoned(ticket);
                None
            }
        };
        if let Some(BreakerChange::Closed { failures }) = change {
            self.exempt_retries = self.exempt_retries.saturating_add(failures);
        }
        change
    }

    /// Exempts one retry from the executor's retry budget, for a run that an outage of the ledger interrupted.
    pub(super) fn exempt_one_retry(&mut self) {
        self.exempt_retries = self.exempt_retries.saturating_add(1);
    }

    /// Returns the state of the executor's circuit breaker if it is open.
    pub(super) fn open_breaker(&self) -> Option<OpenCircuit> {
        self.breaker.open()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Returns the token bucket for the executor's rate limit. A changed rate creates a new bucket.
    fn bucket(&mut self, rate: Option<Rate>) -> Option<&mut TokenBucket> {
        let rate = rate?;
        if self.bucket.as_ref().is_none_or(|(of, _)| *of != rate) {
            self.bucket = Some((rate, TokenBucket::new(rate)));
        }
        self.bucket.as_mut().map(|(_, bucket)| bucket)
    }
}

/// Evidence from an attempt of a run about the services on which the executor depends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Evidence {
    /// The attempt shows that the executor's dependencies work.
    Working,
    /// The attempt shows that one of the executor's dependencies fails at present.
    Failing,
    /// The attempt shows nothing about the executor's dependencies.
    Unknown,
}

impl Evidence {
    /// Returns the evidence about the executor's dependencies that the result of an attempt of a run gives. Permanent errors of
    /// the executor or its input are no evidence about its dependencies.
    pub(super) fn of(processed: &Processed) -> Self {
        match processed {
            Ok(Outcome::Responded { .. } | Outcome::Suspended { .. }) => Self::Working,
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
            ) => Self::Unknown,
            Err(error) => Self::of_error(error),
        }
    }

    fn of_failure(class: FailureClass) -> Self {
        match class {
            FailureClass::AttemptsUsedUp | FailureClass::Timeout | FailureClass::Panic => {
                Self::Failing
            }
            FailureClass::Permanent
            | FailureClass::CrashLoop
            | FailureClass::HopLimit
            | FailureClass::OutcomeUnknown => Self::Unknown,
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
            } => Self::Failing,
            ExecutorError::Store { .. }
            | ExecutorError::StaleRead { .. }
            | ExecutorError::RequiredNotFound { .. }
            | ExecutorError::ContextTooLarge { .. }
            | ExecutorError::BadResponse { .. }
            | ExecutorError::LeaseLost { .. } => Self::Unknown,
        }
    }
}
