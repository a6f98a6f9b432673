//! Progress of the SQLite writer's transactions, and jobs (store operations) that continue although their callers no longer wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tokio::sync::watch;

/// State of the SQLite writer's transactions. Event subscribers, and callers that wait for a transaction, read this state.
#[derive(Debug)]
pub(super) struct Progress {
    /// Number of the last transaction that the SQLite writer started.
    started: AtomicU64,
    /// Number of the last transaction with an abandoned job: a store operation whose caller no longer waits. Each read waits until this
    /// transaction has ended.
    abandoned: AtomicU64,
    /// Number of the last transaction of the SQLite writer that ended.
    ended: watch::Sender<u64>,
    /// Number of the last transaction of the SQLite writer that wrote events.
    pub(super) announced: watch::Sender<u64>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            started: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            ended: watch::Sender::new(0),
            announced: watch::Sender::new(0),
        }
    }
}

impl Progress {
    /// Waits until the writer's transactions with abandoned jobs have ended: store operations whose callers no longer wait.
    pub(super) async fn wait_for_abandoned_jobs(&self) {
        let abandoned = self.abandoned.load(Ordering::SeqCst);
        if *self.ended.borrow() < abandoned {
            let mut ended = self.ended.subscribe();
            // `self` holds the sender, so the channel stays open.
            drop(ended.wait_for(|ended| *ended >= abandoned).await);
        }
    }

    pub(super) fn begin(&self) {
        self.started.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.ended.send_replace(self.started.load(Ordering::SeqCst));
    }

    /// Returns `true` if the SQLite writer runs no transaction.
    pub(super) fn is_idle(&self) -> bool {
        *self.ended.borrow() == self.started.load(Ordering::SeqCst)
    }

    pub(super) fn announce(&self) {
        self.announced
            .send_replace(self.started.load(Ordering::SeqCst));
    }

    fn record_abandoned(&self) {
        let started = self.started.load(Ordering::SeqCst);
        self.abandoned.fetch_max(started, Ordering::SeqCst);
    }
}

/// State of a job (store operation) of the SQLite writer: waiting, started, or abandoned by its caller.
#[derive(Clone, Debug, Default)]
pub(super) struct JobState(Arc<AtomicU8>);

const STATE_QUEUED: u8 = 0;
const STATE_STARTED: u8 = 1;
const STATE_ABANDONED: u8 = 2;

impl JobState {
    /// Marks the job (store operation) as started. Returns `false` if its caller has abandoned it.
    pub(super) fn start(&self) -> bool {
        let started = self.0.compare_exchange(
            STATE_QUEUED,
            STATE_STARTED,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        started.is_ok()
    }

    /// Records that the caller of this job (store operation) no longer waits, so that the job does not run if it has not started.
    /// Returns `true` if it had started.
    fn abandon(&self) -> bool {
        self.0.swap(STATE_ABANDONED, Ordering::SeqCst) == STATE_STARTED
    }
}

/// Guard that lives as long as the caller of a store operation waits for its result. If the caller stops waiting, a job that has not
/// started never runs, and reads wait for the transaction of a job that has started. So reads see the state before or after the job, and
/// that state remains.
pub(super) struct CallerGuard<'p> {
    state: Option<JobState>,
    progress: &'p Progress,
}

impl<'p> CallerGuard<'p> {
    pub(super) fn new(state: JobState, progress: &'p Progress) -> Self {
        Self {
            state: Some(state),
            progress,
        }
    }

    /// Records that the caller of the store operation has received the result.
    pub(super) fn received(&mut self) {
        self.state = None;
    }
}

impl Drop for CallerGuard<'_> {
    fn drop(&mut self) {
        let Some(state) = &self.state else { return };
        if state.abandon() {
            self.progress.record_abandoned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_waits_for_a_started_job_without_a_caller() {
        let progress = Progress::default();
        let state = JobState::default();
        let caller_guard = CallerGuard::new(state.clone(), &progress);
        progress.wait_for_abandoned_jobs().await;

        progress.begin();
        assert!(state.start());
        drop(caller_guard);

        assert!(futures::poll!(std::pin::pin!(progress.wait_for_abandoned_jobs())).is_pending());
        progress.end();
        progress.wait_for_abandoned_jobs().await;
    }
}
