//! Detection of an idle runtime under test, and of the runs that keep a runtime busy.

use super::TestError;
use super::deadline::Deadline;
use crate::runtime::Runtime;
use crate::source::{EventSource as _, StartAt};
use crate::store::{
    BreadcrumbStore as _, MemoryStore, Moment, Query, Run, RunLedger as _, RunQuery, RunState,
    StoreError,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Maximum number of calls of the test store in one wait for an idle runtime.
const MAX_STORE_CALLS: u64 = 1_000_000;

/// Number of a test store's calls, with a notification of each call. Every change of a run's state is a call.
#[derive(Debug, Default)]
pub(super) struct Activity {
    calls: AtomicU64,
    called: Notify,
}

impl Activity {
    /// Records the start or the end of a call of the test store.
    pub(super) fn note(&self, moment: Moment) {
        if moment == Moment::Before {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
        self.called.notify_waiters();
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Limits of a test's wait until a runtime is idle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum wait until the runtime is idle, by tokio's clock.
    pub(super) time: Duration,
    /// Maximum wait until the runtime is idle, by the machine's clock.
    pub(super) real_time: Duration,
}

/// The wait of a test until a runtime is idle.
pub(super) struct IdleWatch<'w> {
    store: &'w MemoryStore,
    activity: &'w Activity,
    runtime: &'w Runtime,
    began: Instant,
    calls_before: u64,
}

impl<'w> IdleWatch<'w> {
    pub(super) fn new(
        store: &'w MemoryStore,
        activity: &'w Activity,
        runtime: &'w Runtime,
    ) -> Self {
        Self {
            store,
            activity,
            runtime,
            began: Instant::now(),
            calls_before: activity.calls(),
        }
    }

    /// Waits until the runtime under test is idle. The check runs after each store call and each handled event. This task is ready then, so
    /// tokio does not move a paused clock before the check.
    ///
    /// # Errors
    /// [`TestError::Store`].
    pub(super) async fn wait_idle(&self) -> Result<(), TestError> {
        loop {
            // The notifications are created before the check, so that they also report a change during the check.
            let called = self.activity.called.notified();
            let handled = self.runtime.next_handled();
            if self.is_idle().await? {
                return Ok(());
            }
            tokio::select! {
                () = called => {}
                () = handled => {}
            }
        }
    }

    /// Returns `true` if the runtime has handled every event of the store, and its executors have no run that is due, running or ready
    /// to resume.
    async fn is_idle(&self) -> Result<bool, TestError> {
        let events = self.store.events().subscribe(StartAt::Now).await;
        let newest = events.map_err(TestError::of_source)?.start();
        Ok(self.runtime.has_handled(newest) && self.busy_runs().await?.is_empty())
    }

    /// Waits until a limit of the wait for an idle runtime has passed.
    ///
    /// # Errors
    /// [`TestError::Thread`].
    pub(super) async fn wait_for_limit(&self, limits: Limits) -> Result<(), TestError> {
        let deadline = Deadline::after(limits.real_time)?;
        let calls = async {
            loop {
                let called = self.activity.called.notified();
                if self.calls() >= MAX_STORE_CALLS {
                    return;
                }
                called.await;
            }
        };
        tokio::select! {
            () = calls => {}
            () = sleep(limits.time) => {}
            () = deadline.expired() => {}
        }
        Ok(())
    }

    /// Returns the error of a runtime under test that is not idle within the limits.
    pub(super) async fn not_idle_error(&self) -> TestError {
        match self.busy_runs().await {
            Ok(runs) => TestError::NotIdle {
                clock: self.began.elapsed(),
                calls: self.calls(),
                runs,
            },
            Err(error) => error,
        }
    }

    /// Returns the number of store calls since the start of the wait for an idle runtime.
    fn calls(&self) -> u64 {
        self.activity.calls() - self.calls_before
    }

    /// Returns the runs of the runtime's executors that are due or running. Suspended runs whose answer is in the store are included,
    /// because the runtime is about to wake them.
    async fn busy_runs(&self) -> Result<Vec<Run>, TestError> {
        let executors = self.runtime.executors();
        let paused = self.store.paused_executors().await;
        let paused = paused.map_err(TestError::of_store)?;
        let is_paused = |run: &Run| paused.iter().any(|one| one.executor == run.run.executor);
        let open = open_runs(self.store).await;
        let open = open.map_err(TestError::of_store)?;
        // Of the open runs with one ordering key, only the oldest can start.
        let mut keys = HashSet::new();
        let mut busy = Vec::new();
        for run in open {
            let is_first = match &run.run.order {
                Some(key) => keys.insert((Arc::clone(&run.run.executor), Arc::clone(key))),
                None => true,
            };
            if !executors.contains(&run.run.executor) {
                continue;
            }
            let is_busy = match run.state {
                RunState::Running => true,
                RunState::Ready => is_first && run.due_for.is_some() && !is_paused(&run),
                RunState::Suspended => {
                    let has_answer = has_answer(self.store, &run).await;
                    has_answer.map_err(TestError::of_store)?
                }
                RunState::Done | RunState::Failed | RunState::Skipped | RunState::Superseded => {
                    false
                }
            };
            if is_busy {
                busy.push(run);
            }
        }
        Ok(busy)
    }
}

/// Returns the runs of a store that are not over, the oldest first.
pub(super) async fn open_runs(store: &MemoryStore) -> Result<Vec<Run>, StoreError> {
    let mut query = RunQuery::all()
        .state(RunState::Ready)
        .state(RunState::Running)
        .state(RunState::Suspended)
        .limit(RunQuery::MAX_LIMIT);
    let mut open = Vec::new();
    loop {
        let page = store.runs_page(&query).await?;
        open.extend(page.runs);
        match page.next {
            Some(next) => query = query.after(next),
            None => break,
        }
    }
    open.reverse();
    Ok(open)
}

/// Returns `true` if the store has a breadcrumb that wakes the suspended run `run`.
async fn has_answer(store: &MemoryStore, run: &Run) -> Result<bool, StoreError> {
    let (Some(wake), Some(suspended_at)) = (&run.wake, run.suspended_at) else {
        return Ok(false);
    };
    let since = wake.since.unwrap_or(suspended_at);
    let after = since.min(suspended_at);
    for selector in &wake.selectors {
        let query = Query::new(selector.clone()).after(after).limit(1);
        if !store.search(&query).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
