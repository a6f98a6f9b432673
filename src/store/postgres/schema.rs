//! Tables of the PostgreSQL store, and migrations of tables from earlier versions.

use super::error::{ConnectFault, PostgresError};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// SQL migrations of the store's tables, each to the next version. The version of the tables is the number of applied migrations.
const MIGRATIONS: &[&str] = &[
    FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH, ELEVENTH, TWELFTH,
    THIRTEENTH, FOURTEENTH,
];

/// Version 1 of the store's tables, with tenants, breadcrumbs, runs, events and consumers. Times are in microseconds since 1970. JSON is
/// stored as text, because this crate evaluates it: `jsonb` would cost time and lose the order of keys.
const FIRST: &str = "
    -- `latest` is the time of the last commit, `sequence` and `position` the last of runs and events; what follows
    -- counts rows, so that a limit costs no scan. Who commits has the row locked until that is done: so positions and
    -- times are in the order of the commits, and none becomes visible after a later one.
    CREATE TABLE ux_tenants (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL UNIQUE, latest BIGINT NOT NULL,
        sequence BIGINT NOT NULL, position BIGINT NOT NULL, first_event BIGINT NOT NULL, breadcrumbs BIGINT NOT NULL,
        tombstones BIGINT NOT NULL, open_runs BIGINT NOT NULL, finished_runs BIGINT NOT NULL
    ) WITH (fillfactor = 50);

    -- The current version of each breadcrumb, or its tombstone, and which run wrote it.
    CREATE TABLE ux_breadcrumbs (
        serial BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant BIGINT NOT NULL, id UUID NOT NULL,
        version BIGINT NOT NULL, updated_at BIGINT NOT NULL, created_at BIGINT NOT NULL, ttl BIGINT,
        visibility SMALLINT NOT NULL, sensitivity SMALLINT NOT NULL, deleted BOOLEAN NOT NULL, schema_name TEXT,
        writer TEXT, correlation TEXT, hops BIGINT, created_by TEXT, updated_by TEXT, title TEXT NOT NULL,
        description TEXT, semantic_version TEXT, tags TEXT[] NOT NULL, llm_hints TEXT, context TEXT NOT NULL
    );
    CREATE UNIQUE INDEX ux_breadcrumbs_by_id ON ux_breadcrumbs (tenant, id);
    CREATE INDEX ux_breadcrumbs_by_time ON ux_breadcrumbs (tenant, updated_at) WHERE NOT deleted;
    CREATE INDEX ux_breadcrumbs_by_schema ON ux_breadcrumbs (tenant, schema_name, updated_at) WHERE NOT deleted;
    CREATE INDEX ux_breadcrumbs_by_tags ON ux_breadcrumbs USING gin (tags) WHERE NOT deleted;
    CREATE INDEX ux_breadcrumbs_by_end ON ux_breadcrumbs (tenant, ttl) WHERE ttl IS NOT NULL AND NOT deleted;
    CREATE INDEX ux_tombstones ON ux_breadcrumbs (tenant, updated_at) WHERE deleted;

    -- `head` says that no other run stands before it in its line; `over` is none while it is not over.
    CREATE TABLE ux_runs (
        serial BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant BIGINT NOT NULL, executor TEXT NOT NULL,
        trigger_id UUID NOT NULL, trigger_version BIGINT NOT NULL, state SMALLINT NOT NULL, epoch BIGINT NOT NULL,
        attempts BIGINT NOT NULL, abandoned BIGINT NOT NULL, token BIGINT NOT NULL, granted_at BIGINT NOT NULL,
        enqueued_at BIGINT NOT NULL, sequence BIGINT NOT NULL, due BIGINT, lease BIGINT NOT NULL,
        head BOOLEAN NOT NULL, line TEXT, event TEXT, correlation TEXT, hops BIGINT, saved TEXT, woken_by UUID,
        wake TEXT, suspended_at BIGINT, written UUID[] NOT NULL, reason TEXT, over BIGINT
    ) WITH (fillfactor = 70);
    CREATE UNIQUE INDEX ux_runs_by_name ON ux_runs (tenant, trigger_id, trigger_version, executor);
    CREATE INDEX ux_runs_by_state ON ux_runs (tenant, state, due, sequence);
    CREATE INDEX ux_runs_due ON ux_runs (tenant, executor, due, sequence) WHERE head AND due IS NOT NULL;
    CREATE INDEX ux_runs_lines ON ux_runs (tenant, executor, line, sequence) WHERE line IS NOT NULL AND over IS NULL;
    CREATE INDEX ux_runs_over ON ux_runs (tenant, over) WHERE over IS NOT NULL;

    -- The context is the breadcrumb's, as long as that has the version.
    CREATE TABLE ux_events (
        tenant BIGINT NOT NULL, position BIGINT NOT NULL, breadcrumb_id UUID NOT NULL, version BIGINT NOT NULL,
        updated_at BIGINT NOT NULL, kind SMALLINT NOT NULL, schema_name TEXT, tags TEXT NOT NULL,
        PRIMARY KEY (tenant, position)
    );

    CREATE TABLE ux_consumers (
        tenant BIGINT NOT NULL, name TEXT NOT NULL, position BIGINT NOT NULL, PRIMARY KEY (tenant, name)
    );

    CREATE TABLE ux_schema_version (version BIGINT NOT NULL);
    INSERT INTO ux_schema_version VALUES (0);
