//! Sweep for triggers from the newest breadcrumb to the oldest, with one query for each selector. Used for stores that list only their
//! newest breadcrumbs quickly.

use super::super::checkpoint::SweepOutcome;
use super::{ListPosition, PageReceiver, SweepDecision, position_after, without};
use crate::model::{Breadcrumb, BreadcrumbId, Selector, Timestamp};
use crate::runtime::page_size::PageSize;
use crate::runtime::position::Range;
use crate::runtime::timeouts::with_search_timeout;
use crate::store::{BreadcrumbStore, PartialSearch, Query, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// List of the breadcrumbs that match one selector, with the position down to which a sweep has read the list.
struct SelectorList {
    selector: Selector,
    /// Position down to which a sweep of the store has read the list, from the newest breadcrumb to the oldest. `None` at the end
    /// of the interval.
    before: Option<ListPosition>,
}

impl SelectorList {
    /// Returns the time down to which a sweep of the store has read this list of breadcrumbs.
    fn read_to(&self) -> Option<Timestamp> {
        self.before.map(|(time, ..)| time)
    }
}

/// Read progress of a sweep of the store within one interval of commit time: one breadcrumb list per selector.
struct Interval {
    lists: Vec<SelectorList>,
    after: Timestamp,
    to: Timestamp,
    /// Update times of the unreadable breadcrumbs in the interval. The store cannot read these breadcrumbs now.
    unread: Vec<Timestamp>,
}

impl Interval {
    fn new(selectors: &[Selector], (after, to): Range) -> Self {
        let list = |selector: &Selector| SelectorList {
            selector: selector.clone(),
            before: Some(position_after(to)),
        };
        Self {
            lists: selectors.iter().map(list).collect(),
            after,
            to,
            unread: Vec::new(),
        }
    }

    /// Returns the next page of the breadcrumb list in which the sweep has advanced the least. The page is ordered newest first. Returns
    /// `None` at the end of all lists.
    async fn page(
        &mut self,
        store: &dyn BreadcrumbStore,
        page_size: &mut PageSize,
    ) -> Result<Option<Vec<Arc<Breadcrumb>>>, StoreError> {
        let list = self.lists.iter_mut().max_by_key(|list| list.before);
        let Some((list, before)) = list.and_then(|list| list.before.map(|before| (list, before)))
        else {
            return Ok(None);
        };
        let part = page(store, list, before, self.after, page_size).await?;
        list.before = part.next;
        self.unread.extend(part.unread);
        Ok(Some(part.found))
    }

    /// Returns the parts of the interval whose breadcrumbs have been read completely.
    fn read_ranges(&self, now: Timestamp) -> Vec<Range> {
        // The next page may contain breadcrumbs with exactly this time.
        let read_to = self.lists.iter().filter_map(SelectorList::read_to).max();
        // A breadcrumb with a future time must not mark the time until then as read.
        let range = (
            read_to.unwrap_or(self.after).max(self.after),
            self.to.min(now),
        );
        without(range, &self.unread)
    }
}

/// Searches some time intervals for breadcrumbs that match the selectors, and passes them to `receiver`, the newest page first.
/// Stops between two pages after a time limit, so that the caller can start again with newer breadcrumbs. Each sweep reads at
/// least one page of an older interval, so that new breadcrumbs cannot delay older ones forever.
pub(super) async fn sweep(
    store: &dyn BreadcrumbStore,
    selectors: &[Selector],
    mut ranges: Vec<Range>,
    (limit, now): (Duration, Timestamp),
    page_size: &mut PageSize,
    receiver: &mut impl PageReceiver,
) -> Result<SweepOutcome, StoreError> {
    /// Maximum number of breadcrumbs that the store cannot read in one sweep. With more, the store itself fails, and the next
    /// sweep has to wait.
    const MAX_UNREAD: usize = 64;
    let began = Instant::now();
    let (mut unread, mut is_late) = (0, false);
    while let Some(range) = ranges.pop() {
        let mut interval = Interval::new(selectors, range);
        while let Some(mut page) = interval.page(store, page_size).await? {
            page.reverse();
            match receiver.receive(page, &interval.read_ranges(now)).await? {
                SweepDecision::Continue if is_late => break,
                SweepDecision::Continue => {}
                SweepDecision::Stop => return Ok(SweepOutcome::Incomplete),
            }
            if began.elapsed() > limit || unread + interval.unread.len() > MAX_UNREAD {
                ranges = widest(&ranges).into_iter().collect();
                is_late = true;
                break;
            }
        }
        unread += interval.unread.len();
    }
    Ok(match unread {
        0..=MAX_UNREAD if is_late => SweepOutcome::Incomplete,
        0 => SweepOutcome::All,
        _ => SweepOutcome::Unread,
    })
}

/// Returns the longest of the given intervals of time.
fn widest(ranges: &[Range]) -> Option<Range> {
    let length = |(after, to): &Range| to.as_micros().saturating_sub(after.as_micros());
    ranges.iter().copied().max_by_key(length)
}

/// Reads the next page of breadcrumbs that match a selector, from a position in the list towards older breadcrumbs.
async fn page(
    store: &dyn BreadcrumbStore,
    list: &SelectorList,
    before: ListPosition,
    after: Timestamp,
    page_size: &mut PageSize,
) -> Result<ListPage, StoreError> {
    loop {
        let limit = page_size.get();
        let query = Query::new(list.selector.clone())
            .limit(limit)
            .before(before)
            .after(after);
        let began = Instant::now();
        match with_search_timeout(store.search(&query)).await {
            Ok(found) => {
                page_size.adapt_to(began.elapsed());
                let oldest = found.last().map(|oldest| oldest.order_key());
                return Ok(ListPage {
                    next: oldest.filter(|_| found.len() >= limit),
                    found,
                    unread: Vec::new(),
                });
            }
            // The store limits its own time, and returns the part that it has read.
            Err(StoreError::Partial(part)) => return Ok(ListPage::of(*part, before)),
            Err(StoreError::TooFar { .. }) if limit == 1 => {
                tracing::warn!(time = %before.0, "cannot find the missed triggers before the logged time, because the store would have \
                    to read too many breadcrumbs; these triggers are skipped");
                return Ok(ListPage::default());
            }
            Err(StoreError::TooFar { .. }) => page_size.set_to_one(),
            Err(error) => {
                page_size.note_failure();
                return Err(error);
            }
        }
    }
}

/// A page of breadcrumbs that match a selector, newest first. It is incomplete if the store stopped the search early.
#[derive(Default)]
struct ListPage {
    found: Vec<Arc<Breadcrumb>>,
    next: Option<ListPosition>,
    unread: Vec<Timestamp>,
}

impl ListPage {
    fn of(part: PartialSearch, before: ListPosition) -> Self {
        Self {
            next: part.next.map(|next| next_position(before, next)),
            found: part.found,
            unread: part.unread,
        }
    }
}

/// Returns the list position at which the next page of breadcrumbs of the sweep starts. This position is always older than
/// `before`, the start of the last page, so that the sweep makes progress.
fn next_position(before: ListPosition, next: ListPosition) -> ListPosition {
    if next < before {
        return next;
    }
    let (time, version, id) = before;
    tracing::warn!(%time, "cannot find missed triggers among the breadcrumbs of one update time, because there are too many; some triggers are skipped");
    let is_whole_time = (version, id) == (0, BreadcrumbId::NIL);
    let time = if is_whole_time {
        time.just_before()
    } else {
        time
    };
    (time, 0, BreadcrumbId::NIL)
}

#[cfg(test)]
mod tests;
