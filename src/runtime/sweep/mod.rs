//! Sweep of the store for triggers whose events did not arrive. A lost event therefore delays a trigger, and the trigger is not lost.

mod newest;
mod oldest;
mod selectors;

use super::checkpoint::{OVERLAP, SweepOutcome};
use super::position::Range;
use super::progress::VersionKey;
use super::saved_position::{self, newest};
use super::shared::Shared;
use super::store_context::StoreContext;
use crate::bugs::planted;
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::store::{BreadcrumbStore, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// A breadcrumb that a sweep found in the store. Possibly no event announced the breadcrumb.
pub(super) struct SweptBreadcrumb {
    pub(super) breadcrumb: Arc<Breadcrumb>,
    page: Arc<PageProgress>,
}

impl SweptBreadcrumb {
    /// Records that the runtime's event intake has taken this breadcrumb from the sweep of the store. The intake calls this once
    /// [`Progress`](super::progress::Progress) tracks the breadcrumb, or at once if an event announced the breadcrumb before.
    pub(super) fn mark_taken(self) {
        self.page.count.fetch_add(1, Ordering::Release);
    }
}

impl Drop for SweptBreadcrumb {
    fn drop(&mut self) {
        self.page.finished.add_permits(1);
    }
}

/// Progress of the runtime's event intake through one page of breadcrumbs that a sweep of the store found.
struct PageProgress {
    /// Semaphore that gets one permit whenever the runtime's event intake takes or drops a breadcrumb of the sweep page.
    finished: Semaphore,
    /// Number of breadcrumbs that the runtime's event intake took from the sweep page.
    count: AtomicUsize,
}

/// Decision of a page receiver: continue or stop the sweep of the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SweepDecision {
    Continue,
    Stop,
}

/// Receiver of the pages of breadcrumbs that a sweep reads from the store.
pub(super) trait PageReceiver: Send {
    /// Receives one page of the breadcrumbs that a sweep found in the store, sorted from the oldest to the newest. After this
    /// page, the receiver has all breadcrumbs of the intervals `read`.
    fn receive(
        &mut self,
        page: Vec<Arc<Breadcrumb>>,
        read: &[Range],
    ) -> impl Future<Output = Result<SweepDecision, StoreError>> + Send;
}

/// Passes all breadcrumbs from the unread intervals of commit time to the runtime's intake, and saves the read position after
/// each page. Adds their number to `count`. If `overlaps` is `true`, the last [`OVERLAP`] before the position is read again.
///
/// # Errors
/// The errors of the store and of its ledger. The intake has received the pages before the error.
pub(super) async fn sweep(
    shared: &Shared,
    store_context: &StoreContext,
    sender: &mpsc::Sender<SweptBreadcrumb>,
    overlaps: bool,
    count: &mut usize,
) -> Result<SweepOutcome, StoreError> {
    // This planted mistake is tested without the sweep, which would find most of the lost deliveries.
    if planted("ack-first") {
        return Ok(SweepOutcome::All);
    }
    let store = store_context.store();
    saved_position::load_added(shared, store_context).await?;
    let generation = store_context.checkpoint.generation();
    let newest = newest(store).await?;
    let overlap = match overlaps && !shared.source_is_complete {
        true => OVERLAP,
        false => Duration::ZERO,
    };
    let ranges = store_context.checkpoint.to_read(newest, overlap);
    let mut intake = IntakeSender {
        shared,
        store_context,
        sender,
        generation,
        count,
    };
    let swept = match store.capabilities().oldest_first {
        true => {
            let mut next = SweepDecision::Continue;
            for range in ranges {
                if next == SweepDecision::Continue {
                    next = oldest::sweep(store, range, &mut intake).await?;
                }
            }
            match next {
                SweepDecision::Continue => SweepOutcome::All,
                SweepDecision::Stop => SweepOutcome::Incomplete,
            }
        }
        false => {
            let selectors = selectors::needed_selectors(shared, store_context);
            let limit = (shared.settings.reconcile, shared.now());
            let mut page_size = store_context.page_size();
            let swept = newest::sweep(
                store,
                &selectors,
                ranges,
                limit,
                &mut page_size,
                &mut intake,
            )
            .await;
            store_context.set_page_size(page_size);
            swept?
        }
    };
    if swept == SweepOutcome::All {
        store_context.checkpoint.note_sweep_complete(generation);
    }
    Ok(swept)
}

