//! Detection of executors that block a thread of the async runtime.
//!
//! A separate thread inspects the polls in progress, because a blocked async runtime polls no task that could report the problem.

use crate::error::Chain;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time after which one poll of an executor's future counts as blocking its thread.
const LIMIT: Duration = Duration::from_secs(5);

/// Detector of executors whose polls block a thread. Dropping it ends its thread.
#[derive(Debug)]
pub(super) struct Watchdog(Arc<WatchdogState>);

#[derive(Debug)]
struct WatchdogState {
    limit: Duration,
    polls: Mutex<HashMap<u64, RunningPoll, RandomState>>,
    next: AtomicU64,
    ended: Mutex<bool>,
    wake: Condvar,
}

/// A poll of an executor's future in progress.
#[derive(Debug)]
struct RunningPoll {
    executor: Arc<str>,
    since: Instant,
    /// If `true`, a log line has reported that the poll blocks its thread.
    logged: bool,
}

impl Watchdog {
    /// Starts the thread that detects blocking executors. If the system refuses a thread, a warning is logged and no poll is logged as
    /// blocking.
    pub(super) fn start() -> Self {
        Self::with_limit(LIMIT)
    }

    fn with_limit(limit: Duration) -> Self {
        let state = Arc::new(WatchdogState {
            limit,
            polls: Mutex::default(),
            next: AtomicU64::new(0),
            ended: Mutex::new(false),
            wake: Condvar::new(),
        });
        let watched = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("ux-watchdog".to_owned());
        if let Err(error) = thread.spawn(move || watched.watch()) {
            tracing::warn!(error = %Chain(&error), "cannot start the thread that detects blocking executors; blocking executors are not reported");
        }
        Self(state)
    }

    /// Polls an executor's future to completion, and watches each poll for blocking.
    pub(super) async fn watch<T>(&self, executor: &Arc<str>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let _poll = self.0.begin(executor);
            work.as_mut().poll(context)
        })
        .await
    }

    /// Returns the executors that block a thread now, with the time since the start of the poll.
    pub(super) fn blocking(&self) -> Vec<(Arc<str>, Duration)> {
        let polls = lock(&self.0.polls);
        let blocking = polls.values().filter_map(|poll| {
            let time = poll.since.elapsed();
            (time >= self.0.limit).then(|| (Arc::clone(&poll.executor), time))
        });
        blocking.collect()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *lock(&self.0.ended) = true;
        self.0.wake.notify_all();
    }
}

impl WatchdogState {
    fn begin(&self, executor: &Arc<str>) -> PollGuard<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let running_poll = RunningPoll {
            executor: Arc::clone(executor),
            since: Instant::now(),
            logged: false,
        };
        lock(&self.polls).insert(number, running_poll);
        PollGuard {
            state: self,
            number,
        }
    }

    /// Returns the executors whose current poll exceeds the time limit and was not logged yet, with the duration of each poll.
    fn newly_blocking(&self) -> Vec<(Arc<str>, Duration)> {
        let mut polls = lock(&self.polls);
        let newly = polls.values_mut().filter_map(|poll| {
            let time = poll.since.elapsed();
            let is_new = time >= self.limit && !std::mem::replace(&mut poll.logged, true);
            is_new.then(|| (Arc::clone(&poll.executor), time))
        });
        newly.collect()
    }

    /// Logs each executor poll that exceeds the time limit, until the watchdog is dropped.
    fn watch(&self) {
        let mut ended = lock(&self.ended);
        while !*ended {
            let waited = self.wake.wait_timeout(ended, self.limit / 5);
            ended = waited.unwrap_or_else(PoisonError::into_inner).0;
            for (executor, time) in self.newly_blocking() {
                tracing::warn!(
                    executor = &*executor,
                    blocked_for = ?time,
                    "an executor blocks a thread of the async runtime, which stops other runs and heartbeats; \
                     use async calls, or `tokio::task::spawn_blocking`"
                );
            }
        }
    }
}

/// A guard of a poll of an executor's future in progress.
struct PollGuard<'s> {
    state: &'s WatchdogState,
    number: u64,
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        lock(&self.state.polls).remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_poll_that_does_not_return_is_reported_until_it_does() {
        let watchdog = Watchdog::with_limit(Duration::from_millis(1));
        let (release, wait) = mpsc::channel::<()>();
        let (is_blocked, blocked) = mpsc::channel();
        std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                let executor: Arc<str> = "agent".into();
                let work = watchdog.watch(&executor, async move {
                    is_blocked.send(()).unwrap();
                    wait.recv().unwrap();
                });
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.unwrap().block_on(work);
            });
            blocked.recv().unwrap();
            while watchdog.blocking().is_empty() {
                std::thread::yield_now();
            }
            assert_eq!(&*watchdog.blocking()[0].0, "agent");
            release.send(()).unwrap();
            work.join().unwrap();
        });

        assert_eq!(watchdog.blocking(), []);
    }
}
