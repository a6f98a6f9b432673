//! How much there is.

use super::error::Fault;
use super::tenant;
use crate::store::RunState;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;

/// How much a [`SqliteStore`](super::SqliteStore) holds: of one tenant, and in its file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SqliteStats {
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
    /// The size of the file, in bytes.
    pub file_bytes: u64,
    /// The size of the write-ahead log beside it, in bytes.
    pub wal_bytes: u64,
}

pub(super) fn read(connection: &Connection, name: &str, path: &Path) -> Result<SqliteStats, Fault> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let mut stats = SqliteStats {
        file_bytes: size(path),
        wal_bytes: size(Path::new(&wal)),
        ..SqliteStats::default()
    };
    let Some(tenant) = tenant::find(connection, name)? else {
        return Ok(stats);
    };
    stats.breadcrumbs = tenant.breadcrumbs.cast_unsigned();
    stats.tombstones = tenant.tombstones.cast_unsigned();
    stats.events = (tenant.position - tenant.first_event + 1).cast_unsigned();
    stats.position = tenant.position.cast_unsigned();
    let mut runs = connection
        .prepare_cached("SELECT state, COUNT(*) FROM ux_runs WHERE tenant = ?1 GROUP BY state")?;
    let mut runs = runs.query([tenant.id])?;
    while let Some(row) = runs.next()? {
        if let Some(state) = RunState::of_number(row.get(0)?) {
            stats
                .runs
                .insert(state, row.get::<_, i64>(1)?.cast_unsigned());
        }
    }
    Ok(stats)
}

/// The size of a file, 0 if there is none.
fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}
