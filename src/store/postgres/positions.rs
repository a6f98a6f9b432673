//! Event positions that runtimes save in PostgreSQL for each executor, to find missed events after a downtime.

use super::column;
use super::error::Fault;
use super::read::Read;
use super::tenant::{TenantHandle, clock};
use crate::store::SavedPosition;
use crate::store::durable::tenant::StoreClock;
use sqlx::{PgConnection, Row as _};
use std::collections::HashMap;
use std::sync::Arc;

/// Write that saves an event position for each executor of a runtime. If the tenant then has more than [`SavedPosition::MOST`]
/// positions, the write deletes the least recently saved ones.
pub(super) struct SavePositions {
    pub(super) tenant: Arc<TenantHandle>,
    /// Executor IDs and the event positions to save, sorted and without duplicates, so that two workers lock the rows in the same order.
    pub(super) positions: Vec<(Arc<str>, Vec<u8>)>,
}

impl Read for SavePositions {
    type Answer = ();

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, clock: &StoreClock) -> Result<(), Fault> {
        let tenant = self.tenant.id_or_new(&mut *connection).await?;
        let executors = self.positions.iter().map(|(executor, _)| &**executor);
        let positions: Vec<&[u8]> = self.positions.iter().map(|(_, bytes)| &**bytes).collect();
        let save = sqlx::query(concat!(
            "WITH clock AS MATERIALIZED (SELECT ",
            clock!(),
            " AS now),
             old AS (DELETE FROM ux_positions AS p WHERE p.tenant = $1 AND p.executor <> ALL ($4)
                 AND p.executor IN (SELECT k.executor FROM ux_positions AS k WHERE k.tenant = $1
                     AND k.executor <> ALL ($4) ORDER BY k.saved_at DESC, k.executor OFFSET $6))
             INSERT INTO ux_positions (tenant, executor, saved_at, position)
                 SELECT $1, u.executor, clock.now, u.position
                 FROM unnest($4::text[], $5::bytea[]) AS u (executor, position) CROSS JOIN clock
             ON CONFLICT (tenant, executor) DO UPDATE SET saved_at = excluded.saved_at, position = excluded.position"
        ));
        let others = SavedPosition::MOST.saturating_sub(self.positions.len());
        save.bind(tenant)
            .bind(clock.stopped_at())
            .bind(clock.shift())
            .bind(column::names(executors))
            .bind(positions)
            .bind(i64::try_from(others).unwrap_or(i64::MAX))
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// Read of the saved event position of each executor, in the order of `executors`.
pub(super) struct ReadPositions<'t> {
    pub(super) tenant: &'t TenantHandle,
    pub(super) executors: &'t [Arc<str>],
}

impl Read for ReadPositions<'_> {
    type Answer = Vec<Option<Vec<u8>>>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        _: &StoreClock,
    ) -> Result<Self::Answer, Fault> {
        let mut saved: HashMap<String, Vec<u8>> = HashMap::new();
        let names = column::names(self.executors.iter().map(|executor| &**executor));
        if let Some(tenant) = self.tenant.id(&mut *connection).await? {
            let all = sqlx::query(
                "SELECT executor, position FROM ux_positions WHERE tenant = $1 AND executor = ANY ($2)",
            );
            for row in all.bind(tenant).bind(&names).fetch_all(connection).await? {
                saved.insert(row.try_get(0)?, row.try_get(1)?);
            }
        }
        Ok(names.iter().map(|name| saved.get(name).cloned()).collect())
    }
}
