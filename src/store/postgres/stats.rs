//! How much there is.

use super::column;
use super::error::Fault;
use super::read::Read;
use super::tenant;
use crate::store::RunState;
use crate::store::durable::tenant::Time;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::collections::BTreeMap;

/// How much a [`PostgresStore`](super::PostgresStore) holds: of one tenant, and in its tables.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct PostgresStats {
    /// Breadcrumbs of the tenant. One whose time to live is over counts until a later commit removes it.
    pub breadcrumbs: u64,
    /// Tombstones of the tenant.
    pub tombstones: u64,
    /// Runs of the tenant by the state in their row: one whose lease ran out counts as running. States without runs
    /// are left out.
    pub runs: BTreeMap<RunState, u64>,
    /// Events of the tenant that are still there.
    pub events: u64,
    /// The position of the tenant's last event, 0 if there was none.
    pub position: u64,
    /// The size of the tables and their indexes, of all tenants, in bytes.
    pub bytes: u64,
}

/// Reads how much there is, of the tenant of this name.
pub(super) struct Count<'t>(pub(super) &'t str);

impl Read for Count<'_> {
    type Answer = PostgresStats;

    fn tenant(&self) -> Option<&str> {
        Some(self.0)
    }

    async fn run(&self, connection: &mut PgConnection, _: &Time) -> Result<PostgresStats, Fault> {
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
