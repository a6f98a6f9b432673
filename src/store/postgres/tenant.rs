//! The row of a tenant: its clock and its counters, and what a job works with.

use super::builder::PostgresLimits;
use super::column;
use crate::bugs::planted;
use crate::model::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

/// What the clock of the server shows, in SQL, moved and stopped as [`Time`] says: `$2` is where it is held, and `$3` how
/// far it is moved.
macro_rules! clock {
    () => {
        "(coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + $3::bigint)"
    };
}
pub(super) use clock;

/// What is done to the clock of the server: nothing, but in tests.
#[derive(Debug, Default)]
pub(super) struct Time {
    /// How far tests have moved it ahead, in microseconds.
    shift: AtomicI64,
    /// Where tests have stopped it, if they have.
    held: OnceLock<i64>,
}

impl Time {
    pub(super) fn held(&self) -> Option<i64> {
        self.held.get().copied()
    }

    pub(super) fn shift(&self) -> i64 {
        let mut shift = self.shift.load(Ordering::Relaxed);
        if planted("own-clock") {
            // The clocks of two workers are never the same.
            shift += i64::from(std::process::id() % 2) * 5_000_000;
        }
        shift
    }

    #[cfg(feature = "conformance")]
    pub(super) fn pass(&self, duration: std::time::Duration) {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        self.shift.fetch_add(micros, Ordering::Relaxed);
    }

    #[cfg(feature = "conformance")]
    pub(super) fn hold(&self) {
        self.held.get_or_init(crate::clock::wall_micros);
    }
}

/// A tenant by its name, which has an id once it was ever written to.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: Arc<str>,
    id: OnceLock<i64>,
}

impl Named {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            id: OnceLock::new(),
        }
    }

    /// Its id, which never changes. None if it was never written to.
    pub(super) async fn id(&self, connection: &mut PgConnection) -> sqlx::Result<Option<i64>> {
        if let Some(id) = self.id.get() {
            return Ok(Some(*id));
        }
        let id = sqlx::query_scalar("SELECT id FROM ux_tenants WHERE name = $1");
        let id = id
            .bind(column::name(&self.name))
            .fetch_optional(connection)
            .await?;
        Ok(id.map(|id| *self.id.get_or_init(|| id)))
    }
}

/// The row of a tenant.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Tenant {
    pub(super) id: i64,
    /// The time of the last commit.
    pub(super) latest: i64,
    /// The last run that was added or came to its end.
    pub(super) sequence: i64,
    /// The position of the last event.
    pub(super) position: i64,
    /// The position of the oldest event that is still there.
    pub(super) first_event: i64,
    pub(super) breadcrumbs: i64,
    pub(super) tombstones: i64,
    pub(super) open_runs: i64,
    pub(super) finished_runs: i64,
}

impl Tenant {
    pub(super) fn of(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.try_get(0)?,
            latest: row.try_get(1)?,
            sequence: row.try_get(2)?,
            position: row.try_get(3)?,
            first_event: row.try_get(4)?,
            breadcrumbs: row.try_get(5)?,
            tombstones: row.try_get(6)?,
            open_runs: row.try_get(7)?,
            finished_runs: row.try_get(8)?,
        })
    }

    async fn write(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        let update = sqlx::query(
            "UPDATE ux_tenants SET latest = $2, sequence = $3, position = $4, first_event = $5, breadcrumbs = $6,
                 tombstones = $7, open_runs = $8, finished_runs = $9 WHERE id = $1",
        );
        let update = update
            .bind(self.id)
            .bind(self.latest)
            .bind(self.sequence)
            .bind(self.position)
            .bind(self.first_event)
            .bind(self.breadcrumbs)
            .bind(self.tombstones)
            .bind(self.open_runs)
            .bind(self.finished_runs);
        update.execute(connection).await.map(drop)
    }
}

