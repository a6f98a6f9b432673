//! A look into the store for what no event told: losing every notification costs time, and no trigger.

use super::shared::in_time;
use crate::model::{Breadcrumb, BreadcrumbId, Selector, Timestamp};
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::sync::Arc;
use tokio::sync::mpsc;

/// A breadcrumb as the store has it, which may not have been announced.
pub(super) type Found = Arc<Breadcrumb>;

/// How many breadcrumbs are read at a time.
const PAGE: usize = 200;

type Place = (Timestamp, u64, BreadcrumbId);

/// Hands over everything that was committed after a time, oldest first; returns the time of the newest.
///
/// A store is read newest first, so the pages are counted down to the time first and read again on the way back: what
/// is held in memory is one page, and one place for each other.
pub(super) async fn sweep(
    store: &dyn BreadcrumbStore,
    after: Timestamp,
    found: &mpsc::Sender<Found>,
) -> Result<Timestamp, StoreError> {
    let mut places: Vec<Option<Place>> = Vec::new();
    let mut place = None;
    let mut page = read(store, place).await?;
    let newest = page
        .first()
        .map_or(after, |newest| newest.updated_at.max(after));
    while let Some(oldest) = page.last()
        && oldest.updated_at > after
        && page.len() == PAGE
    {
        places.push(place);
        place = Some(oldest.order_key());
        page = read(store, place).await?;
    }
    hand_over(&page, after, found).await;
    for place in places.into_iter().rev() {
        let page = read(store, place).await?;
        hand_over(&page, after, found).await;
    }
    Ok(newest)
}

async fn read(
    store: &dyn BreadcrumbStore,
    before: Option<Place>,
) -> Result<Vec<Found>, StoreError> {
    let mut query = Query::new(Selector::any()).limit(PAGE);
    query.before = before;
    in_time(store.search(&query)).await
}

async fn hand_over(page: &[Found], after: Timestamp, found: &mpsc::Sender<Found>) {
    let news = page.iter().rev().filter(|item| item.updated_at > after);
    for item in news {
        if found.send(Arc::clone(item)).await.is_err() {
            // Nobody takes anything in any more: the runtime stops.
            return;
        }
    }
}

/// The time of the newest breadcrumb in a store, or the earliest time if there is none.
pub(super) async fn newest(store: &dyn BreadcrumbStore) -> Result<Timestamp, StoreError> {
    let query = Query::new(Selector::any()).limit(1);
    let newest = in_time(store.search(&query)).await?;
    Ok(newest
        .first()
        .map_or(Timestamp::UNIX_EPOCH, |newest| newest.updated_at))
}
