//! Row of a tenant in PostgreSQL: its clock and its counters.

use super::column;
use super::history::Mark;
use super::recent::RecentEvents;
use super::statement::Statement;
use crate::model::Timestamp;
use crate::store::durable::tenant::{StoreClock, Tenant};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// SQL expression for the PostgreSQL server's time in microseconds since 1970.
macro_rules! server_clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}

/// SQL expression for the PostgreSQL server's time in microseconds since 1970, which tests can stop and shift. In tests, `$2`
/// replaces the server's time, and `$3` is added to the time.
macro_rules! wall_clock {
    () => {
        concat!(
            "(coalesce($2::bigint, ",
            $crate::store::postgres::tenant::server_clock!(),
            ") + $3::bigint)"
        )
    };
}

/// SQL expression for the store's time in microseconds: the PostgreSQL server's time, corrected if the server's clock was set
/// back. The rule is that of [`store_time`](crate::store::durable::tenant::store_time), with [`Tenant::latest`] of the tenant
/// `$1`. In tests, `$2` is the time at which the clock is stopped, and `$3` is the time that is added.
macro_rules! clock {
    () => {
        concat!(
            "(SELECT CASE WHEN wall.latest - wall.now <= 1000 THEN wall.now \
                WHEN wall.latest - wall.now <= 604800000000 THEN wall.latest + 1 \
                ELSE wall.now + greatest(1209600000000 - (wall.latest - wall.now), 0) END FROM (SELECT ",
            $crate::store::postgres::tenant::wall_clock!(),
            " AS now, coalesce((SELECT latest FROM ux_tenants WHERE id = $1), 0) AS latest) AS wall)"
        )
    };
}

pub(super) use {clock, server_clock, wall_clock};

/// Handle on one tenant: its name, its ID once it has a row, and the newest events that this process has read or committed.
#[derive(Debug)]
pub(super) struct TenantHandle {
    pub(super) name: Arc<str>,
    id: OnceLock<i64>,
    mark: Mutex<Mark>,
    /// Time at which a check of the tenant's old idempotency keys for deletion last failed with an error.
    failed_check: Mutex<Option<Instant>>,
    /// In-memory copy of the newest events that this process committed to the tenant, shared by all handles of the tenant.
    pub(super) recent: Arc<RecentEvents>,
}

impl TenantHandle {
    pub(super) fn new(name: &str, recent: Arc<RecentEvents>) -> Self {
        Self {
            name: name.into(),
            id: OnceLock::new(),
            mark: Mutex::default(),
            failed_check: Mutex::default(),
            recent,
        }
    }

    /// Returns the newest events of the tenant that this process has read or committed. Call it before the read whose result is
    /// compared with them.
    pub(super) fn mark(&self) -> Mark {
        *self.lock()
    }

    /// Records the newest events of the tenant that this process has read or committed.
    pub(super) fn record_seen(&self, events: Mark) {
        self.lock().add(events);
    }

    /// Returns `false` if a check of the tenant's old idempotency keys for deletion failed with an error less than a minute ago.
    pub(super) fn can_check_keys(&self) -> bool {
        let failed = *self
            .failed_check
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        failed.is_none_or(|failed| failed.elapsed() >= Duration::from_secs(60))
    }

    /// Records that a check of the tenant's old idempotency keys for deletion failed with an error.
    pub(super) fn check_failed(&self) {
        let mut failed = self
            .failed_check
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *failed = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tenant's ID from memory or from the database, or `None` if the tenant has no row yet. The ID never changes.
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

    /// Returns the tenant's ID, and inserts the tenant's row first if the row is missing.
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
            // A sequence would be reset by a restore, and give the ID of a lost tenant, which processes remember, to another tenant.
            let (random, _) = Uuid::new_v4().as_u64_pair();
            let insert = insert
                .bind((random >> 1).cast_signed())
                .bind(column::name(&self.name));
            insert.execute(&mut *connection).await?;
        }
    }
}

