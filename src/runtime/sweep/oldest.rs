//! A sweep of a store that reads any page of a list in about the same time: oldest first.

use super::{Next, Pages, just_after};
use crate::model::{Breadcrumb, BreadcrumbId, Selector, Timestamp};
use crate::runtime::position::Range;
use crate::runtime::shared::in_time;
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::sync::Arc;

/// How many breadcrumbs are read at a time. Fewer where the store would have to look at too many for so many.
const PAGES: [usize; 3] = [200, 20, 1];

type Place = (Timestamp, u64, BreadcrumbId);

/// Hands over everything that was committed in an interval, oldest first, page by page.
///
/// A store is read newest first, so the pages are counted down first and read again on the way back: what is held in memory
/// is one page, and one place for each other. What is committed meanwhile is left to the next sweep: it would push what is
/// older out of the pages.
pub(super) async fn sweep(
    store: &dyn BreadcrumbStore,
    (after, to): Range,
    pages: &mut impl Pages,
) -> Result<Next, StoreError> {
    // Each page is what is older than one of these places, down to the next.
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
        // The next page begins with this time.
        let read_to = match places.is_empty() {
            true => to,
            false => place.0.just_before(),
        };
        if let Next::Stop = pages.take(page, (after, read_to)).await? {
            return Ok(Next::Stop);
        }
        down_to = place;
    }
    Ok(Next::Continue)
}

/// What is older than a place, down to another: a page, and what became visible there since it was counted.
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

/// The next page, and whether there may be another. What is too far away for the store to be read is passed over: it will
/// not come nearer, and what is new counts more.
async fn read(
    store: &dyn BreadcrumbStore,
    before: Place,
) -> Result<(Vec<Arc<Breadcrumb>>, bool), StoreError> {
    for limit in PAGES {
        let query = Query::new(Selector::any()).limit(limit).before(before);
        match in_time(store.search(&query)).await {
            Err(StoreError::TooFar { .. }) => {}
            page => {
                let page = page?;
                let is_full = page.len() == limit;
                return Ok((page, is_full));
            }
        }
    }
    tracing::warn!(before = %before.0, "what is older cannot be looked at: the store would have to look at too much");
    Ok((Vec::new(), false))
}
