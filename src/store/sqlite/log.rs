//! The events of one tenant in the order of the commits, and the source over them.

use super::column::{blob, id, number, tags, texts};
use super::cursor::{Cursor, Resume};
use super::database::Database;
use super::error::Fault;
use super::tenant::{Tenant, Writing};
use crate::error::Retry;
use crate::model::{Event, EventKind, Json, Timestamp};
use crate::source::{Delivery, EventSource, Receipt, SourceError, StartAt};
use crate::store::StoreError;
use crate::store::returned::Returned;
use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use rusqlite::{Connection, Row};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How many events are read at once.
const PAGE: u64 = 64;

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

/// What there is from a position on.
struct Page {
    /// The position of the oldest event that is still there.
    first: u64,
    /// The position of the last.
    last: u64,
    events: VecDeque<(u64, Event)>,
}

impl Page {
    fn read(connection: &Connection, name: &str, from: u64) -> Result<Self, Fault> {
        let Some(tenant) = Tenant::find(connection, name)? else {
            return Ok(Self {
                first: 1,
                last: 0,
                events: VecDeque::new(),
            });
        };
        let (first, last) = (
            tenant.first_event.cast_unsigned(),
            tenant.position.cast_unsigned(),
        );
        if from < first || from > last {
            let events = VecDeque::new();
            return Ok(Self {
                first,
                last,
                events,
            });
        }
        let mut page = connection.prepare_cached(NEXT)?;
        let largest = i64::try_from(Event::MAX_CONTEXT_BYTES).unwrap_or(i64::MAX);
        let asked = (tenant.id, from.cast_signed(), PAGE.cast_signed(), largest);
        let events = page.query_map(asked, event)?;
        let events = events.collect::<rusqlite::Result<_>>()?;
        Ok(Self {
            first,
            last,
            events,
        })
    }
}

fn event(row: &Row<'_>) -> rusqlite::Result<(u64, Event)> {
    let context: Option<String> = row.get(7)?;
    let event = Event {
        kind: match row.get(1)? {
            0 => EventKind::Created,
            1 => EventKind::Updated,
            2 => EventKind::Deleted,
            other => return Err(rusqlite::Error::IntegralValueOutOfRange(1, other)),
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

const fn kind(kind: EventKind) -> i64 {
    match kind {
        EventKind::Created => 0,
        EventKind::Updated => 1,
        EventKind::Deleted | EventKind::Ping => 2,
    }
}

/// The commits of one tenant as events.
#[derive(Clone, Debug)]
pub(super) struct SqliteEvents {
    pub(super) database: Arc<Database>,
    pub(super) tenant: Arc<str>,
    /// Who remembers how far it came.
    pub(super) consumer: Option<Arc<str>>,
}

#[async_trait]
impl EventSource for SqliteEvents {
    async fn subscribe(
        &self,
        from: StartAt,
    ) -> Result<BoxStream<'static, Result<Delivery, SourceError>>, SourceError> {
        let changed = self.database.announced();
        let page = self.page(u64::MAX).await.map_err(unavailable)?;
        let end = page.last + 1;
        let next = match from {
            StartAt::Now => end,
            StartAt::Beginning => page.first,
            // A position from the future is of another store's life: nothing from now on may be missed for it.
            StartAt::After(position) => position.saturating_add(1).min(end),
        };
        let (next, cursor) = match &self.consumer {
            None => (next, None),
            Some(consumer) => {
                let resume = Resume {
                    database: &self.database,
                    tenant: &self.tenant,
                    consumer,
                };
                let cursor = resume.cursor(next - 1).await.map_err(unavailable)?;
                (
                    cursor.position().saturating_add(1).min(end),
                    Some(Arc::new(cursor)),
                )
            }
        };
        let subscriber = Subscriber {
            source: self.clone(),
            changed,
            next,
            read: VecDeque::new(),
            cursor,
            returned: Arc::default(),
        };
        Ok(Box::pin(stream::unfold(
            subscriber,
            |mut subscriber| async move {
                let delivered = subscriber.next().await?;
                Some((delivered, subscriber))
            },
        )))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

impl SqliteEvents {
    async fn page(&self, from: u64) -> Result<Page, StoreError> {
        let tenant = Arc::clone(&self.tenant);
        let read = move |connection: &Connection, _: &dyn Fn() -> bool| {
            Page::read(connection, &tenant, from)
        };
        self.database.read(read).await
    }
}

struct Subscriber {
    source: SqliteEvents,
    changed: watch::Receiver<u64>,
    next: u64,
    /// What was read and not delivered yet.
    read: VecDeque<(u64, Event)>,
    cursor: Option<Arc<Cursor>>,
    returned: Arc<Returned>,
}

impl Subscriber {
    async fn next(&mut self) -> Option<Result<Delivery, SourceError>> {
        loop {
            self.changed.mark_unchanged();
            if let Some((position, event)) = self.returned.take_due() {
                return Some(Ok(self.delivery(position, event)));
            }
            if let Some((position, event)) = self.read.pop_front() {
                if let Some(cursor) = &self.cursor {
                    cursor.deliver(position);
                }
                return Some(Ok(self.delivery(position, event)));
            }
            match self.read_on().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => return Some(Err(error)),
            }
            tokio::select! {
                changed = self.changed.changed() => changed.ok()?,
                () = self.returned.due_or_added() => {}
                () = tokio::time::sleep(self.source.database.settings.poll) => {}
            }
        }
    }

    /// Reads what is next, and says whether there was anything.
    async fn read_on(&mut self) -> Result<bool, SourceError> {
        let page = self.source.page(self.next).await.map_err(unavailable)?;
        if self.next < page.first {
            let missed = page.first - self.next;
            self.next = page.first;
            if let Some(cursor) = &self.cursor {
                cursor.skip_to(self.next - 1);
            }
            return Err(SourceError::Lagged { missed });
        }
        self.read = page.events;
        if let Some((last, _)) = self.read.back() {
            self.next = last + 1;
        }
        Ok(!self.read.is_empty())
    }

    fn delivery(&self, position: u64, event: Event) -> Delivery {
        let receipt = SqliteReceipt {
            position,
            event: event.clone(),
            cursor: self.cursor.clone(),
            returned: Arc::clone(&self.returned),
        };
        Delivery::new(event)
            .at(position)
            .with_receipt(Arc::new(receipt))
    }
}

struct SqliteReceipt {
    position: u64,
    event: Event,
    cursor: Option<Arc<Cursor>>,
    returned: Arc<Returned>,
}

#[async_trait]
impl Receipt for SqliteReceipt {
    async fn ack(&self) -> Result<(), SourceError> {
        if let Some(cursor) = &self.cursor {
            cursor.acknowledge(self.position);
        }
        Ok(())
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        self.returned
            .give_back(self.position, self.event.clone(), delay)
    }
}

fn unavailable(error: StoreError) -> SourceError {
    let retry_after = match error.retry() {
        Retry::After(delay) => delay,
        Retry::Never => Duration::from_secs(1),
    };
    SourceError::Unavailable {
        retry_after,
        source: error.into(),
    }
}
