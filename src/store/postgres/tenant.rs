//! The row of a tenant, its clock and its counters.

use super::changes::Statement;
use super::column;
use crate::bugs::planted;
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

    /// Its id; it has a row from now on, if it had none.
    pub(super) async fn id_or_new(&self, connection: &mut PgConnection) -> sqlx::Result<i64> {
        loop {
            if let Some(id) = self.id(connection).await? {
                return Ok(id);
            }
            let insert = sqlx::query(
                "INSERT INTO ux_tenants (name, latest, sequence, position, first_event, breadcrumbs, tombstones,
                     open_runs, finished_runs)
                 VALUES ($1, 0, 0, 0, 1, 0, 0, 0, 0) ON CONFLICT DO NOTHING",
            );
            let insert = insert.bind(column::name(&self.name));
            insert.execute(&mut *connection).await?;
        }
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

    /// How many events there are.
    pub(super) fn events(&self) -> i64 {
        self.position - self.first_event + 1
    }

    /// Adds to a statement that the row is to be as this is.
    pub(super) fn update(&self, statement: &mut Statement) {
        let columns = [
            (" latest = ", self.latest),
            (", sequence = ", self.sequence),
            (", position = ", self.position),
            (", first_event = ", self.first_event),
            (", breadcrumbs = ", self.breadcrumbs),
            (", tombstones = ", self.tombstones),
            (", open_runs = ", self.open_runs),
            (", finished_runs = ", self.finished_runs),
            (" WHERE id = ", self.id),
        ];
        statement.push(" UPDATE ux_tenants SET");
        for (column, value) in columns {
            statement.push(column).push_bind(value);
        }
    }
}
