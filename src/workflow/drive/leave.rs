//! Attempts that end before the flow does: no further step begins, and what is at work may end first.

use super::ended::code_of;
use crate::classes::verdict;
use crate::clock::within;
use crate::error::{BoxError, Verdict};
use crate::executor::ExecutionContext;
use crate::model::Timestamp;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long others at work may take to end after one of them met with an error of the store, and how long is tried to keep
/// what came of it.
pub(super) const SIBLINGS: Duration = Duration::from_secs(60);

/// How an attempt ends.
pub(super) enum Leave {
    /// The run is suspended and due at once, so that its attempts and its time count from here. If what is at work takes longer
    /// than until then, the attempt goes on.
    Yields { until: Option<Instant> },
    /// The store has failed a step: the run is tried again.
    Fails { error: BoxError, until: Instant },
}

/// Whether an attempt ends before the flow does.
pub(super) struct Leaving {
    /// Whether a step has ended in this attempt.
    pub(super) came_further: bool,
    /// Whether the store keeps where the run is.
    pub(super) is_durable: bool,
    /// The time of this attempt; none outside of a run.
    time: Option<Time>,
    /// How it ends once nothing is at work; no step begins any more then.
    pub(super) how: Option<Leave>,
}

/// The time of an attempt, in fifths. After the first it makes way when nothing is at work, so that a step which begins by
/// itself has the other four; after the fourth nothing begins any more.
struct Time {
    fifth: Duration,
    /// When it may make way.
    early: Timestamp,
    /// When others wait for a while for what is at work, so that it may.
    waits: Timestamp,
    late: Timestamp,
}

impl Time {
    fn new(context: &ExecutionContext, deadline: Timestamp) -> Self {
        let now = context.now();
        let fifth = deadline.since(now) / 5;
        let early = match context.attempt() > 1 {
            // It has lost workers before.
            true => now,
            false => now + fifth,
        };
        Self {
            fifth,
            early,
            waits: early,
            late: now + fifth * 4,
        }
    }
}

impl Leaving {
    /// An attempt that begins now, and goes on.
    pub(super) fn new(context: &ExecutionContext) -> Self {
        let time = context.deadline();
        Self {
            came_further: false,
            is_durable: false,
            time: time.map(|deadline| Time::new(context, deadline)),
            how: None,
        }
    }

    /// Resolves when what is still at work is waited for no longer.
    pub(super) async fn patience(&self) {
        match &self.how {
            Some(Leave::Fails { until, .. } | Leave::Yields { until: Some(until) }) => {
                sleep_until(*until).await;
            }
            Some(Leave::Yields { until: None }) | None => std::future::pending().await,
        }
    }

    /// Lets others begin beside what takes so long that the attempt cannot make way. A fifth of its time later they wait again.
    pub(super) fn goes_on_after_all(&mut self, now: Timestamp) {
        if let Some(Leave::Yields { until: Some(until) }) = &self.how
            && Instant::now() >= *until
        {
            self.how = None;
            if let Some(time) = &mut self.time {
                time.waits = now + time.fifth;
            }
        }
    }

    /// How the attempt makes way, if it does: it may have lost workers before it, or may not have the time for what begins.
    ///
    /// Only one that came further does. A run that loses its worker at the same step each time never does, and is given up.
    pub(super) fn makes_way(&self, now: Timestamp, is_at_work: bool) -> Option<Leave> {
        let time = self.time.as_ref()?;
        if !self.came_further || !self.is_durable || now < time.early {
            return None;
        }
        if !is_at_work || now >= time.late {
            return Some(Leave::Yields { until: None });
        }
        let until = Some(Instant::now() + time.fifth / 4);
        (now >= time.waits).then_some(Leave::Yields { until })
    }
}

/// What all of these come to. After an error that may pass the others have their time to end as well, so that what they come
/// to is kept.
pub(super) async fn all_end<T>(
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
        let has_ended = within(SIBLINGS, others).await.is_some();
        let code = code_of(&error);
        tracing::debug!(code, has_ended, "an agent that another agent asked failed");
    }
    Err(error)
}
