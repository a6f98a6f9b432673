//! Which jobs go on although nobody waits for them any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::watch;

/// Jobs whose callers are gone. Who reads waits for them, so that the store is as before such a job or as after it,
/// and stays that.
#[derive(Clone, Debug)]
pub(super) struct Progress(watch::Sender<usize>);

impl Default for Progress {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Progress {
    /// Waits until what was done for callers that are gone is there to be read, or never will be.
    pub(super) async fn settled(&self) {
        if *self.0.borrow() > 0 {
            // The sender is in here, so there is always one to wait for.
            drop(self.0.subscribe().wait_for(|left| *left == 0).await);
        }
    }

    /// A caller that waits for a job, and the job.
    pub(super) fn begin(&self) -> (Waiting, Working) {
        let (fate, progress) = (Arc::new(AtomicU8::new(GOES_ON)), self.clone());
        let working = Working {
            fate: Arc::clone(&fate),
            progress: self.clone(),
        };
        (Waiting { fate, progress }, working)
    }
}

const GOES_ON: u8 = 0;
const LEFT: u8 = 1;
const ENDED: u8 = 2;

/// Lives as long as a caller waits.
pub(super) struct Waiting {
    fate: Arc<AtomicU8>,
    progress: Progress,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.fate.load(Ordering::SeqCst) == ENDED {
            return;
        }
        // Counted before the job can end: it takes away only what it sees.
        self.progress.0.send_modify(|left| *left += 1);
        let left = self
            .fate
            .compare_exchange(GOES_ON, LEFT, Ordering::SeqCst, Ordering::SeqCst);
        if left.is_err() {
            self.progress.0.send_modify(|left| *left -= 1);
        }
    }
}

/// Lives as long as a job does.
pub(super) struct Working {
    fate: Arc<AtomicU8>,
    progress: Progress,
}

impl Drop for Working {
    fn drop(&mut self) {
        if self.fate.swap(ENDED, Ordering::SeqCst) == LEFT {
            self.progress.0.send_modify(|left| *left -= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_reads_waits_for_a_job_whose_caller_went_and_for_no_other() {
        let progress = Progress::default();
        let (waiting, working) = progress.begin();
        progress.settled().await;

        drop(waiting);

        assert!(futures::poll!(std::pin::pin!(progress.settled())).is_pending());
        drop(working);
        progress.settled().await;
        let (waiting, working) = progress.begin();
        drop(working);
        drop(waiting);
        progress.settled().await;
    }
}
