//! Events of one tenant in PostgreSQL in commit order, and the event source that delivers them.

use super::NAME;
use super::column::{self, id, number, time, unreadable};
use super::connection::FLUSH;
use super::cursor;
use super::database::Database;
use super::error::{Fault, standby_is_behind};
use super::history::{Mark, SeenEvent, StoredEvents, lost_commits_error};
use super::inbox::{self, ImportInbox};
use super::listen::listen;
use super::prepared::{self, PLANNED_ONCE};
use super::read::Read;
use super::tenant::TenantHandle;
use crate::model::{Event, Json, Timestamp};
use crate::source::{Deliveries, EventSource, SourceError, StartAt};
use crate::store::StoreError;
use crate::store::durable::cursor::Cursor;
use crate::store::durable::events::{
    EventLog, EventPage, PAGE, description, kind_of, subscribe, unavailable,
};
use crate::store::durable::inbox::InboxImport;
use crate::store::durable::tenant::StoreClock;
use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Read of one page of a tenant's events.
struct EventPageQuery<'p> {
    tenant: &'p TenantHandle,
    /// Newest events that the store handles on the tenant had read or committed before this read.
    mark: Mark,
    position: u64,
    /// If `true`, the read makes the page's commits durable before it returns.
    flushes: bool,
}

impl Read for EventPageQuery<'_> {
    type Answer = (EventPage, StoredEvents);
    const IS_PREPARED: bool = true;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        _: &StoreClock,
    ) -> Result<Self::Answer, Fault> {
        let mut page = EventPage::empty();
        let (mut at_mark, mut is_durable) = (None, true);
        let seen_position = self.mark.event.map_or(0, |event| event.position);
        let largest = i64::try_from(Event::MAX_CONTEXT_BYTES).unwrap_or(i64::MAX);
        let message = format!(
            "{PLANNED_ONCE}; EXECUTE ux_next ({}, {}, {PAGE}, {largest}, {})",
            prepared::name(&self.tenant.name),
            i64::try_from(self.position).unwrap_or(i64::MAX),
            seen_position.cast_signed(),
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(message));
        let rows = rows.fetch_all(&mut *connection).await?;
        if rows.is_empty() {
            page.has_inbox = inbox::has_rows(connection, &self.tenant.name).await?;
        }
        for row in rows {
            (page.first, page.last) = (number(&row, 0)?, number(&row, 1)?);
            if row.try_get::<Option<i64>, _>(11)?.is_some() {
                at_mark = Some((id(&row, 10)?, number(&row, 11)?));
            }
            is_durable = row.try_get("is_durable")?;
            page.has_inbox = row.try_get("has_inbox")?;
            if row.try_get::<Option<i64>, _>(2)?.is_some() && self.position >= page.first {
                page.events.push_back(event(&row)?);
            }
        }
        let stored_events = StoredEvents {
            first: page.first,
            last: page.last,
            at_mark,
        };
        if !is_durable && self.flushes && page.last > self.mark.head {
            // A subscriber must never receive an event that a crash of the server can undo. The same session flushes, because another
            // session may be connected to the server after a crash.
            sqlx::raw_sql(FLUSH).execute(connection).await?;
        }
        Ok((page, stored_events))
    }
}

/// Read that reports whether the PostgreSQL server is a standby, which can lack the newest commits of its primary.
struct IsStandby;

impl Read for IsStandby {
    type Answer = bool;

    fn tenant(&self) -> Option<&str> {
        None
    }

    async fn run(&self, connection: &mut PgConnection, _: &StoreClock) -> Result<bool, Fault> {
        let is_standby = sqlx::query_scalar("SELECT pg_is_in_recovery()");
        Ok(is_standby.fetch_one(connection).await?)
    }
}

/// Returns a record ([`Mark`]) of the last event on a page of events, and of the tenant's last event position at the time of the
/// read.
fn mark_of(page: &EventPage) -> Mark {
    let seen_event = page.events.back().map(|(position, event)| SeenEvent {
        position: *position,
        announces: (event.breadcrumb_id, event.version),
    });
    Mark {
        head: page.last,
        event: seen_event,
    }
}

fn event(row: &PgRow) -> sqlx::Result<(u64, Event)> {
    let context: Option<String> = row.try_get(9)?;
    let tags: String = row.try_get(8)?;
    let event = Event {
        kind: kind_of(row.try_get::<i16, _>(3)?.into())
            .ok_or_else(|| unreadable(3, "unknown event kind"))?,
        breadcrumb_id: id(row, 4)?,
        version: number(row, 5)?,
        schema_name: row.try_get(7)?,
        tags: serde_json::from_str(&tags).map_err(|error| unreadable(8, error))?,
        // An unreadable context is omitted, because the store's breadcrumb decides about a match.
        context: context.and_then(|text| Json::from_validated_text(text).ok()),
        updated_at: time(row, 6)?,
    };
    Ok((number(row, 2)?, event))
}

