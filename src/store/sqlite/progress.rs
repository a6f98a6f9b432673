//! How far the writer is, and who has stopped waiting for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tokio::sync::watch;

/// What became of the transactions, for those who wait for one or want to know of all.
#[derive(Debug)]
pub(super) struct Progress {
    /// The number of the last transaction that was begun.
    begun: AtomicU64,
    /// The last transaction that a caller went away from, which has to end before anybody reads.
    left: AtomicU64,
    /// The last transaction that ended.
    ended: watch::Sender<u64>,
    /// The last transaction with events.
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
    /// Waits until what was done for callers that are gone is there to be read, or never will be.
    pub(super) async fn settled(&self) {
        let left = self.left.load(Ordering::SeqCst);
        if *self.ended.borrow() < left {
            let mut ended = self.ended.subscribe();
            // The sender is in here, so there is always one to wait for.
            drop(ended.wait_for(|ended| *ended >= left).await);
        }
    }

    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.ended.send_replace(self.begun.load(Ordering::SeqCst));
    }

    /// Returns `true` if no transaction is running.
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

/// Whether a job waits, was begun, or will not be done because its caller is gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate(Arc<AtomicU8>);

const WAITS: u8 = 0;
const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Fate {
    /// Whether the job is still wanted. From then on it is done.
    pub(super) fn begin(&self) -> bool {
        let begun = self
            .0
            .compare_exchange(WAITS, BEGUN, Ordering::SeqCst, Ordering::SeqCst);
        begun.is_ok()
    }

    /// Gives the job up, and says whether it had begun.
    fn give_up(&self) -> bool {
        self.0.swap(GIVEN_UP, Ordering::SeqCst) == BEGUN
    }
}

/// Lives as long as a caller waits: a job whose caller goes is either not begun at all, or its transaction ends before
/// anybody reads. So the store is as before the job or as after it, and stays that.
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

    /// The answer is there.
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
    async fn who_reads_waits_for_a_job_whose_caller_went_when_it_had_begun() {
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
