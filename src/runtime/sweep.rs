//! A look into the store for what no event told: losing every notification costs time, and no trigger.

use super::shared::in_time;
use crate::model::{Breadcrumb, BreadcrumbId, Selector, Timestamp};
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::sync::Arc;
use tokio::sync::mpsc;

/// A breadcrumb as the store has it, which may not have been announced.
pub(super) type Found = Arc<Breadcrumb>;

/// How many breadcrumbs are read at a time. Fewer where the store would have to look at too many for so many.
const PAGES: [usize; 3] = [200, 20, 1];

type Place = (Timestamp, u64, BreadcrumbId);

/// Hands over everything that was committed after a time, oldest first; returns the time of the newest.
///
/// A store is read newest first, so the pages are counted down to the time first and read again on the way back: what
/// is held in memory is one page, and one place for each other. What is committed meanwhile is left to the next sweep:
/// it would push what is older out of the pages.
pub(super) async fn sweep(
    store: &dyn BreadcrumbStore,
    after: Timestamp,
    found: &mpsc::Sender<Found>,
) -> Result<Timestamp, StoreError> {
    let newest = newest(store).await?;
    if newest <= after {
        return Ok(after);
    }
    // Each page is what is older than one of these places, down to the next.
    let mut place = just_after(newest);
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
    for place in places.into_iter().rev() {
        let page = between(store, down_to, place).await?;
        for item in page.into_iter().rev() {
            if found.send(item).await.is_err() {
                // Nobody takes anything in any more: the runtime stops.
                return Ok(after);
            }
        }
        down_to = place;
    }
    // It is seen when it was taken in, not when it was handed over.
    match found.reserve_many(found.max_capacity()).await {
        Ok(_) => Ok(newest),
        Err(_) => Ok(after),
    }
}

/// What is older than a place, down to another: a page, and what became visible there since it was counted.
async fn between(
    store: &dyn BreadcrumbStore,
    down_to: Place,
    before: Place,
) -> Result<Vec<Found>, StoreError> {
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

/// The place of the first that may be newer than a time.
fn just_after(time: Timestamp) -> Place {
    let next = Timestamp::from_micros(time.as_micros().saturating_add(1));
    (next, 0, BreadcrumbId::NIL)
}

/// The next page, and whether there may be another. What is too far away for the store to be read is passed over: it will
/// not come nearer, and what is new counts more.
async fn read(
    store: &dyn BreadcrumbStore,
    before: Place,
) -> Result<(Vec<Found>, bool), StoreError> {
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

/// The time of the newest breadcrumb in a store, or the earliest time if there is none.
pub(super) async fn newest(store: &dyn BreadcrumbStore) -> Result<Timestamp, StoreError> {
    let query = Query::new(Selector::any()).limit(1);
    let newest = in_time(store.search(&query)).await?;
    Ok(newest
        .first()
        .map_or(Timestamp::UNIX_EPOCH, |newest| newest.updated_at))
}
