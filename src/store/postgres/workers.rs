//! Records of the workers that share the tables, and the runs that they transfer to one another.

use super::column::{self, time, unreadable};
use super::database::Read;
use super::error::Fault;
use super::tenant::{Named, clock};
use crate::model::parse_as;
use crate::store::durable::tenant::Time;
use crate::store::row::MOST_ACCEPTED;
use crate::store::{Worker, WorkerRecord};
use sqlx::{PgConnection, Row as _};
use std::sync::Arc;

/// Makes runs due that were transferred to versions of executors.
pub(super) struct AcceptTransfers {
    pub(super) tenant: Arc<Named>,
    /// Executor and version.
    pub(super) versions: Vec<(Arc<str>, Arc<str>)>,
}

impl Read for AcceptTransfers {
    type Answer = usize;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, clock: &Time) -> Result<usize, Fault> {
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(0);
        };
        let accept = sqlx::query(concat!(
            "UPDATE ux_runs SET reason = NULL, due = ",
            clock!(),
            " WHERE serial IN (SELECT r.serial FROM unnest($4::text[], $5::text[]) AS u (executor, version)
                 CROSS JOIN LATERAL (SELECT k.serial FROM ux_runs AS k WHERE k.tenant = $1 AND k.executor = u.executor
                     AND k.reason = u.version AND k.reason IS NOT NULL AND k.over IS NULL
                     ORDER BY k.sequence LIMIT $6 FOR UPDATE SKIP LOCKED) AS r)"
        ));
        let executors = self.versions.iter().map(|(executor, _)| &**executor);
        let versions = self.versions.iter().map(|(_, version)| &**version);
        let accepted = accept
            .bind(tenant)
            .bind(clock.held())
            .bind(clock.shift())
            .bind(column::names(executors))
            .bind(column::names(versions))
            .bind(i64::try_from(MOST_ACCEPTED).unwrap_or(i64::MAX));
        let accepted = accepted.execute(connection).await?.rows_affected();
        Ok(usize::try_from(accepted).unwrap_or(usize::MAX))
    }
}

/// Stores the record of a worker, and deletes old records.
pub(super) struct Record {
    pub(super) tenant: Arc<Named>,
    pub(super) worker: WorkerRecord,
}

impl Read for Record {
    type Answer = ();

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, clock: &Time) -> Result<(), Fault> {
        let text = serde_json::to_string(&self.worker).map_err(|error| unreadable(0, error))?;
        let tenant = self.tenant.id_or_new(&mut *connection).await?;
        let kept = i64::try_from(Worker::KEPT.as_micros()).unwrap_or(i64::MAX);
        let record = sqlx::query(concat!(
            "WITH clock AS MATERIALIZED (SELECT ",
            clock!(),
            " AS now),
             old AS (DELETE FROM ux_workers AS w USING clock WHERE w.tenant = $1 AND w.id <> $4
                 AND (w.seen_at < clock.now - $6 OR w.id IN (SELECT k.id FROM ux_workers AS k
                     WHERE k.tenant = $1 AND k.id <> $4 ORDER BY k.seen_at DESC, k.id DESC OFFSET $7)))
             INSERT INTO ux_workers (tenant, id, started_at, seen_at, record)
                 SELECT $1, $4, clock.now, clock.now, $5 FROM clock
             ON CONFLICT (tenant, id) DO UPDATE SET seen_at = excluded.seen_at, record = excluded.record"
        ));
        let record = record
            .bind(tenant)
            .bind(clock.held())
            .bind(clock.shift())
            .bind(column::name(&self.worker.id))
            .bind(text)
            .bind(kept)
            .bind(i64::try_from(Worker::MOST - 1).unwrap_or(i64::MAX));
        record.execute(connection).await?;
        Ok(())
    }
}

/// Lists all workers, the most recently stored record first.
pub(super) struct All<'t>(pub(super) &'t Named);

impl Read for All<'_> {
    type Answer = Vec<Worker>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.0.name)
    }

    async fn run(&self, connection: &mut PgConnection, clock: &Time) -> Result<Vec<Worker>, Fault> {
        let Some(tenant) = self.0.id(connection).await? else {
            return Ok(Vec::new());
        };
        let all = sqlx::query(concat!(
            "SELECT record, started_at, seen_at, ",
            clock!(),
            " FROM ux_workers WHERE tenant = $1 ORDER BY seen_at DESC, id DESC"
        ));
        let all = all.bind(tenant).bind(clock.held()).bind(clock.shift());
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