/// Passes all breadcrumbs that were committed after a time to `receiver`, oldest first. Returns the time of the newest breadcrumb.
///
/// # Errors
/// The store's errors.
pub(super) async fn read_since(
    store: &dyn BreadcrumbStore,
    after: Timestamp,
    receiver: &mut impl PageReceiver,
) -> Result<Timestamp, StoreError> {
    let newest = newest(store).await?;
    if newest > after {
        oldest::sweep(store, (after, newest), receiver).await?;
    }
    Ok(newest)
}

/// Receiver of sweep pages that passes their breadcrumbs to the event intake of the runtime.
struct IntakeSender<'s> {
    shared: &'s Shared,
    store_context: &'s StoreContext,
    sender: &'s mpsc::Sender<SweptBreadcrumb>,
    generation: u64,
    /// Number of breadcrumbs that the runtime's event intake has taken from the sweep of the store.
    count: &'s mut usize,
}

impl PageReceiver for IntakeSender<'_> {
    async fn receive(
        &mut self,
        page: Vec<Arc<Breadcrumb>>,
        read: &[Range],
    ) -> Result<SweepDecision, StoreError> {
        /// Maximum time for which a sweep of the store waits until the triggers of a page have runs in the ledger. The sweep then
        /// continues, and triggers without a run in the ledger stay unread.
        const ENQUEUE_TIMEOUT: Duration = Duration::from_secs(10);
        let keys: Vec<VersionKey> = page.iter().map(|one| VersionKey::of(one)).collect();
        if !self.send_page(page).await {
            return Ok(SweepDecision::Stop);
        }
        *self.count += keys.len();
        for range in read {
            if !self
                .store_context
                .checkpoint
                .mark_read(*range, self.generation)
            {
                return Ok(SweepDecision::Stop);
            }
        }
        // After a timeout, the saved position counts the open triggers as unread.
        drop(timeout(ENQUEUE_TIMEOUT, self.shared.progress.wait_handled(&keys)).await);
        saved_position::save(self.shared, self.store_context).await?;
        Ok(SweepDecision::Continue)
    }
}

impl IntakeSender<'_> {
    /// Returns `true` once the runtime's event intake has taken the whole page of breadcrumbs, and `false` if the runtime stops.
    async fn send_page(&self, page: Vec<Arc<Breadcrumb>>) -> bool {
        let all = page.len();
        let progress = Arc::new(PageProgress {
            finished: Semaphore::new(0),
            count: AtomicUsize::new(0),
        });
        for breadcrumb in page {
            let swept = SweptBreadcrumb {
                breadcrumb,
                page: Arc::clone(&progress),
            };
            if self.sender.send(swept).await.is_err() {
                return false;
            }
        }
        let most = u32::try_from(all).unwrap_or(u32::MAX);
        // This semaphore is never closed.
        drop(progress.finished.acquire_many(most).await);
        progress.count.load(Ordering::Acquire) == all
    }
}

/// A position of a breadcrumb in the order in which a store lists breadcrumbs: update time, version and ID.
type ListPosition = (Timestamp, u64, BreadcrumbId);

/// Removes the given timestamps from an interval of time, and returns the remaining intervals.
fn without((mut after, to): Range, moments: &[Timestamp]) -> Vec<Range> {
    let mut sorted: Vec<Timestamp> = moments.to_vec();
    sorted.sort_unstable();
    let mut ranges = Vec::with_capacity(sorted.len() + 1);
    for moment in sorted.into_iter().filter(|moment| *moment <= to) {
        if moment > after {
            ranges.push((after, moment.just_before()));
            after = moment;
        }
    }
    ranges.push((after, to));
    ranges.retain(|(after, to)| after < to);
    ranges
}

/// Returns the first position after all breadcrumbs with the update time `time`, in the order in which a store lists breadcrumbs.
fn position_after(time: Timestamp) -> ListPosition {
    let next = Timestamp::from_micros(time.as_micros().saturating_add(1));
    (next, 0, BreadcrumbId::NIL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_without_moments_has_everything_between_them() {
        let time = Timestamp::from_micros;
        let without = |range: (i64, i64), moments: &[i64]| -> Vec<(i64, i64)> {
            let moments: Vec<_> = moments.iter().copied().map(time).collect();
            let ranges = without((time(range.0), time(range.1)), &moments);
            let micros = |(after, to): Range| (after.as_micros(), to.as_micros());
            ranges.into_iter().map(micros).collect()
        };

        assert_eq!(without((10, 20), &[]), [(10, 20)]);
        assert_eq!(
            without((10, 20), &[15, 12, 12, 30, 5]),
            [(10, 11), (12, 14), (15, 20)]
        );
        assert_eq!(without((10, 20), &[11, 20, 10]), [(11, 19)]);
        assert_eq!(without((10, 11), &[11]), []);
    }
}
