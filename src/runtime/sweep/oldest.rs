//! Sweep for triggers from the oldest breadcrumb to the newest. Used for stores that read any page of a list in about the same time.

use super::{ListPosition, PageReceiver, SweepDecision, position_after};
use crate::model::{Breadcrumb, Selector};
use crate::runtime::position::Range;
use crate::runtime::timeouts::with_search_timeout;
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::sync::Arc;

/// Page sizes that a sweep of the store tries in this order for one read, until the store can return a page of this size.
const PAGE_SIZES: [usize; 3] = [200, 20, 1];

/// Passes all breadcrumbs that were committed in an interval of time to a receiver, oldest first, page by page.
///
/// A store lists breadcrumbs newest first. So the sweep first walks down to the oldest page, and reads the pages again on the way
/// back. The memory holds one page, and the position of each other page. Breadcrumbs that are committed in the meantime are left
/// to the next sweep, because they would push older ones out of the pages.
pub(super) async fn sweep(
    store: &dyn BreadcrumbStore,
    (after, to): Range,
    receiver: &mut impl PageReceiver,
) -> Result<SweepDecision, StoreError> {
    // Each page contains the breadcrumbs between two successive positions.
    let mut position = position_after(to);
    let mut positions = vec![position];
    loop {
        let (page, is_full) = read(store, position).await?;
        match page.last() {
            Some(oldest) if oldest.updated_at > after && is_full => {
                position = oldest.order_key();
                positions.push(position);
            }
            Some(_) | None => break,
        }
    }
    let mut down_to = position_after(after);
    while let Some(position) = positions.pop() {
        let mut page = between(store, down_to, position).await?;
        page.reverse();
        // The next page starts at this time.
        let read_to = match positions.is_empty() {
            true => to,
            false => position.0.just_before(),
        };
        if let SweepDecision::Stop = receiver.receive(page, &[(after, read_to)]).await? {
            return Ok(SweepDecision::Stop);
        }
        down_to = position;
    }
    Ok(SweepDecision::Continue)
}

/// Returns the breadcrumbs between two positions in the store's list of all breadcrumbs. Includes breadcrumbs that became visible
/// after the sweep walked down the list.
async fn between(
    store: &dyn BreadcrumbStore,
    down_to: ListPosition,
    before: ListPosition,
) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
    let mut items = Vec::new();
    let mut position = before;
    loop {
        let (page, is_full) = read(store, position).await?;
        let oldest = page.last().map(|oldest| oldest.order_key());
        let here = page.into_iter().filter(|item| item.order_key() >= down_to);
        items.extend(here);
        match oldest {
            Some(oldest) if oldest > down_to && is_full => position = oldest,
            Some(_) | None => return Ok(items),
        }
    }
}

/// Returns the next page of the store's list of breadcrumbs, and `true` if there may be another page. Skips breadcrumbs that are
/// too deep in the list for the store, because a retry cannot read them either.
async fn read(
    store: &dyn BreadcrumbStore,
    before: ListPosition,
) -> Result<(Vec<Arc<Breadcrumb>>, bool), StoreError> {
    for limit in PAGE_SIZES {
        let query = Query::new(Selector::any()).limit(limit).before(before);
        match with_search_timeout(store.search(&query)).await {
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
