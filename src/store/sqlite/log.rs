//! The events of one tenant in the order of the commits, and the source over them.

use super::NAME;
use super::column::{blob, id, number, tags, texts};
use super::cursor;
use super::error::Fault;
use super::inbox;
use super::opened::Opened;
use super::tenant::{self, Writing};
use crate::model::{Event, Json, Timestamp};
use crate::source::{Deliveries, EventSource, SourceError, StartAt};
use crate::store::StoreError;
use crate::store::durable::cursor::Cursor;
use crate::store::durable::events::{
    Log, PAGE, Page, description, kind, kind_of, subscribe, unavailable,
};
use crate::store::durable::inbox::TakenIn;
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Row};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Notes an event at the next position; positions count from 1.
pub(super) fn push(writing: &mut Writing<'_>, event: &Event) -> Result<(), Fault> {
    writing.tenant.position += 1;
    let mut insert =
        writing.sql("INSERT INTO ux_events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    insert.execute((
        writing.tenant.id,
        writing.tenant.position,
        kind(event.kind),
        blob(event.breadcrumb_id),
        event.version.cast_signed(),
        event.updated_at.as_micros(),
        event.schema_name.as_deref(),
        texts(&event.tags),
    ))?;
    Ok(())
}

/// The events from a position on.
pub(super) const NEXT: &str = "
    SELECT e.position, e.kind, e.breadcrumb_id, e.version, e.updated_at, e.schema_name, e.tags, b.context
    FROM ux_events AS e LEFT JOIN ux_breadcrumbs AS b ON b.tenant = e.tenant AND b.id = e.breadcrumb_id
        AND b.version = e.version AND octet_length(b.context) <= ?4
    WHERE e.tenant = ?1 AND e.position >= ?2 ORDER BY e.position LIMIT ?3";

fn page(connection: &Connection, name: &str, from: u64) -> Result<Page, Fault> {
    let has_inbox = inbox::is_filled(connection, name)?;
    let Some(tenant) = tenant::find(connection, name)? else {
        return Ok(Page {
            has_inbox,
            ..Page::empty()
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
        let asked = (tenant.id, from.cast_signed(), PAGE, largest);
        let found = page.query_map(asked, event)?;
        events = found.collect::<rusqlite::Result<_>>()?;
    }
    Ok(Page {
        first,
        last,
        events,
        has_inbox,
    })
}

/// How far a consumer is behind the last event; none if it never subscribed.
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

fn event(row: &Row<'_>) -> rusqlite::Result<(u64, Event)> {
    let context: Option<String> = row.get(7)?;
    let event = Event {
        kind: {
            let kind = row.get(1)?;
            kind_of(kind).ok_or(rusqlite::Error::IntegralValueOutOfRange(1, kind))?
        },
        breadcrumb_id: id(row, 2)?,
        version: number(row, 3)?,
        schema_name: row.get(5)?,
        tags: tags(row, 6)?,
        // One that cannot be read counts as none: the breadcrumb itself decides.
        context: context.and_then(|text| Json::checked_before(text).ok()),
        updated_at: Timestamp::from_micros(row.get(4)?),
    };
    Ok((number(row, 0)?, event))
}

/// The commits of one tenant as events.
#[derive(Clone, Debug)]
pub(super) struct SqliteEvents {
    pub(super) opened: Arc<Opened>,
    pub(super) tenant: Arc<str>,
    /// Who remembers how far it came.
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

impl Log for SqliteEvents {
    fn log_name(&self) -> String {
        format!("{NAME}, tenant {:?}", self.tenant)
    }

    fn announced(&self) -> watch::Receiver<u64> {
        self.opened.database.announced()
    }

    fn poll(&self) -> Duration {
        /// Commits wake subscribers. This limits the delay if the thread that listens to other processes has ended.
        const REREAD: Duration = Duration::from_secs(60);
        REREAD
    }

    async fn page(&self, from: u64) -> Result<Page, StoreError> {
        let tenant = Arc::clone(&self.tenant);
        let read =
            move |connection: &Connection, _: &dyn Fn() -> bool| page(connection, &tenant, from);
        let mut page = self.opened.database.read(read).await?;
        page.has_inbox &= !self.opened.database.is_read_only;
        Ok(page)
    }

    async fn take_in(&self, most: usize) -> Result<TakenIn, StoreError> {
        let take_in = move |writing: &mut Writing<'_>| inbox::take_in(writing, most);
        self.opened.write(&self.tenant, take_in).await
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