/// SQL of the columns of a tenant's row with the table alias `n`, in the order in which [`read`] expects them.
pub(super) const COLUMNS: &str = "n.id, n.latest, n.sequence, n.position, n.first_event, n.breadcrumbs, n.tombstones, n.open_runs,
    n.finished_runs, n.requests";

/// Reads a tenant's clock and counters from its row.
pub(super) fn read(row: &PgRow) -> sqlx::Result<Tenant> {
    Tenant::read(|column| row.try_get(column))
}

/// Bit that marks a breadcrumb version's update time as provisional, until the transaction has its position in the commit order.
/// A provisional time consists of this bit and the number of the version within the transaction. No real time has the bit.
pub(super) const PROVISIONAL_TIME: i64 = 1 << 60;

/// Extracts from a provisional update time the number of the breadcrumb version within its transaction. The final time is this
/// number added to the `base` of the transaction.
pub(super) fn provisional_number(time: Timestamp) -> i64 {
    time.as_micros() & !PROVISIONAL_TIME
}

/// Bit that marks a run's sequence number as provisional, until the transaction has its position in the commit order. A
/// provisional sequence number consists of this bit and a number. No real sequence number has the bit.
pub(super) const PROVISIONAL_SEQUENCE: i64 = 1 << 61;

/// Returns the tenant's row for the start of a transaction, with provisional times and sequence numbers.
pub(super) fn with_provisional_values(mut tenant: Tenant) -> Tenant {
    (tenant.latest, tenant.sequence) = (PROVISIONAL_TIME, PROVISIONAL_SEQUENCE);
    tenant
}

/// Returns the beginning of the SQL statement that writes a transaction's changes. Its table `t` has one row with the start
/// values of the changes. The numbers of the transaction are added to `t.sequence` and `t.position`, and its provisional times
/// are added to `t.base`. `position` replaces the tenant's event position.
pub(super) fn start_write_statement(
    tenant: i64,
    time: &StoreClock,
    position: Option<i64>,
) -> Statement {
    let mut statement =
        Statement::new("WITH t AS MATERIALIZED (SELECT n.id, n.sequence, coalesce(");
    statement
        .push_bind(position)
        .push("::bigint, n.position) AS position, greatest(coalesce(")
        .push_bind(time.stopped_at())
        .push("::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + ")
        .push_bind(time.shift())
        .push("::bigint, n.latest + 1) - 1 AS base FROM ux_tenants AS n WHERE n.id = ")
        .push_bind(tenant)
        .push(")");
    statement
}

/// Appends the update of the tenant's row to an SQL statement. The update adds the differences between `before` and `after`, and returns
/// the new row and `t.base`. `new` is the number of runs that the statement adds. Runs that another transaction added first are not
/// counted.
pub(super) fn update(statement: &mut Statement, before: &Tenant, after: &Tenant, new: i64) {
    let times = after.latest - before.latest;
    statement
        .push(" UPDATE ux_tenants AS n SET latest = t.base + ")
        .push_bind(times)
        .push(", sequence = n.sequence + ")
        .push_bind(after.sequence - before.sequence)
        .push(", position = t.position + ")
        .push_bind(after.position - before.position)
        .push(", first_event = greatest(n.first_event, ")
        .push_bind(after.first_event)
        .push("), breadcrumbs = n.breadcrumbs + ")
        .push_bind(after.breadcrumbs - before.breadcrumbs)
        .push(", tombstones = n.tombstones + ")
        .push_bind(after.tombstones - before.tombstones)
        .push(", open_runs = n.open_runs + ")
        .push_bind(after.open_runs - before.open_runs);
    if new > 0 {
        statement
            .push(" - ")
            .push_bind(new)
            .push(" + (SELECT count(*) FROM added)");
    }
    statement
        .push(", finished_runs = n.finished_runs + ")
        .push_bind(after.finished_runs - before.finished_runs)
        .push(", requests = n.requests + ")
        .push_bind(after.requests - before.requests)
        .push(" FROM t WHERE n.id = t.id RETURNING ")
        .push(COLUMNS)
        .push(", t.base AS ux_base");
}
