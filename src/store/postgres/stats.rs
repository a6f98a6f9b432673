//! Statistics of a PostgreSQL store.

use super::column;
use super::error::Fault;
use super::read::Read;
use super::tenant;
use crate::store::RunState;
use crate::store::durable::tenant::StoreClock;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::collections::BTreeMap;

/// Statistics of a [`PostgresStore`](super::PostgresStore): row counts of one tenant, and the size of the tables.
///
/// [`PostgresStore::stats`](super::PostgresStore::stats) returns it, with an example. Compare the
/// counts with [`PostgresLimits`](super::PostgresLimits) before the store is full.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct PostgresStats {
    /// Number of the tenant's breadcrumbs. An expired breadcrumb counts until a commit or a sweep removes it.
    pub breadcrumbs: u64,
    /// Number of the tenant's tombstones.
    pub tombstones: u64,
    /// Number of the tenant's runs in each state, as stored in the ledger rows. A run whose lease has expired counts as running.
    /// States without runs are omitted.
    pub runs: BTreeMap<RunState, u64>,
    /// Number of the tenant's retained events.
    pub events: u64,
    /// Position of the tenant's last event, or 0 without events.
    ///
    /// It grows by one with each event.
    pub position: u64,
    /// Size of all the store's tables and indexes in bytes, for all tenants.
    pub bytes: u64,
}

/// Query for the statistics of one tenant in a PostgreSQL store, by the tenant's name.
pub(super) struct StatsQuery<'t>(pub(super) &'t str);

impl Read for StatsQuery<'_> {
    type Answer = PostgresStats;

    fn tenant(&self) -> Option<&str> {
        Some(self.0)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        _: &StoreClock,
    ) -> Result<PostgresStats, Fault> {
        let bytes: i64 = sqlx::query_scalar(
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
         WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'ux\\_%'",
    )
    .fetch_one(&mut *connection)
    .await?;
        let mut stats = PostgresStats {
            bytes: bytes.cast_unsigned(),
            ..PostgresStats::default()
        };
        let columns = tenant::COLUMNS;
        let tenant = format!("SELECT {columns} FROM ux_tenants AS n WHERE n.name = $1");
        let Some(tenant) = sqlx::query(AssertSqlSafe(tenant))
            .bind(column::name(self.0))
            .fetch_optional(&mut *connection)
            .await?
        else {
            return Ok(stats);
        };
        let tenant = tenant::read(&tenant)?;
        stats.breadcrumbs = tenant.breadcrumbs.cast_unsigned();
        stats.tombstones = tenant.tombstones.cast_unsigned();
        stats.events = tenant.events().cast_unsigned();
        stats.position = tenant.position.cast_unsigned();
        let runs =
            sqlx::query("SELECT state, count(*) FROM ux_runs WHERE tenant = $1 GROUP BY state");
        for row in runs.bind(tenant.id).fetch_all(connection).await? {
            if let Some(state) = RunState::of_number(row.try_get(0)?) {
                stats.runs.insert(state, column::number(&row, 1)?);
            }
        }
        Ok(stats)
    }
}
