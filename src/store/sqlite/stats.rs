//! Statistics of a SQLite store.

use super::error::Fault;
use super::tenant;
use crate::store::RunState;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;

/// Statistics of a [`SqliteStore`](super::SqliteStore): row counts of one tenant, and the size of the file.
///
/// [`SqliteStore::stats`](super::SqliteStore::stats) returns it. Compare the counts with
/// [`SqliteLimits`](super::SqliteLimits) before the store is full. All fields are 0 for a tenant
/// that has stored nothing, except the two sizes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SqliteStats {
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
    /// It grows by one with each event, and never decreases.
    pub position: u64,
    /// Size of the SQLite file in bytes, for all tenants.
    pub file_bytes: u64,
    /// Size of the SQLite file's write-ahead log (`-wal`) in bytes.
    ///
    /// The file name of the log is that of the database with `-wal` appended. 0 if the file is
    /// missing.
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

/// Returns the size of a file in bytes, or 0 if the file is missing.
fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}
