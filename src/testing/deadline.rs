//! Time limit of a test, measured by the machine's clock. This clock also runs while tokio's clock is paused.

use super::TestError;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;
use tokio::sync::Notify;

/// A thread that reports the end of a test's time limit. Dropping this handle ends the thread.
pub(super) struct Deadline {
    expired: Arc<Notify>,
    /// Sender that ends the thread of the time limit early when the sender is dropped.
    _alive: SyncSender<()>,
}

impl Deadline {
    /// Starts the thread that reports the end of a test's time limit.
    ///
    /// # Errors
    /// [`TestError::Thread`] if the system refuses a thread.
    pub(super) fn after(limit: Duration) -> Result<Self, TestError> {
        let expired = Arc::new(Notify::new());
        let (alive, dropped) = mpsc::sync_channel::<()>(0);
        let notify = Arc::clone(&expired);
        let wait = move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                notify.notify_one();
            }
        };
        let thread = thread::Builder::new().name("ux-test-deadline".to_owned());
        match thread.spawn(wait) {
            Ok(_) => Ok(Self {
                expired,
                _alive: alive,
            }),
            Err(source) => Err(TestError::Thread { source }),
        }
    }

    /// Waits for the end of the test's time limit.
    pub(super) async fn expired(&self) {
        self.expired.notified().await;
    }
}
