//! What a station knows of one executor: how much of its work may be started now.

use super::limits::{Allowed, Breaker, Bucket, Budget, Ticket};
use super::process::Processed;
use crate::clock::later;
use crate::executor::{ExecutorError, Outcome, Profile, Rate};
use crate::store::{FailureClass, StoreError};
use std::time::Duration;
use tokio::time::Instant;

/// One executor's work at a station.
#[derive(Debug)]
pub(super) struct Desk {
    in_flight: usize,
    bucket: Option<(Rate, Bucket)>,
    budget: Budget,
    /// How many retries were put off since one was let through.
    put_off: u32,
    breaker: Breaker,
    /// Whether its turn to claim comes.
    pub(super) hot: bool,
    /// Whether runs may be due that were not claimed for want of room.
    pub(super) more: bool,
}

/// How much of an executor's work may be started now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Free {
    /// So many runs.
    Runs(usize),
    /// None before then.
    NotBefore(Instant),
    /// None before one that runs has ended.
    Busy,
}

impl Desk {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            in_flight: 0,
            bucket: None,
            budget: Budget::new(now),
            put_off: 0,
            breaker: Breaker::new(),
            hot: false,
            more: false,
        }
    }

    /// How many runs may be started now.
    pub(super) fn free(&mut self, profile: &Profile, most: usize, now: Instant) -> Free {
        let most = profile.max_inflight.unwrap_or(most);
        let room = most.saturating_sub(self.in_flight);
        if room == 0 {
            return Free::Busy;
        }
        let room = match self.breaker.allows(now) {
            Allowed::All => room,
            Allowed::One => 1,
            Allowed::None { until: Some(until) } => return Free::NotBefore(until),
            Allowed::None { until: None } => return Free::Busy,
        };
        let Some(bucket) = self.bucket(profile.rate) else {
            return Free::Runs(room);
        };
        match bucket.available(now) {
            0 => bucket.next(now).map_or(Free::Busy, Free::NotBefore),
            tokens => Free::Runs(room.min(tokens)),
        }
    }

    /// Notes that a run is there; `again` if it is not its first attempt. If too much of the traffic is retries it has to
    /// wait until a moment.
    pub(super) fn start(&mut self, again: bool, now: Instant) -> Result<Ticket, Instant> {
        self.in_flight += 1;
        if again && !self.budget.retry(now) {
            return Err(self.put_off(now));
        }
        self.put_off = 0;
        if !again {
            self.budget.first();
        }
        if let Some((_, bucket)) = &mut self.bucket {
            bucket.take(now, 1);
        }
        Ok(self.breaker.started(now))
    }

    /// When a run may be tried again that is one retry too many. Of many each comes later than the one before, so that not
    /// all of them come back for the next one.
    fn put_off(&mut self, now: Instant) -> Instant {
        const APART: Duration = Duration::from_millis(100);
        const MOST: u32 = 300;
        let next = self.budget.next(now).unwrap_or(now);
        let at = later(next, APART * self.put_off);
        self.put_off = (self.put_off + 1).min(MOST);
        at
    }

    /// Notes that a run is gone, and how it ended if it was started.
    pub(super) fn end(&mut self, ticket: Option<Ticket>, how: Ended, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(ticket) = ticket else { return };
        match how {
            Ended::Well => self.breaker.succeeded(ticket),
            Ended::Badly => self.breaker.failed(ticket, now),
            Ended::Neither => self.breaker.abandoned(ticket),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// The bucket for a rate; a new one where the rate has changed with the executor's definition.
    fn bucket(&mut self, rate: Option<Rate>) -> Option<&mut Bucket> {
        let rate = rate?;
        if self.bucket.as_ref().is_none_or(|(of, _)| *of != rate) {
            self.bucket = Some((rate, Bucket::new(rate)));
        }
        self.bucket.as_mut().map(|(_, bucket)| bucket)
    }
}

/// What an attempt says of what its executor depends on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// It works.
    Well,
    /// It fails for now.
    Badly,
    /// Nothing.
    Neither,
}

impl Ended {
    /// What an attempt says; its own mistakes, and those of its input, say nothing.
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
                | Outcome::InProgress { .. },
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
