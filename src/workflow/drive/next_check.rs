//! Times at which a flow run polls the store for answers and control orders.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Interval between two polls of the store for answers to a flow run and control orders to it (cancel, pause and resume), while
/// steps run. Applies to a run that no runtime notifies of new breadcrumbs.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Longest interval between two polls of the store for a flow run that receives notifications. A poll is needed because a notification can
/// be lost.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Shortest interval between two polls of the store for a flow run, which limits the number of queries when many steps start to
/// wait one after another.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The time of a flow run's next poll of the store for answers and control orders.
pub(super) struct NextCheck {
    /// Time of the next poll, used only if no runtime notifies the run of answers and control orders.
    at: Instant,
    /// Future that ends when a runtime notifies the flow run of an answer to a step or of a control order (cancel, pause or
    /// resume). `None` if no runtime notifies the run.
    announced: Option<BoxFuture<'static, ()>>,
}

impl NextCheck {
    /// Schedules the first poll of the store for answers and control orders after [`POLL_INTERVAL`].
    pub(super) fn new() -> Self {
        Self {
            at: Instant::now() + POLL_INTERVAL,
            announced: None,
        }
    }

    /// Schedules the next poll of the store after [`POLL_INTERVAL`], and no longer waits for notifications of a runtime.
    pub(super) fn reset(&mut self) {
        *self = Self::new();
    }

    /// Sets the future that ends when a runtime notifies the flow run of an answer to a step or of a control order (cancel, pause
    /// or resume).
    pub(super) fn follow(&mut self, announced: Option<BoxFuture<'static, ()>>) {
        self.announced = announced;
    }

    /// Schedules an early poll of the store after a step has started to wait, because the answer to this step may already exist.
    pub(super) fn soon(&mut self) {
        self.announced = None;
        self.at = self.at.min(Instant::now() + MIN_POLL_INTERVAL);
    }

    /// Waits until the next poll for answers and control orders is due: after a notification by a runtime, or else at the
    /// scheduled time.
    pub(super) async fn due(&mut self) {
        match &mut self.announced {
            Some(announced) => announced.await,
            None => sleep_until(self.at).await,
        }
    }

    /// Returns `true` if the next poll for answers and control orders is due.
    pub(super) fn is_due(&mut self) -> bool {
        match &mut self.announced {
            Some(announced) => announced.now_or_never().is_some(),
            None => self.at <= Instant::now(),
        }
    }
}

/// Returns the delay after which a flow run polls even without a notification. The run polls when its first wait times out, but not before
/// [`MIN_POLL_INTERVAL`] and not after [`MAX_POLL_INTERVAL`].
pub(super) fn fallback_timeout(first_timeout: Option<Duration>) -> Duration {
    first_timeout.map_or(MAX_POLL_INTERVAL, |left| {
        left.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
    })
}
