//! A sweep of a store that reads the top of a list best: newest first, with one query for each selector.

use super::pace::Pace;
use super::{Next, Pages, just_after};
use crate::model::{Breadcrumb, BreadcrumbId, Selector, Timestamp};
use crate::runtime::position::Range;
use crate::runtime::shared::in_time_of_pages;
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The list of one selector while it is read.
struct List {
    selector: Selector,
    /// Older breadcrumbs are not read yet. `None` at the end of the interval.
    before: Option<(Timestamp, u64, BreadcrumbId)>,
}

impl List {
    /// The time down to which this list is read.
    fn read_to(&self) -> Option<Timestamp> {
        self.before.map(|(time, ..)| time)
    }
}

/// Passes everything that the selectors select in some intervals, newest first. Stops between two pages after a time limit, so
/// that the caller can start with breadcrumbs that are new in the meantime.
pub(super) async fn sweep(
    store: &dyn BreadcrumbStore,
    selectors: Vec<Selector>,
    ranges: Vec<Range>,
    (limit, now): (Duration, Timestamp),
    pages: &mut impl Pages,
) -> Result<Next, StoreError> {
    let began = Instant::now();
    let mut pace = Pace::default();
    let list = |selector| List {
        selector,
        before: None,
    };
    let mut lists: Vec<List> = selectors.into_iter().map(list).collect();
    for (after, to) in ranges.into_iter().rev() {
        for list in &mut lists {
            list.before = Some(just_after(to));
        }
        while let Some(list) = lists.iter_mut().max_by_key(|list| list.before)
            && list.before.is_some()
        {
            let mut page = page(store, list, after, &mut pace).await?;
            page.reverse();
            // Breadcrumbs of this very time may be on the next page.
            let read_to = lists.iter().filter_map(List::read_to).max();
            // A breadcrumb with a time from the future must not hide those that follow.
            let read = (read_to.unwrap_or(after).max(after), to.min(now));
            if let Next::Stop = pages.take(page, read).await? {
                return Ok(Next::Stop);
            }
            if began.elapsed() > limit {
                return Ok(Next::Stop);
            }
        }
    }
    Ok(Next::Continue)
}

/// The next page of a list, newest first.
async fn page(
    store: &dyn BreadcrumbStore,
    list: &mut List,
    after: Timestamp,
    pace: &mut Pace,
) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
    let Some(before) = list.before else {
        return Ok(Vec::new());
    };
    loop {
        let limit = pace.size();
        let query = Query::new(list.selector.clone())
            .limit(limit)
            .before(before)
            .after(after);
        let began = Instant::now();
        match in_time_of_pages(store.search(&query)).await {
            Ok(page) => {
                pace.took(began.elapsed());
                let oldest = page.last().map(|oldest| oldest.order_key());
                list.before = oldest.filter(|_| page.len() == limit);
                return Ok(page);
            }
            Err(StoreError::TooFar { down_to, .. }) if limit == 1 => {
                // Nothing is selected down to there.
                list.before = below(before.0, down_to);
                return Ok(Vec::new());
            }
            Err(StoreError::TooFar { .. }) => {
                while pace.size() > 1 {
                    pace.failed();
                }
            }
            Err(error) => {
                pace.failed();
                return Err(error);
            }
        }
    }
}

/// The place to continue from when a store has read as many breadcrumbs as it may, and found nothing.
fn below(time: Timestamp, down_to: Option<Timestamp>) -> Option<(Timestamp, u64, BreadcrumbId)> {
    let Some(down_to) = down_to else {
        tracing::warn!(%time, "cannot read the older breadcrumbs of the store, which skips their triggers: it would have to look at too many");
        return None;
    };
    if down_to.as_micros() + 1 < time.as_micros() {
        return Some(just_after(down_to));
    }
    tracing::warn!(%time, "cannot read the breadcrumbs of one moment, which skips their triggers: there are too many");
    Some((down_to.min(time.just_before()), 0, BreadcrumbId::NIL))
}
