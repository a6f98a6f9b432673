//! Time limit by the machine's clock, which also passes while tokio's clock is paused.

use super::TestError;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;
use tokio::sync::Notify;

/// A thread that reports the end of a time limit. Dropping this handle ends the thread.
pub(super) struct Deadline {
    passed: Arc<Notify>,
    /// The thread waits until this sender is dropped, at most for the time limit.
    _alive: SyncSender<()>,
}

impl Deadline {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`TestError::Thread`] if the system refuses a thread.
    pub(super) fn after(limit: Duration) -> Result<Self, TestError> {
        let passed = Arc::new(Notify::new());
        let (alive, dropped) = mpsc::sync_channel::<()>(0);
        let notify = Arc::clone(&passed);
        let wait = move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                notify.notify_one();
            }
        };
        let thread = thread::Builder::new().name("ux-test-deadline".to_owned());
        match thread.spawn(wait) {
            Ok(_) => Ok(Self {
                passed,
                _alive: alive,
            }),
            Err(source) => Err(TestError::Thread { source }),
        }
    }

    /// Waits for the end of the time limit.
    pub(super) async fn passed(&self) {
        self.passed.notified().await;
    }
}
