//! The events of one tenant in the order of the commits, and the source over them.

use super::changes::Statement;
use super::column::{self, Id, id, number, time, unreadable};
use super::cursor::{self, Cursor};
use super::database::{Database, Read};
use super::error::Fault;
use super::listen::listen;
use super::tenant::{Named, Time};
use crate::error::Retry;
use crate::model::{Event, EventKind, Json};
use crate::source::{Delivery, EventSource, Receipt, SourceError, StartAt};
use crate::store::StoreError;
use crate::store::returned::Returned;
use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How many events are read at once.
const PAGE: i64 = 64;

/// Adds to a statement that events are noted at the positions up to the last.
pub(super) fn push(statement: &mut Statement, tenant: i64, last: i64, events: &[Event]) {
    if events.is_empty() {
        return;
    }
    fn all<T>(events: &[Event], of: impl Fn(&Event) -> T) -> Vec<T> {
        events.iter().map(of).collect()
    }
    statement.push(
        ", noted AS (INSERT INTO ux_events (breadcrumb_id, version, updated_at, kind, schema_name, tags, position,
             tenant) SELECT u.id, u.version, u.updated_at, u.kind, u.schema_name, u.tags, u.place + ",
    );
    statement
        .push_bind(last - events.len().cast_signed() as i64)
        .push("::bigint, ")
        .push_bind(tenant)
        .push("::bigint FROM unnest(");
    let mut columns = statement.separated(", ");
    columns
        .push_bind(all(events, |event| Id::from(event.breadcrumb_id)))
        .push_bind(all(events, |event| event.version.cast_signed()))
        .push_bind(all(events, |event| event.updated_at.as_micros()))
        .push_bind(all(events, |event| kind(event.kind)))
        .push_bind(all(events, |event| event.schema_name.clone()))
        .push_bind(all(events, tags));
    statement
        .push(") WITH ORDINALITY AS u (id, version, updated_at, kind, schema_name, tags, place))");
}

/// The tags of an event as a JSON array.
fn tags(event: &Event) -> String {
    serde_json::Value::from(event.tags.to_vec()).to_string()
}

/// The first and the last position there is, and the events from a position on: all of one snapshot, so that none can be
/// forgotten in between. A position is taken by who has the tenant locked until the commit, so what is not there yet
/// comes after all that is.
const NEXT: &str = "
    SELECT t.first_event, t.position, e.*
    FROM ux_tenants AS t LEFT JOIN LATERAL (
        SELECT e.position AS place, e.kind, e.breadcrumb_id, e.version, e.updated_at, e.schema_name, e.tags, b.context
        FROM ux_events AS e LEFT JOIN ux_breadcrumbs AS b ON b.tenant = e.tenant AND b.id = e.breadcrumb_id
            AND b.version = e.version AND octet_length(b.context) <= $4
        WHERE e.tenant = t.id AND e.position >= $2 ORDER BY e.position LIMIT $3
    ) AS e ON TRUE
    WHERE t.name = $1 ORDER BY e.place";

/// What there is from a position on.
struct Page {
    /// The position of the oldest event that is still there.
    first: u64,
    /// The position of the last.
    last: u64,
    events: VecDeque<(u64, Event)>,
}

/// What a page is read of.
struct From<'p> {
    tenant: &'p str,
    position: u64,
}

impl Read for From<'_> {
    type Answer = Page;

    async fn run(&self, connection: &mut PgConnection, _: &Time) -> Result<Page, Fault> {
        let mut page = Page {
            first: 1,
            last: 0,
            events: VecDeque::new(),
        };
        let largest = i64::try_from(Event::MAX_CONTEXT_BYTES).unwrap_or(i64::MAX);
        let rows = sqlx::query(NEXT)
            .bind(column::name(self.tenant))
            .bind(i64::try_from(self.position).unwrap_or(i64::MAX))
            .bind(PAGE)
            .bind(largest);
        for row in rows.fetch_all(connection).await? {
            (page.first, page.last) = (number(&row, 0)?, number(&row, 1)?);
            if row.try_get::<Option<i64>, _>(2)?.is_some() && self.position >= page.first {
                page.events.push_back(event(&row)?);
            }
        }
        Ok(page)
    }
}

fn event(row: &PgRow) -> sqlx::Result<(u64, Event)> {
    let context: Option<String> = row.try_get(9)?;
    let tags: String = row.try_get(8)?;
    let event = Event {
        kind: match row.try_get::<i16, _>(3)? {
            0 => EventKind::Created,
            1 => EventKind::Updated,
            2 => EventKind::Deleted,
            _ => return Err(unreadable(3, "no kind of event")),
        },
        breadcrumb_id: id(row, 4)?,
        version: number(row, 5)?,
        schema_name: row.try_get(7)?,
        tags: serde_json::from_str(&tags).map_err(|error| unreadable(8, error))?,
        // One that cannot be read counts as none: the breadcrumb itself decides.
        context: context.and_then(|text| Json::checked_before(text).ok()),
        updated_at: time(row, 6)?,
    };
    Ok((number(row, 2)?, event))
}

const fn kind(kind: EventKind) -> i16 {
    match kind {
        EventKind::Created => 0,
        EventKind::Updated => 1,
        EventKind::Deleted | EventKind::Ping => 2,
    }
}

/// The commits of one tenant as events.
#[derive(Clone, Debug)]
pub(super) struct PostgresEvents {
    pub(super) database: Arc<Database>,
    pub(super) tenant: Arc<Named>,
    /// Who remembers how far it came.
    pub(super) consumer: Option<Arc<str>>,
}

#[async_trait]
impl EventSource for PostgresEvents {
    async fn subscribe(
        &self,
        from: StartAt,
    ) -> Result<BoxStream<'static, Result<Delivery, SourceError>>, SourceError> {
        listen(&self.database);
        let changed = self.database.announced.subscribe();
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
                let cursor = cursor::resume(&self.database, &self.tenant, consumer, next - 1)
                    .await
                    .map_err(unavailable)?;
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

    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        let Some(consumer) = &self.consumer else {
            return Ok(None);
        };
        let behind = self.database.read(Behind {
            tenant: &self.tenant.name,
            consumer,
        });
        behind.await.map_err(unavailable)
    }
}

/// How far a consumer is behind the last event; none if it never subscribed.
struct Behind<'b> {
    tenant: &'b str,
    consumer: &'b str,
}

impl Read for Behind<'_> {
    type Answer = Option<u64>;

    async fn run(&self, connection: &mut PgConnection, _: &Time) -> Result<Option<u64>, Fault> {
        let behind = sqlx::query_scalar::<_, i64>(
            "SELECT greatest(t.position - c.position, 0) FROM ux_tenants AS t
             JOIN ux_consumers AS c ON c.tenant = t.id WHERE t.name = $1 AND c.name = $2",
        );
        let behind = behind
            .bind(column::name(self.tenant))
            .bind(column::name(self.consumer));
        let behind = behind.fetch_optional(connection).await?;
        Ok(behind.map(i64::cast_unsigned))
    }
}

impl PostgresEvents {
    async fn page(&self, from: u64) -> Result<Page, StoreError> {
        let from = From {
            tenant: &self.tenant.name,
            position: from,
        };
        self.database.read(from).await
    }
}

struct Subscriber {
    source: PostgresEvents,
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
        let receipt = PostgresReceipt {
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

struct PostgresReceipt {
    position: u64,
    event: Event,
    cursor: Option<Arc<Cursor>>,
    returned: Arc<Returned>,
}

#[async_trait]
impl Receipt for PostgresReceipt {
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
