//! Progress of the SQLite writer's transactions, and jobs (store operations) that continue although their callers no longer wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tokio::sync::watch;

/// State of the SQLite writer's transactions. Event subscribers, and callers that wait for a transaction, read this state.
#[derive(Debug)]
pub(super) struct Progress {
    /// Number of the last transaction that the SQLite writer started.
    begun: AtomicU64,
    /// Number of the last transaction with an abandoned job: a store operation whose caller no longer waits. Each read waits until this
    /// transaction has ended.
    left: AtomicU64,
    /// Number of the last transaction of the SQLite writer that ended.
    ended: watch::Sender<u64>,
    /// Number of the last transaction of the SQLite writer that wrote events.
    pub(super) announced: watch::Sender<u64>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            begun: AtomicU64::new(0),
            left: AtomicU64::new(0),
            ended: watch::Sender::new(0),
            announced: watch::Sender::new(0),
        }
    }
}

impl Progress {
    /// Waits until the writer's transactions with abandoned jobs (store operations) have ended.
    pub(super) async fn settled(&self) {
        let left = self.left.load(Ordering::SeqCst);
        if *self.ended.borrow() < left {
            let mut ended = self.ended.subscribe();
            // `self` holds the sender, so the channel stays open.
            drop(ended.wait_for(|ended| *ended >= left).await);
        }
    }

    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.ended.send_replace(self.begun.load(Ordering::SeqCst));
    }

    /// Returns `true` if the SQLite writer runs no transaction.
    pub(super) fn is_idle(&self) -> bool {
        *self.ended.borrow() == self.begun.load(Ordering::SeqCst)
    }

    pub(super) fn announce(&self) {
        self.announced
            .send_replace(self.begun.load(Ordering::SeqCst));
    }

    fn leave(&self) {
        let begun = self.begun.load(Ordering::SeqCst);
        self.left.fetch_max(begun, Ordering::SeqCst);
    }
}

/// State of a job (store operation) of the SQLite writer: waiting, started, or abandoned by its caller.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate(Arc<AtomicU8>);

const WAITS: u8 = 0;
const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Fate {
    /// Marks the job (store operation) as started. Returns `false` if its caller has abandoned it.
    pub(super) fn begin(&self) -> bool {
        let begun = self
            .0
            .compare_exchange(WAITS, BEGUN, Ordering::SeqCst, Ordering::SeqCst);
        begun.is_ok()
    }

    /// Abandons the job (store operation) of a caller that no longer waits. Returns `true` if it had started.
    fn give_up(&self) -> bool {
        self.0.swap(GIVEN_UP, Ordering::SeqCst) == BEGUN
    }
}

/// Guard that lives as long as the caller of a store operation waits for its result. If the caller stops waiting, a job that has not
/// started never runs, and reads wait for the transaction of a job that has started. So reads see the state before or after the job, and
/// that state remains.
pub(super) struct Watcher<'p> {
    fate: Option<Fate>,
    progress: &'p Progress,
}

impl<'p> Watcher<'p> {
    pub(super) fn begin(fate: Fate, progress: &'p Progress) -> Self {
        Self {
            fate: Some(fate),
            progress,
        }
    }

    /// Records that the caller of the store operation has received the result.
    pub(super) fn end(&mut self) {
        self.fate = None;
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let Some(fate) = &self.fate else { return };
        if fate.give_up() {
            self.progress.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_waits_for_a_started_job_without_a_caller() {
        let progress = Progress::default();
        let fate = Fate::default();
        let waiting = Watcher::begin(fate.clone(), &progress);
        progress.settled().await;

        progress.begin();
        assert!(fate.begin());
        drop(waiting);

        assert!(futures::poll!(std::pin::pin!(progress.settled())).is_pending());
        progress.end();
        progress.settled().await;
    }
}
