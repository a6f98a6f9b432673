//! What the stream of events left out, from the list.

use super::filter::Filter;
use super::read::Reader;
use super::wire::Row;
use crate::error::BoxError;
use crate::model::{BreadcrumbId, Event, Timestamp};
use crate::source::Missed;
use async_trait::async_trait;

/// How many breadcrumbs are held at a time.
const AT_ONCE: usize = 64;

#[async_trait]
impl Missed for Reader {
    async fn newest(&self) -> Result<Timestamp, BoxError> {
        let rows = self.list(&Filter::default()).next().await?;
        let newest = rows.iter().flatten().map(|row| row.breadcrumb.updated_at);
        Ok(newest.max().unwrap_or(Timestamp::UNIX_EPOCH))
    }

    async fn since(
        &self,
        after: Timestamp,
        wanted: &(dyn Fn(BreadcrumbId, u64) -> bool + Send + Sync),
    ) -> Result<Vec<Event>, BoxError> {
        let mut pages = self.list(&Filter::default());
        let mut ids = Vec::new();
        let mut want = |row: &Row| {
            let row = &row.breadcrumb;
            if row.updated_at > after && wanted(row.id, row.version) {
                ids.push(row.id);
            }
        };
        while let Some(rows) = pages.next().await? {
            rows.iter().for_each(&mut want);
            if rows.iter().any(|row| row.breadcrumb.updated_at <= after) {
                break;
            }
            if pages.looked_at >= self.settings.max_looked_at {
                // What is newest is told of; a look into the store finds the rest.
                tracing::warn!(
                    looked_at = pages.looked_at,
                    "more happened than is looked at"
                );
                break;
            }
        }
        if pages.took_time() {
            pages.newer().await?.iter().for_each(&mut want);
        }
        let mut found = Vec::new();
        for some in ids.chunks(AT_ONCE) {
            let fulls = self.fulls(some.iter().copied()).await?;
            let fulls = fulls.iter().filter(|full| wanted(full.id, full.version));
            // Without contexts, as there may be many of them.
            found.extend(fulls.map(|full| Event::updated(full).envelope()));
        }
        found.sort_unstable_by_key(|event| (event.updated_at, event.version, event.breadcrumb_id));
        Ok(found)
    }
}
