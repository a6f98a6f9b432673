//! Decides when an attempt at a flow run ends before the flow does. No further step begins then, and running steps have time to end.

use super::outcome::code_of;
use crate::classes::verdict;
use crate::clock::within;
use crate::error::{BoxError, Verdict};
use crate::executor::ExecutionContext;
use crate::model::Timestamp;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Maximum time for the other running steps to end after a store error in one step. Also the maximum time for a failed attempt to save its
/// outcomes.
pub(super) const GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Reason why an attempt at a flow run ends before the flow does.
pub(super) enum EndReason {
    /// The attempt ends early: the run is suspended, and another attempt continues it at once. The suspension restarts the run's
    /// attempt count and time limit. If steps are still running at `until`, the attempt continues.
    Yields { until: Option<Instant> },
    /// A step failed because the store or the run had a transient error. The flow run is retried. Running steps can end before
    /// `until`.
    Fails { error: BoxError, until: Instant },
}

/// State for the decision whether an attempt at a flow run ends before the flow does.
pub(super) struct EarlyEnd {
    /// If `true`, a step has ended in this attempt at the flow run.
    pub(super) has_progressed: bool,
    /// If `true`, the store has saved the state of the run in this attempt.
    pub(super) is_durable: bool,
    /// Time limits of this attempt at the flow run, or `None` if the attempt has no deadline, as outside of an executor's run.
    time: Option<AttemptTimes>,
    /// Reason to end this attempt at the flow run, or `None` if the attempt continues. With a reason, no further step begins, and
    /// the attempt ends once no step is running.
    pub(super) reason: Option<EndReason>,
}

/// Times at which an attempt at a flow run yields to the next attempt, and stops starting steps. The time until the attempt's
/// deadline is divided into five parts. After the first fifth the attempt yields as soon as no step is running, so a step that
/// begins alone has the other four fifths. After the fourth fifth no step begins.
struct AttemptTimes {
    fifth: Duration,
    /// Earliest time at which this attempt at the flow run can yield to the next attempt.
    first_yield: Timestamp,
    /// Time from which this attempt at the flow run begins no more steps, so that it can yield to the next attempt. Steps can
    /// begin again once the attempt stops waiting for its running steps.
    next_yield: Timestamp,
    /// Time after which no step begins, even if the attempt cannot yield.
    last_start: Timestamp,
}

impl AttemptTimes {
    fn new(context: &ExecutionContext, deadline: Timestamp) -> Self {
        let now = context.now();
        let fifth = deadline.since(now) / 5;
        let first_yield = match context.attempt() > 1 {
            // The run has lost a worker or failed before, so it yields as early as possible.
            true => now,
            false => now + fifth,
        };
        Self {
            fifth,
            first_yield,
            next_yield: first_yield,
            last_start: now + fifth * 4,
        }
    }
}

impl EarlyEnd {
    /// Creates the state of an attempt at a flow run that starts now, for the decision when the attempt ends.
    pub(super) fn new(context: &ExecutionContext) -> Self {
        let time = context.deadline();
        Self {
            has_progressed: false,
            is_durable: false,
            time: time.map(|deadline| AttemptTimes::new(context, deadline)),
            reason: None,
        }
    }

    /// Waits for the end of the grace period, in which running steps can still end before the attempt at the flow run ends. Never
    /// returns if the attempt has no grace period.
    pub(super) async fn grace_period(&self) {
        match &self.reason {
            Some(EndReason::Fails { until, .. } | EndReason::Yields { until: Some(until) }) => {
                sleep_until(*until).await;
            }
            Some(EndReason::Yields { until: None }) | None => std::future::pending().await,
        }
    }

    /// Lets further steps of a flow run begin again if the running steps did not end soon enough for the attempt to yield. A
    /// fifth of the time later, the attempt tries to yield again.
    pub(super) fn cancel_expired_yield(&mut self, now: Timestamp) {
        if let Some(EndReason::Yields { until: Some(until) }) = &self.reason
            && Instant::now() >= *until
        {
            self.reason = None;
            if let Some(time) = &mut self.time {
                time.next_yield = now + time.fifth;
            }
        }
    }

    /// Returns [`EndReason::Yields`] if this attempt has to yield to another attempt now, or `None` if this attempt continues.
    /// Lost workers and long flows thus do not use up the run's attempts and time.
    ///
    /// An attempt yields only after a step has ended in it. A run that always loses its worker at the same step therefore exhausts its
    /// attempts.
    pub(super) fn reason_to_yield(
        &self,
        now: Timestamp,
        has_running_steps: bool,
    ) -> Option<EndReason> {
        let time = self.time.as_ref()?;
        if !self.has_progressed || !self.is_durable || now < time.first_yield {
            return None;
        }
        if !has_running_steps || now >= time.last_start {
            return Some(EndReason::Yields { until: None });
        }
        let until = Some(Instant::now() + time.fifth / 4);
        (now >= time.next_yield).then_some(EndReason::Yields { until })
    }
}

/// Runs all agents that an agent called until they have ended or suspended, and returns the result of each call. After a
/// transient error, the other futures have [`GRACE_PERIOD`] to end, so that their outcomes are saved.
///
/// # Errors
/// Returns the first error.
pub(super) async fn wait_for_all<T>(
    work: impl IntoIterator<Item = impl Future<Output = Result<T, BoxError>>>,
) -> Result<Vec<T>, BoxError> {
    let mut work: FuturesUnordered<_> = work.into_iter().collect();
    let mut done = Vec::with_capacity(work.len());
    let error = loop {
        match work.next().await {
            Some(Ok(one)) => done.push(one),
            Some(Err(error)) => break error,
            None => return Ok(done),
        }
    };
    if verdict(error.as_ref()) != Verdict::Permanent {
        let others = work.for_each(|_| std::future::ready(()));
        let has_ended = within(GRACE_PERIOD, others).await.is_some();
        let code = code_of(&error);
        tracing::debug!(
            code,
            has_ended,
            "an agent step of a flow run failed with a transient error, so the attempt ends; other running agent steps were given time to finish"
        );
    }
    Err(error)
}
