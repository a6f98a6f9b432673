//! What the stream of events left out, from the list.

use super::filter::Filter;
use super::read::Reader;
use crate::error::BoxError;
use crate::model::{BreadcrumbId, Event, Timestamp};
use crate::source::Missed;
use async_trait::async_trait;

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
        let mut want = |row: &super::wire::Row| {
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
        let mut found = self.fulls(ids).await?;
        found.sort_unstable_by_key(crate::model::Breadcrumb::order_key);
        let found = found.iter().filter(|full| wanted(full.id, full.version));
        Ok(found.map(Event::updated).collect())
    }
}
