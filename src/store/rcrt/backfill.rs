//! Search of the RCRT server's breadcrumb list for events that the event stream did not deliver.
//!
//! The current time is the `Date` header of a response, or this machine's clock if the header is missing.

use super::read::Reader;
use super::wire::ListRow;
use crate::clock::wall_micros;
use crate::error::BoxError;
use crate::model::{BreadcrumbId, Event, Timestamp};
use crate::source::Backfill;
use crate::source::sse::event_size;
use async_trait::async_trait;
use futures::TryStreamExt as _;
use std::pin::pin;

/// Maximum size in memory of the missed events that one query returns (16 MiB). Events without contexts exceed it only with very
/// large tags.
const MAX_FOUND: usize = 16 << 20;

#[async_trait]
impl Backfill for Reader {
    async fn newest(&self) -> Result<Timestamp, BoxError> {
        let mut pages = self.changes();
        let rows = pages.next().await?.unwrap_or_default();
        let now = pages.server_time;
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
        let mut read_all = pin!(self.stream_all(ids));
        while let Some(full) = read_all.try_next().await? {
            if !wanted(full.id, full.version) {
                continue;
            }
            // Without contexts, because there may be many events.
            let event = Event::updated(&full).envelope();
            bytes += event_size(&event);
            if bytes > MAX_FOUND {
                tracing::warn!(
                    found = found.len(),
                    "the missed events exceed 16 MiB of memory; a sweep of the store will find the other events"
                );
                break;
            }
            found.push(event);
        }
        found.sort_unstable_by_key(|event| (event.updated_at, event.version, event.breadcrumb_id));
        Ok(found)
    }
}

impl Reader {
    /// Returns the IDs of the breadcrumbs to which the server's list gives an update time later than `after`. Omits breadcrumb
    /// versions that `wanted` does not accept.
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
                if let Some(rows_read) = pages.rows_at_limit() {
                    // The newest changes are returned. A sweep of the store finds the others.
                    tracing::warn!(
                        searched = rows_read,
                        "too many changes to search all for missed events; a sweep of the store will find the older events"
                    );
                    break;
                }
            }
            if !pages.start_second_pass() {
                return Ok(ids);
            }
        }
    }
}

/// Returns the newest update time in the rows of a breadcrumb list, ignoring times later than `now`. Returns `now` if all times are
/// later, and the Unix epoch if the list has no rows. A time in the future would hide later changes.
fn newest(rows: &[ListRow], now: Timestamp) -> Timestamp {
    let times = rows.iter().map(|row| row.breadcrumb.updated_at);
    let past = times.filter(|time| *time <= now).max();
    past.unwrap_or(match rows {
        [] => Timestamp::UNIX_EPOCH,
        [..] => now,
    })
}
