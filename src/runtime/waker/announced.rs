//! Reads of breadcrumbs that events announced and that may answer open `wait_for` calls or wake suspended runs.

use super::JobResult;
use crate::model::Event;
use crate::runtime::store_context::StoreContext;
use crate::runtime::suspended::wake;
use crate::runtime::timeouts::with_timeout;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// A breadcrumb version that an event announced and that may answer open `wait_for` calls or wake suspended runs.
pub(in crate::runtime) struct AnnouncedBreadcrumb {
    /// The event that announced the breadcrumb version, without its context.
    pub(in crate::runtime) event: Event,
    pub(in crate::runtime) waits: Vec<u64>,
    /// If `true`, the breadcrumb version may wake suspended runs.
    pub(in crate::runtime) may_wake: bool,
    /// Number of reads in which the store did not return the announced breadcrumb version.
    pub(in crate::runtime) rounds: u32,
}

impl AnnouncedBreadcrumb {
    /// Removes the ended `wait_for` calls from the calls that need this announced breadcrumb. Returns `true` if an open call is
    /// left, or if the breadcrumb may wake a suspended run.
    pub(super) fn is_needed(&mut self, store_context: &StoreContext) -> bool {
        self.waits.retain(|wait| store_context.waits.is_open(*wait));
        self.may_wake = self.may_wake && store_context.wakes.concerns(&self.event);
        !self.waits.is_empty() || self.may_wake
    }

    /// Removes the suspended runs that the breadcrumb may wake, so that the next check of all suspended runs adds them again.
    pub(in crate::runtime) fn forget_suspended(&self, store_context: &StoreContext) {
        if self.may_wake {
            store_context.wakes.forget_concerned(&self.event);
        }
    }
}

/// Reads the breadcrumb that an event announced. Passes the breadcrumb to the `wait_for` calls and suspended runs that wait
/// for it.
pub(super) async fn read_announced(
    store_context: Arc<StoreContext>,
    mut announced: AnnouncedBreadcrumb,
) -> JobResult {
    const TRIES: u32 = 4;
    let mut pause = Duration::from_millis(100);
    let reads_own_writes = store_context.store().capabilities().reads_own_writes;
    for _ in 0..TRIES {
        match with_timeout(store_context.store().get(announced.event.breadcrumb_id)).await {
            Ok(found) if found.version >= announced.event.version || reads_own_writes => {
                store_context.waits.answer(&announced.waits, &found);
                if announced.may_wake {
                    for candidate in store_context.wakes.concerned(&found) {
                        wake(&store_context, &candidate, &found).await;
                    }
                }
                return JobResult::Finished;
            }
            Err(StoreError::NotFound { .. }) if reads_own_writes => return JobResult::Finished,
            // The version is not visible in the store.
            Ok(_) | Err(StoreError::NotFound { .. }) => announced.rounds += 1,
            // The store is unavailable.
            Err(_) => {}
        }
        sleep(pause).await;
        pause *= 2;
    }
    JobResult::Deferred(announced)
}
