//! Sweep for triggers from the oldest breadcrumb to the newest. Used for stores that read any page of a list in about the same time.

use super::{Next, Pages, Place, just_after};
use crate::model::{Breadcrumb, Selector};
use crate::runtime::position::Range;
use crate::runtime::timeouts::in_time_of_pages;
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::sync::Arc;

/// Page sizes that the sweep tries for one read, in this order. The sweep uses the first size that the store can read.
const PAGES: [usize; 3] = [200, 20, 1];

/// Passes all breadcrumbs that were committed in an interval to a receiver, oldest first, page by page.
///
/// A store lists breadcrumbs newest first. So the sweep first walks down to the oldest page, and reads the pages again on the way
/// back. The memory holds one page, and the position of each other page. Breadcrumbs that are committed in the meantime are left
/// to the next sweep, because they would push older ones out of the pages.
pub(super) async fn sweep(
    store: &dyn BreadcrumbStore,
    (after, to): Range,
    pages: &mut impl Pages,
) -> Result<Next, StoreError> {
    // Each page contains the breadcrumbs between two successive positions.
    let mut place = just_after(to);
    let mut places = vec![place];
    loop {
        let (page, is_full) = read(store, place).await?;
        match page.last() {
            Some(oldest) if oldest.updated_at > after && is_full => {
                place = oldest.order_key();
                places.push(place);
            }
            Some(_) | None => break,
        }
    }
    let mut down_to = just_after(after);
    while let Some(place) = places.pop() {
        let mut page = between(store, down_to, place).await?;
        page.reverse();
        // The next page starts at this time.
        let read_to = match places.is_empty() {
            true => to,
            false => place.0.just_before(),
        };
        if let Next::Stop = pages.take(page, &[(after, read_to)]).await? {
            return Ok(Next::Stop);
        }
        down_to = place;
    }
    Ok(Next::Continue)
}

/// Returns the breadcrumbs between two positions in the store's list. Includes breadcrumbs that became visible after the sweep walked down
/// the list.
async fn between(
    store: &dyn BreadcrumbStore,
    down_to: Place,
    before: Place,
) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
    let mut items = Vec::new();
    let mut place = before;
    loop {
        let (page, is_full) = read(store, place).await?;
        let oldest = page.last().map(|oldest| oldest.order_key());
        let here = page.into_iter().filter(|item| item.order_key() >= down_to);
        items.extend(here);
        match oldest {
            Some(oldest) if oldest > down_to && is_full => place = oldest,
            Some(_) | None => return Ok(items),
        }
    }
}

/// Returns the next page of breadcrumbs, and `true` if there may be another page. Skips breadcrumbs that are too deep in the list for the
/// store, because a retry cannot read them either.
async fn read(
    store: &dyn BreadcrumbStore,
    before: Place,
) -> Result<(Vec<Arc<Breadcrumb>>, bool), StoreError> {
    for limit in PAGES {
        let query = Query::new(Selector::any()).limit(limit).before(before);
        match in_time_of_pages(store.search(&query)).await {
            Err(StoreError::TooFar { .. }) => {}
            page => {
                let page = page?;
                let is_full = page.len() == limit;
                return Ok((page, is_full));
            }
        }
    }
    tracing::warn!(before = %before.0, "cannot find the missed triggers before the logged time, because the store would have to read too \
        many breadcrumbs; these triggers are skipped");
    Ok((Vec::new(), false))
}
