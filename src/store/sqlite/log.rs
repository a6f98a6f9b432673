//! Events of one tenant in SQLite in commit order, and the event source that delivers them.

use super::NAME;
use super::cursor;
use super::error::Fault;
use super::events::{self, NEXT};
use super::inbox;
use super::opened::OpenedStore;
use super::tenant::{self, TenantTransaction};
use crate::model::{Event, Timestamp};
use crate::source::{Deliveries, EventSource, SourceError, StartAt};
use crate::store::StoreError;
use crate::store::durable::cursor::Cursor;
use crate::store::durable::events::{
    EventLog, EventPage, PAGE, description, subscribe, unavailable,
};
use crate::store::durable::inbox::InboxImport;
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

fn page(connection: &Connection, name: &str, from: u64) -> Result<EventPage, Fault> {
    let has_inbox = inbox::has_rows(connection, name)?;
    let Some(tenant) = tenant::find(connection, name)? else {
        return Ok(EventPage {
            has_inbox,
            ..EventPage::empty()
        });
    };
    let (first, last) = (
        tenant.first_event.cast_unsigned(),
        tenant.position.cast_unsigned(),
    );
    let mut events = VecDeque::new();
    if (first..=last).contains(&from) {
        let mut page = connection.prepare_cached(NEXT)?;
        let largest = i64::try_from(Event::MAX_CONTEXT_BYTES).unwrap_or(i64::MAX);
        let parameters = (tenant.id, from.cast_signed(), PAGE, largest);
        let rows = page.query_map(parameters, events::read)?;
        events = rows.collect::<rusqlite::Result<_>>()?;
    }
    Ok(EventPage {
        first,
        last,
        events,
        has_inbox,
    })
}

/// Returns the number of events after an event consumer's stored position, or `None` if the consumer never subscribed.
fn behind(connection: &Connection, tenant: &str, consumer: &str) -> rusqlite::Result<Option<u64>> {
    let mut behind = connection.prepare_cached(
        "SELECT MAX(t.position - c.position, 0) FROM ux_tenants AS t
         JOIN ux_consumers AS c ON c.tenant = t.id WHERE t.name = ?1 AND c.name = ?2",
    )?;
    let behind = behind.query_row((tenant, consumer), |row| row.get::<_, i64>(0));
    Ok(behind.optional()?.map(i64::cast_unsigned))
}

fn time_of(
    connection: &Connection,
    tenant: &str,
    position: u64,
) -> rusqlite::Result<Option<Timestamp>> {
    let mut time = connection.prepare_cached(
        "SELECT e.updated_at FROM ux_tenants AS t JOIN ux_events AS e ON e.tenant = t.id
         WHERE t.name = ?1 AND e.position = ?2",
    )?;
    let time = time.query_row((tenant, position.cast_signed()), |row| row.get(0));
    Ok(time.optional()?.map(Timestamp::from_micros))
}

/// Event source over one tenant's commits in SQLite.
#[derive(Clone, Debug)]
pub(super) struct SqliteEvents {
    pub(super) opened: Arc<OpenedStore>,
    pub(super) tenant: Arc<str>,
    /// Name of the event consumer whose position is stored, or `None` for a source without a stored position.
    pub(super) consumer: Option<Arc<str>>,
}

#[async_trait]
impl EventSource for SqliteEvents {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        subscribe(self.clone(), from).await
    }

    fn description(&self) -> String {
        description(NAME, self.consumer.as_deref())
    }

    fn is_complete(&self) -> bool {
        true
    }

    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        let Some(consumer) = self.consumer.clone() else {
            return Ok(None);
        };
        let tenant = Arc::clone(&self.tenant);
        let read = move |connection: &Connection, _: &dyn Fn() -> bool| {
            Ok(behind(connection, &tenant, &consumer)?)
        };
        self.opened.database.read(read).await.map_err(unavailable)
    }
}

impl EventLog for SqliteEvents {
    fn log_name(&self) -> String {
        format!("{NAME}, tenant {:?}", self.tenant)
    }

    fn announced(&self) -> watch::Receiver<u64> {
        self.opened.database.announced()
    }

    fn poll(&self) -> Duration {
        /// Interval at which an event subscription reads new events even if no commit wakes it. Commits wake the subscribers, so
        /// the interval only limits the delay if the listener's thread has ended.
        const REREAD: Duration = Duration::from_secs(60);
        REREAD
    }

    async fn page(&self, from: u64) -> Result<EventPage, StoreError> {
        let tenant = Arc::clone(&self.tenant);
        let read =
            move |connection: &Connection, _: &dyn Fn() -> bool| page(connection, &tenant, from);
        let mut page = self.opened.database.read(read).await?;
        page.has_inbox &= !self.opened.database.is_read_only;
        Ok(page)
    }

    async fn import_inbox(&self, most: usize) -> Result<InboxImport, StoreError> {
        let import_inbox =
            move |transaction: &mut TenantTransaction<'_>| inbox::import_inbox(transaction, most);
        self.opened.write(&self.tenant, import_inbox).await
    }

    async fn time_of(&self, position: u64) -> Result<Option<Timestamp>, StoreError> {
        let tenant = Arc::clone(&self.tenant);
        let read = move |connection: &Connection, _: &dyn Fn() -> bool| {
            Ok(time_of(connection, &tenant, position)?)
        };
        self.opened.database.read(read).await
    }

    async fn cursor(&self, begin: u64) -> Result<Option<Cursor>, StoreError> {
        let Some(consumer) = &self.consumer else {
            return Ok(None);
        };
        let cursor = cursor::resume(&self.opened, &self.tenant, consumer, begin).await?;
        Ok(Some(cursor))
    }
}