";

/// Version 2 of the store's tables, which adds the table `ux_alive`, by which the store detects crashes of the server. Its row
/// identifies the period since the last crash, because the table is unlogged and a crash empties unlogged tables.
const SECOND: &str = "
    CREATE UNLOGGED TABLE ux_alive (one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), since TEXT NOT NULL);
";

/// Version 3 of the store's tables, which adds a column for the claim ID of a lease. If the answer to a claim is lost, the store finds the
/// claim's runs by this ID.
const THIRD: &str = "
    ALTER TABLE ux_runs ADD COLUMN claim UUID;
";

/// Version 4 of the store's tables, which adds the records of workers, and an index of runs that wait for another version of
/// their executor. Until such a run ends, `reason` names the version of the executor to which it was transferred.
const FOURTH: &str = "
    CREATE TABLE ux_workers (
        tenant BIGINT NOT NULL, id TEXT NOT NULL, started_at BIGINT NOT NULL, seen_at BIGINT NOT NULL,
        record TEXT NOT NULL, PRIMARY KEY (tenant, id)
    );
    CREATE INDEX ux_runs_transferred ON ux_runs (tenant, executor, reason, sequence)
        WHERE reason IS NOT NULL AND over IS NULL;
";

/// Version 5 of the store's tables, which adds the cause of a run's last failed attempt.
const FIFTH: &str = "
    ALTER TABLE ux_runs ADD COLUMN cause TEXT;
";

/// Version 6 of the store's tables, which adds saved event positions of runtimes, one for each executor.
const SIXTH: &str = "
    CREATE TABLE ux_positions (
        tenant BIGINT NOT NULL, executor TEXT NOT NULL, saved_at BIGINT NOT NULL, position BYTEA NOT NULL,
        PRIMARY KEY (tenant, executor)
    );
";

/// Version 7 of the store's tables, which moves the run state to the front of an index, so that a lookup of one run never uses
/// this index. Only statements with a condition on the run state can then use the index. While the tables were small, the server
/// chose the old index to look up one run by its name: the estimated cost was the same, but it read all runs of the tenant.
const SEVENTH: &str = "
    DROP INDEX ux_runs_by_state;
    CREATE INDEX ux_runs_by_state ON ux_runs (state, tenant, due, sequence);
";

/// Version 8 of the store's tables, which adds the code of a run's failure and the time at which the run was added. The column
/// `enqueued_at` does not retain this time. Older rows have neither value.
const EIGHTH: &str = "
    ALTER TABLE ux_runs ADD COLUMN code TEXT, ADD COLUMN added_at BIGINT;
    -- A transferred run that ended kept its place before all others.
    UPDATE ux_runs SET sequence = sequence - 4611686018427387904
        WHERE over IS NOT NULL AND sequence >= 4611686018427387904;
";

/// Version 9 of the store's tables, which adds paused executors.
const NINTH: &str = "
    CREATE TABLE ux_paused (
        tenant BIGINT NOT NULL, executor TEXT NOT NULL, since BIGINT NOT NULL, PRIMARY KEY (tenant, executor)
    );
";

/// Version 10 of the store's tables, which adds the idempotency keys of requests. The key with the lowest `number` is checked
/// first, and then gets the next number.
const TENTH: &str = "
    CREATE TABLE ux_requests (
        tenant BIGINT NOT NULL, executor TEXT NOT NULL, request_key TEXT NOT NULL, trigger_id UUID NOT NULL,
        version BIGINT NOT NULL, digest TEXT NOT NULL, number BIGINT NOT NULL, checked_at BIGINT NOT NULL,
        PRIMARY KEY (tenant, executor, request_key)
    );
    CREATE INDEX ux_requests_by_number ON ux_requests (tenant, number);
";

/// Version 11 of the store's tables, which adds the number of idempotency keys to the tenant's row. It also adds an index of
/// idempotency keys by check time, for checks of old keys. The condition of the index prevents that the server looks up a key
/// with it, which would read all keys of the tenant.
const ELEVENTH: &str = "
    ALTER TABLE ux_tenants ADD COLUMN requests BIGINT NOT NULL DEFAULT 0;
    UPDATE ux_tenants AS n SET requests = (SELECT count(*) FROM ux_requests AS r WHERE r.tenant = n.id);
    DROP INDEX ux_requests_by_number;
    ALTER TABLE ux_requests DROP COLUMN number;
    CREATE INDEX ux_requests_by_check ON ux_requests (tenant, checked_at) WHERE checked_at > 0;
