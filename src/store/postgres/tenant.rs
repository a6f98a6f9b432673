//! The row of a tenant, its clock and its counters.

use super::column;
use super::history::Mark;
use super::statement::Statement;
use crate::store::durable::tenant::Tenant;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use uuid::Uuid;

/// What the clock of the server shows, in SQL, moved and stopped as [`Time`] says: `$2` is where it is held, and `$3` how
/// far it is moved.
macro_rules! clock {
    () => {
        "(coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + $3::bigint)"
    };
}
pub(super) use clock;

/// A tenant by its name, which has an id once it was ever written to.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: Arc<str>,
    id: OnceLock<i64>,
    mark: Mutex<Mark>,
}

impl Named {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            id: OnceLock::new(),
            mark: Mutex::default(),
        }
    }

    /// Returns the newest events that were seen. Take the mark before the read that it is compared with.
    pub(super) fn mark(&self) -> Mark {
        *self.lock()
    }

    /// Notes events that were seen.
    pub(super) fn saw(&self, events: Mark) {
        self.lock().add(events);
    }

    fn lock(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
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
                "INSERT INTO ux_tenants (id, name, latest, sequence, position, first_event, breadcrumbs, tombstones,
                     open_runs, finished_runs)
                 OVERRIDING SYSTEM VALUE
                 VALUES ($1, $2, 0, 0, 0, 1, 0, 0, 0, 0) ON CONFLICT DO NOTHING",
            );
            // A counter that a restore resets would give the ID of a lost tenant, which processes remember, to another one.
            let (random, _) = Uuid::new_v4().as_u64_pair();
            let insert = insert
                .bind((random >> 1).cast_signed())
                .bind(column::name(&self.name));
            insert.execute(&mut *connection).await?;
        }
    }
}

/// The row of a tenant.
pub(super) fn read(row: &PgRow) -> sqlx::Result<Tenant> {
    Tenant::read(|column| row.try_get(column))
}

/// Adds to a statement that the row of a tenant is to be as this is.
pub(super) fn update(statement: &mut Statement, tenant: &Tenant) {
    statement.push(" UPDATE ux_tenants SET ");
    let mut set = statement.separated(", ");
    for (column, value) in tenant.columns() {
        set.push(&format!("{column} = "))
            .push_bind_unseparated(value);
    }
    statement.push(" WHERE id = ").push_bind(tenant.id);
}
