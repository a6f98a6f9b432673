//! Records of workers in PostgreSQL, and runs that were transferred to another version of their executor.

use super::NAME;
use super::column::{self, time, unreadable};
use super::error::Fault;
use super::job::Job;
use super::read::Read;
use super::row::{self, OrderingKey, ordering_key_of};
use super::tenant::{TenantHandle, clock, server_clock};
use super::transaction::TenantTransaction;
use crate::model::parse_as;
use crate::store::durable::tenant::StoreClock;
use crate::store::row::{MOST_ACCEPTED, out_of_order_bit};
use crate::store::rules;
use crate::store::{Worker, WorkerRecord};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// SQL that selects the serial numbers of transferred runs which workers with the given executor versions can take over. A
/// version accepts the runs that were transferred to it. It also accepts due runs of its executor that left the order of their
/// ordering key. The SQL returns at most `$6` numbers for each version.
macro_rules! transferred {
    () => {
        concat!(
            "unnest($4::text[], $5::text[]) AS u (executor, version)
             CROSS JOIN LATERAL ((SELECT k.serial FROM ux_runs AS k WHERE k.tenant = $1 AND k.executor = u.executor
                     AND k.reason = u.version AND k.reason IS NOT NULL AND k.over IS NULL ORDER BY k.sequence LIMIT $6)
                 UNION ALL (SELECT k.serial FROM ux_runs AS k WHERE k.tenant = $1 AND k.executor = u.executor
                     AND k.reason <> u.version AND k.reason IS NOT NULL AND k.over IS NULL AND k.sequence >= ",
            out_of_order_bit!(),
            " AND k.due <= ",
            clock!(),
            " ORDER BY k.sequence LIMIT $6) LIMIT $6) AS t"
        )
    };
}

type SqlQuery<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// Binds executor IDs, executor versions and a maximum number of runs to a query, as the SQL parameters `$4` to `$6` of
/// [`transferred`]. The caller must have bound `$1` to `$3`.
fn bind<'q>(query: SqlQuery<'q>, versions: &[(Arc<str>, Arc<str>)], most: usize) -> SqlQuery<'q> {
    let (executors, versions) = (
        versions.iter().map(|(executor, _)| &**executor),
        versions.iter().map(|(_, version)| &**version),
    );
    query
        .bind(column::names(executors))
        .bind(column::names(versions))
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
}

/// Read that returns `true` if a worker with the given executor versions can take over a transferred run.
pub(super) struct HasTransfers<'t> {
    pub(super) tenant: &'t TenantHandle,
    /// IDs and versions of the executors for which the read searches transferred runs.
    pub(super) versions: &'t [(Arc<str>, Arc<str>)],
}

impl Read for HasTransfers<'_> {
    type Answer = bool;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, clock: &StoreClock) -> Result<bool, Fault> {
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(false);
        };
        let any = concat!("SELECT EXISTS (SELECT FROM ", transferred!(), ")");
        let any = sqlx::query(any)
            .bind(tenant)
            .bind(clock.stopped_at())
            .bind(clock.shift());
        let any = bind(any, self.versions, 1).fetch_one(connection).await?;
        Ok(any.try_get(0)?)
    }
}

/// Store operation that accepts transferred runs on behalf of the given executor versions, and so makes these runs due. Each
/// version has its executor ID.
pub(super) struct AcceptTransfers(pub(super) Vec<(Arc<str>, Arc<str>)>);

impl Job for AcceptTransfers {
    type Answer = usize;

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<usize, Fault> {
        let ordering_keys = ordering_keys(transaction, &self.0).await?;
        transaction.lock(ordering_keys).await?;
        transaction.flush().await?;
        let accepted = concat!(
            "SELECT ",
            row::columns!(),
            ", (SELECT o.serial FROM ux_runs AS o WHERE o.tenant = $1 AND o.executor = r.executor AND o.line = r.line
                 AND o.line IS NOT NULL AND o.over IS NULL AND o.sequence < ",
            out_of_order_bit!(),
            " LIMIT 1) IS NULL FROM (SELECT DISTINCT t.serial FROM ",
            transferred!(),
            ") AS t CROSS JOIN LATERAL (SELECT r.* FROM ux_runs AS r WHERE r.serial = t.serial AND r.reason IS NOT NULL
                 AND r.over IS NULL LIMIT 1 FOR UPDATE SKIP LOCKED) AS r ORDER BY r.sequence"
        );
        let accepted = sqlx::query(accepted)
            .bind(transaction.tenant.id)
            .bind(transaction.now.as_micros())
            .bind(0_i64);
        let accepted = bind(accepted, &self.0, MOST_ACCEPTED);
        let accepted = accepted.fetch_all(&mut *transaction.connection).await?;
        let (mut joined, mut count) = (HashSet::new(), 0);
        for pg_row in &accepted {
            let stored = row::read(pg_row)?;
            if !transaction.has_locked(&stored.row.run) {
                // The run was transferred just now. The next call accepts it.
                continue;
            }
            let is_alone =
                pg_row.try_get(row::COLUMNS)? && joined.insert(ordering_key_of(&stored.row.run));
            let change = rules::accept(stored.row, is_alone, transaction.next(), transaction.now);
            transaction.apply(stored.serial, change);
            count += 1;
        }
        Ok(count)
    }
}

