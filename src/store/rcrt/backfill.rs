//! What the stream of events left out, from the list. What time it is says the `Date` of an answer, or this machine where
//! there is none.

use super::read::Reader;
use super::wire::Row;
use crate::clock::wall_micros;
use crate::error::BoxError;
use crate::model::{BreadcrumbId, Event, Timestamp};
use crate::source::Backfill;
use crate::source::sse::event_size;
use async_trait::async_trait;
use futures::TryStreamExt as _;
use std::pin::pin;

/// How many bytes of memory the events take that are told of at a time. Without contexts that is more than as many events as
/// a list has, unless they have very large tags.
const MAX_FOUND: usize = 16 << 20;

#[async_trait]
impl Backfill for Reader {
    async fn newest(&self) -> Result<Timestamp, BoxError> {
        let mut pages = self.changes();
        let rows = pages.next().await?.unwrap_or_default();
        let now = pages.at;
        let now = now.unwrap_or_else(|| Timestamp::from_micros(wall_micros()));
        Ok(newest(&rows, now))
    }

    async fn since(
        &self,
        after: Timestamp,
        wanted: &(dyn Fn(BreadcrumbId, u64) -> bool + Send + Sync),
    ) -> Result<Vec<Event>, BoxError> {
        let ids = self.changed(after, wanted).await?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut fulls = pin!(self.each_full(ids));
        while let Some(full) = fulls.try_next().await? {
            if !wanted(full.id, full.version) {
                continue;
            }
            // Without contexts, as there may be many of them.
            let event = Event::updated(&full).envelope();
            bytes += event_size(&event);
            if bytes > MAX_FOUND {
                tracing::warn!(found = found.len(), "more happened than is told of");
                break;
            }
            found.push(event);
        }
        found.sort_unstable_by_key(|event| (event.updated_at, event.version, event.breadcrumb_id));
        Ok(found)
    }
}

impl Reader {
    /// The ids of what was changed after a time and is wanted.
    async fn changed(
        &self,
        after: Timestamp,
        wanted: &(dyn Fn(BreadcrumbId, u64) -> bool + Send + Sync),
    ) -> Result<Vec<BreadcrumbId>, BoxError> {
        let mut pages = self.changes();
        let mut ids = Vec::new();
        loop {
            while let Some(rows) = pages.next().await? {
                let new = rows.iter().map(|row| &row.breadcrumb);
                let new = new.filter(|row| row.updated_at > after && wanted(row.id, row.version));
                ids.extend(new.map(|row| row.id));
                if rows.iter().any(|row| row.breadcrumb.updated_at <= after) {
                    break;
                }
                if let Some(looked_at) = pages.too_far() {
                    // What is newest is told of; a look into the store finds the rest.
                    tracing::warn!(looked_at, "more happened than is looked at");
                    break;
                }
            }
            if !pages.once_more() {
                return Ok(ids);
            }
        }
    }
}

/// The time of the newest row that is not from the future: one that is hides nothing that comes after it.
fn newest(rows: &[Row], now: Timestamp) -> Timestamp {
    let times = rows.iter().map(|row| row.breadcrumb.updated_at);
    let past = times.filter(|time| *time <= now).max();
    past.unwrap_or(match rows {
        [] => Timestamp::UNIX_EPOCH,
        [..] => now,
    })
}
