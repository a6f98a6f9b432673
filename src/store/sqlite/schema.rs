//! Tables of the SQLite store, and migrations of files from earlier versions.

use super::error::{OpenFault, SqliteError};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use std::path::{Path, PathBuf};

/// SQL migrations of the store's tables, each to the next version. The version of a file is the number of applied migrations.
const MIGRATIONS: &[&str] = &[
    FIRST, VECTORS, WORKERS, CAUSES, POSITIONS, CLAIMS, LISTENERS, PAGES, PAUSES, REQUESTS, KEYS,
    EXPIRED, SUSPENDED, INBOX,
];

/// Version 1 of the store's tables, with tenants, breadcrumbs, runs, events and consumers. Times are in microseconds since 1970, IDs have
/// 16 bytes, and JSON is text. All names start with `ux_`, so that the file can also have tables of the application.
const FIRST: &str = "
    -- `latest` is the time of the last commit, `sequence` and `position` the last of runs and events; what follows
    -- counts rows, so that a limit costs no scan.
    CREATE TABLE ux_tenants (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, latest INTEGER NOT NULL, sequence INTEGER NOT NULL,
        position INTEGER NOT NULL, first_event INTEGER NOT NULL, breadcrumbs INTEGER NOT NULL,
        tombstones INTEGER NOT NULL, open_runs INTEGER NOT NULL, finished_runs INTEGER NOT NULL
    ) STRICT;

    -- The current version of each breadcrumb, or its tombstone, and which run wrote it.
    CREATE TABLE ux_breadcrumbs (
        serial INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, id BLOB NOT NULL, version INTEGER NOT NULL,
        schema_name TEXT, updated_at INTEGER NOT NULL, created_at INTEGER NOT NULL, ttl INTEGER,
        deleted INTEGER NOT NULL, visibility INTEGER NOT NULL, sensitivity INTEGER NOT NULL,
        writer TEXT, correlation TEXT, hops INTEGER, created_by TEXT, updated_by TEXT,
        title TEXT NOT NULL, description TEXT, semantic_version TEXT, tags TEXT NOT NULL, llm_hints TEXT,
        context TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX ux_breadcrumbs_by_id ON ux_breadcrumbs (tenant, id);
    CREATE INDEX ux_breadcrumbs_by_time ON ux_breadcrumbs (tenant, updated_at) WHERE deleted = 0;
    CREATE INDEX ux_breadcrumbs_by_schema ON ux_breadcrumbs (tenant, schema_name, updated_at) WHERE deleted = 0;
    CREATE INDEX ux_breadcrumbs_by_end ON ux_breadcrumbs (tenant, ttl) WHERE ttl IS NOT NULL AND deleted = 0;
    CREATE INDEX ux_tombstones ON ux_breadcrumbs (tenant, updated_at) WHERE deleted = 1;

    -- No two commits of a tenant have one time, so the time names the breadcrumb.
    CREATE TABLE ux_tags (
        tenant INTEGER NOT NULL, tag TEXT NOT NULL, updated_at INTEGER NOT NULL, serial INTEGER NOT NULL,
        schema_name TEXT, PRIMARY KEY (tenant, tag, updated_at)
    ) STRICT, WITHOUT ROWID;

    -- `head` says that no other run stands before it in its line; `over` is none while it is not over.
    CREATE TABLE ux_runs (
        serial INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, executor TEXT NOT NULL, trigger_id BLOB NOT NULL,
        trigger_version INTEGER NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, attempts INTEGER NOT NULL,
        abandoned INTEGER NOT NULL, token INTEGER NOT NULL, granted_at INTEGER NOT NULL,
        enqueued_at INTEGER NOT NULL, sequence INTEGER NOT NULL, due INTEGER, head INTEGER NOT NULL,
        lease INTEGER NOT NULL, line TEXT, event TEXT, correlation TEXT, hops INTEGER, saved TEXT, woken_by BLOB,
        wake TEXT, suspended_at INTEGER, written BLOB NOT NULL, reason TEXT, over INTEGER
    ) STRICT;
    CREATE UNIQUE INDEX ux_runs_by_name ON ux_runs (tenant, executor, trigger_id, trigger_version);
    CREATE INDEX ux_runs_by_trigger ON ux_runs (tenant, trigger_id, state);
    CREATE INDEX ux_runs_by_state ON ux_runs (tenant, state, due, sequence);
    CREATE INDEX ux_runs_due ON ux_runs (tenant, executor, due, sequence) WHERE head = 1 AND due IS NOT NULL;
    CREATE INDEX ux_runs_lines ON ux_runs (tenant, executor, line, sequence) WHERE line IS NOT NULL AND over IS NULL;
    CREATE INDEX ux_runs_over ON ux_runs (tenant, over) WHERE over IS NOT NULL;

    -- The context is the breadcrumb's, as long as that has the version.
    CREATE TABLE ux_events (
        tenant INTEGER NOT NULL, position INTEGER NOT NULL, kind INTEGER NOT NULL, breadcrumb_id BLOB NOT NULL,
        version INTEGER NOT NULL, updated_at INTEGER NOT NULL, schema_name TEXT, tags TEXT NOT NULL,
        PRIMARY KEY (tenant, position)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE ux_consumers (
        tenant INTEGER NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (tenant, name)
    ) STRICT, WITHOUT ROWID;
";

/// Version 2 of the store's tables, which adds the vectors of breadcrumbs. A vector is deleted with its breadcrumb version. All vectors
/// come from one embedder. `since` gets another value each time all vectors are deleted.
const VECTORS: &str = "
    CREATE TABLE ux_embedder (
        only INTEGER PRIMARY KEY CHECK (only = 1), model TEXT NOT NULL, dimensions INTEGER NOT NULL,
        since INTEGER NOT NULL
    ) STRICT;

    -- Four bytes for each dimension, the lowest first; none for what says nothing that could have a vector.
    CREATE TABLE ux_vectors (serial INTEGER PRIMARY KEY, vector BLOB) STRICT;
    CREATE TRIGGER ux_vectors_of_changed AFTER UPDATE OF version ON ux_breadcrumbs BEGIN
        DELETE FROM ux_vectors WHERE serial = OLD.serial;
    END;
    CREATE TRIGGER ux_vectors_of_removed AFTER DELETE ON ux_breadcrumbs BEGIN
        DELETE FROM ux_vectors WHERE serial = OLD.serial;
    END;
";

/// Version 3 of the store's tables, which adds the records of workers and an index of transferred runs. Until such a run ends, `reason`
/// names the version of the executor to which it was transferred.
const WORKERS: &str = "
    CREATE TABLE ux_workers (
        tenant INTEGER NOT NULL, id TEXT NOT NULL, started_at INTEGER NOT NULL, seen_at INTEGER NOT NULL,
        record TEXT NOT NULL, PRIMARY KEY (tenant, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX ux_runs_transferred ON ux_runs (tenant, executor, reason, sequence)
        WHERE reason IS NOT NULL AND over IS NULL;
";

/// Version 4 of the store's tables, which adds the cause of a run's last failed attempt.
const CAUSES: &str = "
    ALTER TABLE ux_runs ADD COLUMN cause TEXT;
";

/// Version 5 of the store's tables, which adds saved event positions of runtimes, one for each executor.
const POSITIONS: &str = "
    CREATE TABLE ux_positions (
        tenant INTEGER NOT NULL, executor TEXT NOT NULL, saved_at INTEGER NOT NULL, position BLOB NOT NULL,
        PRIMARY KEY (tenant, executor)
    ) STRICT, WITHOUT ROWID;
";

/// Version 6 of the store's tables, which adds the claim ID of a run's newest lease.
const CLAIMS: &str = "
    ALTER TABLE ux_runs ADD COLUMN claim BLOB;
";

/// Version 7 of the store's tables, which adds the sockets to which each commit with events sends a datagram. The ID is the file name of
/// the socket.
const LISTENERS: &str = "
    CREATE TABLE ux_listeners (id BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
";

/// Version 8 of the store's tables, which adds the code of a run's failure and the time at which the run was added. The column
/// `enqueued_at` does not retain this time, because claims and wake-ups overwrite it. Older rows have neither value.
const PAGES: &str = "
    ALTER TABLE ux_runs ADD COLUMN code TEXT;
    ALTER TABLE ux_runs ADD COLUMN added_at INTEGER;
    -- A transferred run that ended kept its place before all others.
    UPDATE ux_runs SET sequence = sequence - 4611686018427387904
        WHERE over IS NOT NULL AND sequence >= 4611686018427387904;
";

/// Version 9 of the store's tables, which adds paused executors.
const PAUSES: &str = "
    CREATE TABLE ux_paused (
        tenant INTEGER NOT NULL, executor TEXT NOT NULL, since INTEGER NOT NULL, PRIMARY KEY (tenant, executor)
    ) STRICT, WITHOUT ROWID;
";

/// Version 10 of the store's tables, which adds the idempotency keys of requests. The key with the lowest `number` is checked
/// first, and then gets the next number.
const REQUESTS: &str = "
    CREATE TABLE ux_requests (
        tenant INTEGER NOT NULL, executor TEXT NOT NULL, request_key TEXT NOT NULL, trigger_id BLOB NOT NULL,
        version INTEGER NOT NULL, digest TEXT NOT NULL, number INTEGER NOT NULL, checked_at INTEGER NOT NULL,
        PRIMARY KEY (tenant, executor, request_key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX ux_requests_by_number ON ux_requests (tenant, number, checked_at);
";

/// Version 11 of the store's tables, which adds the number of idempotency keys to the tenant's row. It also adds an index of the
/// idempotency keys by `checked_at`, so that the keys are checked in the order of this time.
const KEYS: &str = "
    ALTER TABLE ux_tenants ADD COLUMN requests INTEGER NOT NULL DEFAULT 0;
    UPDATE ux_tenants SET requests = (SELECT count(*) FROM ux_requests AS r WHERE r.tenant = ux_tenants.id);
    DROP INDEX ux_requests_by_number;
    ALTER TABLE ux_requests DROP COLUMN number;
    CREATE INDEX ux_requests_by_check ON ux_requests (tenant, checked_at);
";

/// Version 12 of the store's tables, which adds a column that is true once a lease of the run has expired. The number of
/// abandoned leases only counts consecutive ones.
const EXPIRED: &str = "
    ALTER TABLE ux_runs ADD COLUMN has_expired INTEGER NOT NULL DEFAULT 0;
    UPDATE ux_runs SET has_expired = 1 WHERE abandoned > 0;
";

/// Version 13 of the store's tables, which adds an index that lists suspended runs in the order of their sequence numbers. With
/// the index, a worker can read a million suspended runs page by page.
const SUSPENDED: &str = "
    CREATE INDEX ux_runs_suspended ON ux_runs (tenant, sequence) WHERE state = 2;
";

/// Version 14 of the store's tables, which adds the inbox, with one row for each new breadcrumb that another program inserts in its own
/// transaction. `refused` is the reason why the store rejected a row. The constraints work with SQLite 3.38 and later, because the program
/// can have an older version than this crate.
const INBOX: &str = "
    CREATE TABLE ux_inbox (
        serial INTEGER PRIMARY KEY, tenant TEXT NOT NULL DEFAULT 'default', id BLOB CHECK (length(id) = 16),
        breadcrumb TEXT NOT NULL CHECK (json_valid(breadcrumb) AND json_type(breadcrumb) = 'object'
            AND length(CAST(breadcrumb AS BLOB)) <= 2097152),
        refused TEXT, UNIQUE (tenant, id)
    ) STRICT;
    CREATE INDEX ux_inbox_by_tenant ON ux_inbox (tenant, serial) WHERE refused IS NULL;
";

/// Returns the schema version of a SQLite file, or 0 without the store's tables. Fails for a version that is newer than this crate
/// supports. Changes nothing.
pub(super) fn check(connection: &Connection) -> Result<i64, OpenFault> {
    let found = match has_table(connection, "ux_schema_version")? {
        true => connection
            .prepare_cached("SELECT version FROM ux_schema_version")?
            .query_row((), |row| row.get(0))
            .optional()?
            .unwrap_or(0),
        false => match has_table(connection, "ux_tenants")? {
            true => {
                let source = "table ux_schema_version is missing, and table ux_tenants exists";
                return Err(SqliteError::NotADatabase {
                    path: path_of(connection),
                    source: source.into(),
                }
                .into());
            }
            false => 0,
        },
    };
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        let path = path_of(connection);
        return Err(SqliteError::NewerSchema { path, found, known }.into());
    }
    Ok(found)
}

/// Fails unless the SQLite file has the current schema version. Changes nothing.
pub(super) fn must_be_current(connection: &Connection, path: &Path) -> Result<(), OpenFault> {
    let found = check(connection)?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let error = match found {
        0 => SqliteError::NotADatabase {
            path: path.to_owned(),
            source: "table ux_schema_version is missing".into(),
        },
        found if found < known => SqliteError::OlderSchema {
            path: path.to_owned(),
            found,
            known,
        },
        _ => return Ok(()),
    };
    Err(error.into())
}

/// Returns the path of a connection's SQLite file, which is empty for a database in memory.
fn path_of(connection: &Connection) -> PathBuf {
    connection.path().unwrap_or_default().into()
}

fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?
        .exists([name])
}

/// Migrates a SQLite file to the newest schema version, in one transaction under the write lock. Several processes can do this at the same
/// time.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), OpenFault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = check(&transaction)?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    // Logged before the work, because the migration of large tables takes long.
    if found == 0 {
        tracing::info!(version = known, "creating the tables of the SQLite store");
    } else if found < known {
        tracing::info!(
            from = found,
            to = known,
            "migrating the tables of the SQLite store"
        );
    }
    let missing = MIGRATIONS
        .iter()
        .skip(usize::try_from(found).unwrap_or_default());
    for (version, migration) in (found + 1..).zip(missing) {
        migrate_to(version, migration, &transaction)
            .map_err(|error| OpenFault::of_migration(version, error))?;
    }
    transaction.commit()?;
    Ok(())
}

/// Applies one migration to the store's tables, and records `version` as their new version.
fn migrate_to(version: i64, migration: &str, connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(migration)?;
    connection.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS ux_schema_version (version INTEGER NOT NULL) STRICT;
         DELETE FROM ux_schema_version;
         INSERT INTO ux_schema_version VALUES ({version});"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{
        connection, events, inbox, list, queue, requests, retention, row, table, vectors,
    };
    use super::*;
    use crate::error::Chain;
    use crate::store::RunState;
    use crate::store::run_page::RowSelection;
    use rusqlite::params_from_iter;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Migrates a database, and returns the result and the log lines.
    fn logged(connection: &mut Connection) -> (Result<(), OpenFault>, Vec<String>) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        // While only one dispatcher exists, `tracing` may disable a callsite because of another test's thread.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let guard = tracing::subscriber::set_default(subscriber);
        let migrated = migrate(connection);
        drop(guard);
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        (migrated, text.lines().map(str::to_owned).collect())
    }

    /// Creates a database with the tables of an older version.
    fn of_version(version: usize) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection::set_up(&connection).unwrap();
        for (at, migration) in (1..).zip(&MIGRATIONS[..version]) {
            migrate_to(at, migration, &connection).unwrap();
        }
        connection
    }

    #[test]
    fn the_tables_are_created_or_migrated_with_one_log_line() {
        let newest = MIGRATIONS.len();
        for (version, expected) in [
            (
                0,
                format!("creating the tables of the SQLite store version={newest}"),
            ),
            (
                3,
                format!("migrating the tables of the SQLite store from=3 to={newest}"),
            ),
        ] {
            let mut tables = of_version(version);

            let (migrated, lines) = logged(&mut tables);

            migrated.unwrap();
            let [line] = &*lines else {
                panic!("{lines:#?}");
            };
            assert!(line.contains("INFO") && line.ends_with(&expected), "{line}");
            let (again, lines) = logged(&mut tables);
            again.unwrap();
            assert_eq!(lines, Vec::<String>::new());
        }
    }

    #[test]
    fn the_error_of_a_migration_names_the_version_at_which_it_failed() {
        let newest = MIGRATIONS.len();
        let mut tables = of_version(3);
        tables
            .execute_batch("CREATE TABLE ux_inbox (other INTEGER)")
            .unwrap();

        let error = SqliteError::from(migrate(&mut tables).unwrap_err());

        let text = Chain(&error).to_string();
        let message = format!("cannot migrate the tables of the SQLite store to version {newest}");
        assert!(text.contains(&message), "{text}");
        assert!(text.contains("ux_inbox already exists"), "{text}");
        assert_eq!(check(&tables).unwrap(), 3);
    }

    #[test]
    fn frequent_statements_use_an_index_without_scanning_or_sorting() {
        let mut tables = Connection::open_in_memory().unwrap();
        connection::set_up(&tables).unwrap();
        migrate(&mut tables).unwrap();
        let failed = list::state_query(RunState::Failed, RowSelection::Over);
        let suspended = list::state_query(RunState::Suspended, RowSelection::NotDue);
        for sql in [
            &*failed,
            &*suspended,
            events::NEXT,
            inbox::OLDEST,
            inbox::HAS_ROWS,
            queue::DUE,
            queue::FIRST,
            queue::OVERTAKEN,
            queue::TRANSFERRED,
            requests::OLD,
            retention::EVENTS,
            retention::RUNS,
            retention::TOMBSTONES,
            row::BY_NAME,
            table::BY_ID,
            table::EXPIRED,
            vectors::OF,
            vectors::WITHOUT,
        ] {
            let mut plan = tables
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                .unwrap();
            let values = params_from_iter(vec![1; plan.parameter_count()]);
            let steps = plan
                .query_map(values, |row| row.get::<_, String>(3))
                .unwrap();
            let steps: Vec<String> = steps.map(|step| step.unwrap()).collect();
            let is_bad = |step: &String| step.starts_with("SCAN") || step.contains("TEMP B-TREE");
            assert!(!steps.iter().any(is_bad), "{sql}: {steps:?}");
        }
    }
}