/// Event source over one tenant's commits in PostgreSQL.
#[derive(Clone, Debug)]
pub(super) struct PostgresEvents {
    pub(super) database: Arc<Database>,
    pub(super) tenant: Arc<TenantHandle>,
    /// Name of the event consumer whose position is stored, or `None` for a source without a stored position.
    pub(super) consumer: Option<Arc<str>>,
    /// Number of times that other processes had announced new events before the subscriber's last query.
    pub(super) received_announcements: Arc<AtomicU64>,
    /// Time at which the event subscriber last queried the PostgreSQL server.
    pub(super) queried_at: Arc<Mutex<Option<Instant>>>,
}

impl PostgresEvents {
    /// Returns `true` if the next page of events must come from the server even if its events are in memory, because the last
    /// query is older than the poll interval. The events in memory do not show whether `ux_inbox` has rows.
    fn must_query(&self) -> bool {
        let queried_at = *self.queried_at();
        queried_at.is_none_or(|at| at.elapsed() >= self.database.settings.poll)
    }

    fn queried_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.queried_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl EventSource for PostgresEvents {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let own = Self {
            received_announcements: Arc::default(),
            queried_at: Arc::default(),
            ..self.clone()
        };
        subscribe(own, from).await
    }

    fn description(&self) -> String {
        description(NAME, self.consumer.as_deref())
    }

    fn is_complete(&self) -> bool {
        true
    }

    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        let Some(consumer) = &self.consumer else {
            return Ok(None);
        };
        let behind = self.database.read(BacklogQuery {
            tenant: &self.tenant.name,
            consumer,
        });
        behind.await.map_err(unavailable)
    }
}

/// Read of the number of events after an event consumer's stored position. The result is `None` if the consumer never subscribed.
struct BacklogQuery<'b> {
    tenant: &'b str,
    consumer: &'b str,
}

impl Read for BacklogQuery<'_> {
    type Answer = Option<u64>;

    fn tenant(&self) -> Option<&str> {
        Some(self.tenant)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        _: &StoreClock,
    ) -> Result<Option<u64>, Fault> {
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

/// Read of the time of a tenant's event at a position. The result is `None` if the event was deleted.
struct EventTimeQuery<'t> {
    tenant: &'t str,
    position: u64,
}

impl Read for EventTimeQuery<'_> {
    type Answer = Option<Timestamp>;

    fn tenant(&self) -> Option<&str> {
        Some(self.tenant)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        _: &StoreClock,
    ) -> Result<Option<Timestamp>, Fault> {
        let time = sqlx::query_scalar::<_, i64>(
            "SELECT e.updated_at FROM ux_tenants AS t JOIN ux_events AS e ON e.tenant = t.id
             WHERE t.name = $1 AND e.position = $2",
        );
        let time = time
            .bind(column::name(self.tenant))
            .bind(i64::try_from(self.position).unwrap_or(i64::MAX));
        let time = time.fetch_optional(connection).await?;
        Ok(time.map(Timestamp::from_micros))
    }
}

impl EventLog for PostgresEvents {
    fn log_name(&self) -> String {
        format!("{NAME}, tenant {:?}", self.tenant.name)
    }

    fn announced(&self) -> watch::Receiver<u64> {
        listen(&self.database);
        self.tenant.recent.start_retaining();
        self.database.announced.subscribe()
    }

    fn poll(&self) -> Duration {
        self.database.settings.poll
    }

    async fn page(&self, from: u64) -> Result<EventPage, StoreError> {
        self.database.loss.check()?;
        let received_announcements = self.database.received_announcements.load(Ordering::SeqCst);
        if !self.must_query()
            && let Some(mut page) = self.tenant.recent.page(from)
        {
            if received_announcements != self.received_announcements.load(Ordering::SeqCst) {
                // Events of another process may follow.
                page.last += 1;
            }
            return Ok(page);
        }
        let mark = self.tenant.mark();
        let from = EventPageQuery {
            tenant: &self.tenant,
            mark,
            position: from,
            flushes: self.database.can_flush,
        };
        let query_started = Instant::now();
        let (page, stored_events) = self.database.read(from).await?;
        if mark.is_in(&stored_events) {
            *self.queried_at() = Some(query_started);
            self.received_announcements
                .store(received_announcements, Ordering::SeqCst);
            self.tenant.record_seen(mark_of(&page));
            return Ok(page);
        }
        if self.database.read(IsStandby).await? {
            return Err(standby_is_behind(&self.tenant.name, mark.head));
        }
        Err(lost_commits_error(&self.database.record_lost_commits(
            &self.tenant,
            mark,
            stored_events.last,
        )))
    }

    async fn import_inbox(&self, most: usize) -> Result<InboxImport, StoreError> {
        self.database
            .write(&self.tenant, ImportInbox { most })
            .await
    }

    async fn time_of(&self, position: u64) -> Result<Option<Timestamp>, StoreError> {
        let time = self.database.read(EventTimeQuery {
            tenant: &self.tenant.name,
            position,
        });
        time.await
    }

    async fn cursor(&self, begin: u64) -> Result<Option<Cursor>, StoreError> {
        let Some(consumer) = &self.consumer else {
            return Ok(None);
        };
        let cursor = cursor::resume(&self.database, &self.tenant, consumer, begin).await?;
        Ok(Some(cursor))
    }
}