/// The row of a tenant, the clock, the number of the transaction, whether the time of a breadcrumb is over, and since when
/// the server knows its transactions by their numbers.
macro_rules! begin {
    ($lock:literal) => {
        concat!(
            "SELECT t.*, ",
            clock!(),
            ", pg_current_xact_id()::text, EXISTS (SELECT 1 FROM ux_breadcrumbs AS b WHERE b.tenant = t.id
                 AND b.ttl <= ",
            clock!(),
            " AND b.ttl IS NOT NULL AND NOT b.deleted), (SELECT since FROM ux_alive)
             FROM (SELECT id, latest, sequence, position, first_event, breadcrumbs, tombstones, open_runs, finished_runs
                 FROM ux_tenants WHERE name = $1 ",
            $lock,
            ") AS t"
        )
    };
}

/// A mistake that is made on purpose: a position that is taken while others may still commit what is before it.
async fn position_before_the_lock(connection: &mut PgConnection) -> sqlx::Result<i64> {
    /// No commit of a campaign has so many events.
    const APART: i64 = 100;
    let next = "SELECT nextval(pg_get_serial_sequence('ux_breadcrumbs', 'serial'))";
    let next: i64 = sqlx::query_scalar(next).fetch_one(connection).await?;
    Ok(next * APART)
}

/// What a server knows a transaction by. After a crash it gives a number again that it had not written down.
#[derive(Clone, Debug, Default)]
pub(super) struct Transaction {
    pub(super) number: String,
    /// Is another after a crash.
    pub(super) since: String,
}

/// What a job works with: the transaction, and the tenant it is about.
pub(super) struct Writing<'t> {
    pub(super) connection: &'t mut PgConnection,
    pub(super) limits: &'t PostgresLimits,
    /// Its name.
    pub(super) name: &'t str,
    /// Its row. Written back when the job is done, if the job has it locked.
    pub(super) tenant: Tenant,
    pub(super) now: Timestamp,
    pub(super) transaction: Transaction,
    /// Whether the time of a breadcrumb is over.
    pub(super) has_expired: bool,
    before: Tenant,
}

impl<'t> Writing<'t> {
    /// Begins to work with a tenant, which no other job does until the transaction ends if it is locked.
    pub(super) async fn begin(
        connection: &'t mut PgConnection,
        limits: &'t PostgresLimits,
        name: &'t str,
        time: &Time,
        locks: bool,
    ) -> sqlx::Result<Self> {
        let sql = if locks {
            begin!("FOR UPDATE")
        } else {
            begin!("")
        };
        let kept = column::name(name);
        let early = match locks && planted("late-committer") {
            true => Some(position_before_the_lock(connection).await?),
            false => None,
        };
        loop {
            let row = sqlx::query(sql)
                .bind(&*kept)
                .bind(time.held())
                .bind(time.shift());
            let Some(row) = row.fetch_optional(&mut *connection).await? else {
                let insert = sqlx::query(
                    "INSERT INTO ux_tenants (name, latest, sequence, position, first_event, breadcrumbs, tombstones,
                         open_runs, finished_runs)
                     VALUES ($1, 0, 0, 0, 1, 0, 0, 0, 0) ON CONFLICT DO NOTHING",
                );
                insert.bind(&*kept).execute(&mut *connection).await?;
                continue;
            };
            let Some(since) = row.try_get(12)? else {
                // The first after a crash, or the first of all.
                let begin = "INSERT INTO ux_alive (since) VALUES (gen_random_uuid()) ON CONFLICT DO NOTHING";
                sqlx::raw_sql(begin).execute(&mut *connection).await?;
                continue;
            };
            let mut tenant = Tenant::of(&row)?;
            tenant.position = early.unwrap_or(tenant.position);
            return Ok(Self {
                connection,
                limits,
                name,
                before: tenant.clone(),
                tenant,
                now: column::time(&row, 9)?,
                transaction: Transaction {
                    number: row.try_get(10)?,
                    since,
                },
                has_expired: row.try_get(11)?,
            });
        }
    }

    /// Writes the row back. Says whether there are new events.
    pub(super) async fn end(self) -> sqlx::Result<bool> {
        if self.tenant != self.before {
            self.tenant.write(self.connection).await?;
        }
        Ok(self.tenant.position != self.before.position)
    }

    /// Later than every commit before, so that update order is commit order.
    pub(super) fn next_time(&mut self) -> Timestamp {
        self.tenant.latest = self.now.as_micros().max(self.tenant.latest + 1);
        Timestamp::from_micros(self.tenant.latest)
    }

    pub(super) fn next_sequence(&mut self) -> i64 {
        self.tenant.sequence += 1;
        self.tenant.sequence
    }
}