/// Reads the ordering keys of the transferred runs that workers with the given executor versions can take over.
async fn ordering_keys(
    transaction: &mut TenantTransaction<'_>,
    versions: &[(Arc<str>, Arc<str>)],
) -> sqlx::Result<BTreeSet<OrderingKey>> {
    let ordering_keys = concat!(
        "SELECT DISTINCT r.executor, r.line FROM ",
        transferred!(),
        " CROSS JOIN LATERAL (SELECT r.executor, r.line FROM ux_runs AS r WHERE r.serial = t.serial LIMIT 1) AS r
         WHERE r.line IS NOT NULL"
    );
    let ordering_keys = sqlx::query(ordering_keys)
        .bind(transaction.tenant.id)
        .bind(transaction.now.as_micros())
        .bind(0_i64);
    let ordering_keys = bind(ordering_keys, versions, MOST_ACCEPTED);
    let ordering_keys = ordering_keys
        .fetch_all(&mut *transaction.connection)
        .await?;
    let ordering_key = |row: &PgRow| {
        Ok((
            column::of_name(row.try_get(0)?).into(),
            column::of_name(row.try_get(1)?).into(),
        ))
    };
    ordering_keys.iter().map(ordering_key).collect()
}

/// Write that stores the record of a worker, and deletes old worker records.
pub(super) struct RecordWorker {
    pub(super) tenant: Arc<TenantHandle>,
    pub(super) worker: WorkerRecord,
}

impl Read for RecordWorker {
    type Answer = ();

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, clock: &StoreClock) -> Result<(), Fault> {
        let text = serde_json::to_string(&self.worker).map_err(|error| unreadable(0, error))?;
        let tenant = self.tenant.id_or_new(&mut *connection).await?;
        let wall = sqlx::query_scalar(concat!("SELECT ", server_clock!()));
        let wall: i64 = wall.fetch_one(&mut *connection).await?;
        let wall = clock.stopped_at().unwrap_or(wall) + clock.shift();
        clock.jumps.record(NAME, wall);
        let retention = i64::try_from(Worker::KEPT.as_micros()).unwrap_or(i64::MAX);
        let record = sqlx::query(concat!(
            "WITH clock AS MATERIALIZED (SELECT ",
            clock!(),
            " AS now),
             old AS (DELETE FROM ux_workers AS w USING clock WHERE w.tenant = $1 AND w.id <> $4
                 AND ($8 AND w.seen_at < clock.now - $6 OR w.id IN (SELECT k.id FROM ux_workers AS k
                     WHERE k.tenant = $1 AND k.id <> $4 ORDER BY k.seen_at DESC, k.id DESC OFFSET $7)))
             INSERT INTO ux_workers (tenant, id, started_at, seen_at, record)
                 SELECT $1, $4, clock.now, clock.now, $5 FROM clock
             ON CONFLICT (tenant, id) DO UPDATE SET seen_at = excluded.seen_at, record = excluded.record"
        ));
        let record = record
            .bind(tenant)
            .bind(clock.stopped_at())
            .bind(clock.shift())
            .bind(column::name(&self.worker.id))
            .bind(text)
            .bind(retention)
            .bind(i64::try_from(Worker::MOST - 1).unwrap_or(i64::MAX))
            .bind(clock.jumps.is_steady_for(Worker::LIVE));
        record.execute(connection).await?;
        Ok(())
    }
}

/// Read of all workers of a tenant, the most recently stored record first.
pub(super) struct AllWorkers<'t>(pub(super) &'t TenantHandle);

impl Read for AllWorkers<'_> {
    type Answer = Vec<Worker>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.0.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        clock: &StoreClock,
    ) -> Result<Vec<Worker>, Fault> {
        let Some(tenant) = self.0.id(connection).await? else {
            return Ok(Vec::new());
        };
        let all = sqlx::query(concat!(
            "SELECT record, started_at, seen_at, ",
            clock!(),
            " FROM ux_workers WHERE tenant = $1 ORDER BY seen_at DESC, id DESC"
        ));
        let all = all
            .bind(tenant)
            .bind(clock.stopped_at())
            .bind(clock.shift());
        let mut workers = Vec::new();
        for row in all.fetch_all(connection).await? {
            let text: String = row.try_get(0)?;
            let record = parse_as(text.as_bytes()).map_err(|error| unreadable(0, error))?;
            workers.push(Worker::new(
                record,
                time(&row, 1)?,
                time(&row, 2)?,
                time(&row, 3)?,
            ));
        }
        Ok(workers)
    }
}
