//! Connections to the SQLite file, all with the same setup.

use super::builder::{DatabaseSettings, Durability};
use super::error::{OpenFault, SqliteError};
use super::schema;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Opens the SQLite connection of the writer thread, and creates the file and its tables if they are missing. For a read-only store, the
/// connection cannot write, and the file must have the current tables.
pub(super) fn writer(path: &Path, settings: &DatabaseSettings) -> Result<Connection, OpenFault> {
    if settings.is_read_only {
        let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY, settings)?;
        schema::must_be_current(&connection, path)?;
        return Ok(connection);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut connection = open(path, flags, settings)?;
    let has_read_only_mode = path
        .metadata()
        .is_ok_and(|metadata| metadata.permissions().readonly());
    if has_read_only_mode || connection.is_readonly(rusqlite::MAIN_DB)? {
        let path = path.to_owned();
        return Err(SqliteError::ReadOnly { path }.into());
    }
    schema::check(&connection)?;
    use_wal(&connection, settings.busy_timeout)?;
    let synchronous = match settings.durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // A WAL that grew during a long read is truncated to this size.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    schema::migrate(&mut connection)?;
    if let Some(bytes) = settings.file_bytes {
        limit_file(&connection, bytes)?;
    }
    Ok(connection)
}

/// Limits the size of the SQLite file for this connection. SQLite does not store the limit.
fn limit_file(connection: &Connection, bytes: u64) -> rusqlite::Result<()> {
    let page: i64 = connection.query_row("PRAGMA page_size", (), |row| row.get(0))?;
    let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
    // SQLite ignores a limit of zero. If the file is larger than the limit, its current size becomes the limit.
    let limit = format!(
        "PRAGMA max_page_count = {}",
        pages.clamp(1, i64::from(u32::MAX - 1))
    );
    connection.query_row(&limit, (), |_| Ok(()))
}

/// Returns `path`, the path of a SQLite file, as an absolute path. Rejects names that have a special meaning in SQLite.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, SqliteError> {
    let name = path.to_string_lossy();
    if name.is_empty() || name == ":memory:" || name.starts_with("file:") {
        return Err(SqliteError::NotAFile {
            path: path.to_owned(),
            reason: "the name is not a file path; use MemoryStore for a store in memory",
        });
    }
    std::path::absolute(path).map_err(|error| SqliteError::cannot_open(path, error))
}

/// Creates a missing SQLite file, unless the store is read-only. Returns the path without symbolic links, which SQLite also resolves before
/// it names the write-ahead log.
pub(super) fn prepare(path: &Path, settings: &DatabaseSettings) -> Result<PathBuf, SqliteError> {
    must_be_a_file(path)?;
    if !settings.is_read_only {
        create(path)?;
    }
    // Canonical Windows paths have a prefix that some programs cannot open.
    if cfg!(not(unix)) {
        return Ok(path.to_owned());
    }
    path.canonicalize()
        .map_err(|error| SqliteError::cannot_open(path, error))
}

/// Rejects the path of a folder, a device or a pipe for the SQLite file. SQLite reports every other reason why a file cannot be used.
fn must_be_a_file(path: &Path) -> Result<(), SqliteError> {
    let reason = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => "the path is a folder",
        Ok(metadata) if !metadata.is_file() => "the path is a device or a pipe",
        Ok(_) | Err(_) => return Ok(()),
    };
    Err(SqliteError::NotAFile {
        path: path.to_owned(),
        reason,
    })
}

/// Creates an empty SQLite file, unless the file exists. Only the file's owner can read it, because the file contains
/// conversations. SQLite gives the write-ahead log the same mode.
fn create(path: &Path) -> Result<(), SqliteError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(SqliteError::cannot_open(path, error)),
    }
}

/// Opens a SQLite connection for a reader thread.
pub(super) fn reader(path: &Path, settings: &DatabaseSettings) -> Result<Connection, OpenFault> {
    let flags = match settings.is_read_only {
        true => OpenFlags::SQLITE_OPEN_READ_ONLY,
        false => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let connection = open(path, flags, settings)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn open(
    path: &Path,
    flags: OpenFlags,
    settings: &DatabaseSettings,
) -> Result<Connection, OpenFault> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(settings.busy_timeout)?;
    set_up(&connection)?;
    Ok(connection)
}

/// Applies the settings that all connections to the SQLite file share.
pub(super) fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    const STATEMENTS: usize = 128;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this setting, SQLite plans a statement again when a parameter that can affect the plan changes, such as a limit. The
    // statements of this crate do not need that.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Sets the WAL mode (write-ahead log) of the SQLite file. SQLite does not wait while another process does the same, so this function
/// retries until the timeout.
fn use_wal(connection: &Connection, timeout: Duration) -> Result<(), OpenFault> {
    const PAUSE: Duration = Duration::from_millis(10);
    let started = Instant::now();
    loop {
        let mode = connection.query_row("PRAGMA journal_mode = WAL", (), |row| {
            row.get::<_, String>(0)
        });
        match mode {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(mode) => {
                let path = connection.path().unwrap_or_default().into();
                return Err(SqliteError::NoWal { path, mode }.into());
            }
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && started.elapsed() < timeout =>
            {
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::StatementStatus;

    #[test]
    fn a_statement_is_planned_once_for_all_bound_values() {
        let connection = Connection::open_in_memory().unwrap();
        set_up(&connection).unwrap();
        connection
            .execute_batch("CREATE TABLE t (a INTEGER)")
            .unwrap();
        let mut statement = connection
            .prepare("SELECT a FROM t WHERE a < ?1 ORDER BY a LIMIT ?2")
            .unwrap();

        for bound in 1..10 {
            assert!(!statement.exists((bound, bound)).unwrap());
        }

        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