";

/// Version 12 of the store's tables, which adds a column that is true once a lease of the run has expired. The number of
/// abandoned leases only counts consecutive ones.
const TWELFTH: &str = "
    ALTER TABLE ux_runs ADD COLUMN has_expired BOOLEAN NOT NULL DEFAULT FALSE;
    UPDATE ux_runs SET has_expired = TRUE WHERE abandoned > 0;
";

/// Version 13 of the store's tables, which adds an index that lists suspended runs in the order of their sequence numbers. With
/// the index, a worker can read a million suspended runs page by page.
const THIRTEENTH: &str = "
    CREATE INDEX ux_runs_suspended ON ux_runs (tenant, sequence) WHERE state = 2;
";

/// Version 14 of the store's tables, which adds the inbox, with one row for each new breadcrumb that another program inserts in its own
/// transaction. `refused` is the reason why the store rejected a row. The notification has the form of those between processes.
const FOURTEENTH: &str = "
    CREATE TABLE ux_inbox (
        serial BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant TEXT NOT NULL DEFAULT 'default', id UUID,
        breadcrumb JSON NOT NULL CHECK (json_typeof(breadcrumb) = 'object' AND octet_length(breadcrumb::text) <= 2097152),
        refused TEXT, UNIQUE (tenant, id)
    );
    CREATE INDEX ux_inbox_by_tenant ON ux_inbox (tenant, serial) WHERE refused IS NULL;
    CREATE FUNCTION ux_inbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('ux_events', TG_TABLE_SCHEMA || ' inbox');
        RETURN NULL;
    END $$;
    CREATE TRIGGER ux_inbox_notify AFTER INSERT ON ux_inbox FOR EACH STATEMENT EXECUTE FUNCTION ux_inbox_notify();
";

fn newest_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Returns `true` if the store's tables have the newest version. Fails for a version that is newer than this crate supports.
pub(super) async fn is_current(
    connection: &mut PgConnection,
    schema: &str,
) -> Result<bool, ConnectFault> {
    Ok(find_version(connection, schema, newest_version()).await? == newest_version())
}

/// Migrates the store's tables to the newest version, in one transaction. Other processes that connect wait for it.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    schema: &str,
) -> Result<(), ConnectFault> {
    let known = newest_version();
    let mut transaction = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('universal-executor ' || $1, 0))")
        .bind(schema)
        .execute(&mut *transaction)
        .await?;
    let found = find_version(&mut transaction, schema, known).await?;
    log_migration(schema, found, known);
    let missing = MIGRATIONS
        .iter()
        .skip(usize::try_from(found).unwrap_or_default());
    if found == 0 {
        // Creating a schema needs a privilege that a user with an existing schema may lack.
        let has_schema = sqlx::query("SELECT 1 FROM pg_namespace WHERE nspname = $1").bind(schema);
        if has_schema
            .fetch_optional(&mut *transaction)
            .await?
            .is_none()
        {
            // The schema name was validated, so it needs no quotes.
            let create = AssertSqlSafe(format!("CREATE SCHEMA {schema}"));
            sqlx::raw_sql(create).execute(&mut *transaction).await?;
        }
    }
    for (version, migration) in (found + 1..).zip(missing) {
        let migrated = migrate_to(version, migration, &mut transaction).await;
        migrated.map_err(|error| ConnectFault::of_migration(version, error))?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Applies one migration to the store's tables, and records `version` as their new version.
async fn migrate_to(
    version: i64,
    migration: &'static str,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(migration).execute(&mut *connection).await?;
    sqlx::query("UPDATE ux_schema_version SET version = $1")
        .bind(version)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Logs a creation or a migration of the store's tables before it starts, because the migration of large tables takes long.
fn log_migration(schema: &str, found: i64, known: i64) {
    if found == 0 {
        tracing::info!(
            schema,
            version = known,
            "creating the tables of the PostgreSQL store"
        );
    } else if found < known {
        tracing::info!(
            schema,
            from = found,
            to = known,
            "migrating the tables of the PostgreSQL store"
        );
    }
}

/// Returns the version of the store's tables, or 0 without tables. Fails for a version that is newer than `known`. Changes nothing.
async fn find_version(
    connection: &mut PgConnection,
    schema: &str,
    known: i64,
) -> Result<i64, ConnectFault> {
    let has_version =
        "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'ux_schema_version'";
    let has_version = sqlx::query(has_version).bind(schema);
    if has_version
        .fetch_optional(&mut *connection)
        .await?
        .is_none()
    {
        return Ok(0);
    }
    let version = sqlx::query_scalar::<_, i64>("SELECT version FROM ux_schema_version");
    let found = version.fetch_optional(&mut *connection).await?.unwrap_or(0);
    if found > known {
        let error = PostgresError::NewerSchema {
            schema: schema.to_owned(),
            found,
            known,
        };
        return Err(error.into());
    }
    Ok(found)
}
