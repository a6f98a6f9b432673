//! Paused executors in PostgreSQL: the store operations that begin, end and list pauses.

use super::NAME;
use super::column::{self, time};
use super::error::Fault;
use super::job::Job;
use super::read::Read;
use super::tenant::TenantHandle;
use super::transaction::TenantTransaction;
use crate::store::PausedExecutor;
use crate::store::durable::tenant::StoreClock;
use sqlx::{PgConnection, Row as _};

/// Store operation that pauses an executor. Its result is `false` if the executor is paused
/// already.
pub(super) struct Pause(pub(super) String);

impl Job for Pause {
    type Answer = bool;

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<bool, Fault> {
        let (tenant, now) = (transaction.tenant.id, transaction.now.as_micros());
        let most = i64::try_from(PausedExecutor::MOST).unwrap_or(i64::MAX);
        // Concurrent transactions do not see each other's rows, so together they can exceed the limit slightly.
        let pause = sqlx::query(
            "INSERT INTO ux_paused (tenant, executor, since) SELECT $1, $2, $3
             WHERE (SELECT count(*) FROM ux_paused AS p WHERE p.tenant = $1) < $4 ON CONFLICT DO NOTHING",
        );
        let pause = pause
            .bind(tenant)
            .bind(column::name(&self.0))
            .bind(now)
            .bind(most);
        let paused = pause.execute(transaction.connection_for_changes()).await?;
        if paused.rows_affected() > 0 {
            return Ok(true);
        }
        let is_full = sqlx::query_scalar(
            "SELECT count(*) >= $3 AND count(*) FILTER (WHERE p.executor = $2) = 0 FROM ux_paused AS p WHERE p.tenant = $1",
        );
        let is_full = is_full.bind(tenant).bind(column::name(&self.0)).bind(most);
        match is_full.fetch_one(&mut *transaction.connection).await? {
            true => Err(PausedExecutor::full(NAME).into()),
            false => Ok(false),
        }
    }
}

/// Store operation that ends the pause of an executor. Its result is `false` if the executor is not
/// paused.
pub(super) struct Resume(pub(super) String);

impl Job for Resume {
    type Answer = bool;

    async fn run(&self, transaction: &mut TenantTransaction<'_>) -> Result<bool, Fault> {
        let resume =
            sqlx::query("DELETE FROM ux_paused AS p WHERE p.tenant = $1 AND p.executor = $2");
        let resume = resume
            .bind(transaction.tenant.id)
            .bind(column::name(&self.0));
        let resumed = resume.execute(transaction.connection_for_changes()).await?;
        Ok(resumed.rows_affected() > 0)
    }
}

/// Read of the tenant's paused executors in the order of their IDs.
pub(super) struct AllPaused<'t>(pub(super) &'t TenantHandle);

impl Read for AllPaused<'_> {
    type Answer = Vec<PausedExecutor>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.0.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        _: &StoreClock,
    ) -> Result<Self::Answer, Fault> {
        let Some(tenant) = self.0.id(&mut *connection).await? else {
            return Ok(Vec::new());
        };
        let all = sqlx::query("SELECT p.executor, p.since FROM ux_paused AS p WHERE p.tenant = $1");
        let mut paused = Vec::new();
        for row in all.bind(tenant).fetch_all(connection).await? {
            let executor = column::of_name(row.try_get(0)?);
            paused.push(PausedExecutor::new(executor, time(&row, 1)?));
        }
        // The server's collation can differ from the byte order of strings.
        paused.sort_unstable_by(|one, other| one.executor.cmp(&other.executor));
        Ok(paused)
    }
}
