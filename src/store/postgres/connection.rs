//! Options and setup of connections to the PostgreSQL server.

use super::builder::Settings;
use super::error::{ConnectFault, PostgresError};
use crate::store::StoreId;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection, Row as _};

/// Returns the options of connections to the PostgreSQL server. Fails for an invalid schema name or connection string.
pub(super) fn options(url: &str, settings: &Settings) -> Result<PgConnectOptions, PostgresError> {
    let name = &settings.schema;
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_name = !name.is_empty()
        && name.len() <= 40
        && name.bytes().all(is_plain)
        && !name.starts_with(|first: char| first.is_ascii_digit());
    if !is_name {
        return Err(PostgresError::InvalidSchema { name: name.clone() });
    }
    if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
        return Err(PostgresError::InvalidUrl(
            "the connection string does not start with postgres:// or postgresql://".into(),
        ));
    }
    refuse_unsupported(url)?;
    let options: PgConnectOptions = url.parse().map_err(|_| {
        PostgresError::InvalidUrl(
            "the user, host, port, database or an option in the connection string is invalid"
                .into(),
        )
    })?;
    let options = options
        .application_name(&format!("universal-executor/{name}"))
        .statement_cache_capacity(256);
    Ok(options.disable_statement_logging())
}

/// Returns a name that identifies the PostgreSQL tables of a store. The name contains the user, but no password. Tables that are reachable
/// in two ways, for example by two host names, have two names. Each connection with server options gets its own name, because such options
/// can select other tables.
pub(super) fn name(options: &PgConnectOptions, schema: &str) -> String {
    if options.get_options().is_some() {
        return StoreId::unique("").database().to_owned();
    }
    let user = options.get_username();
    format!(
        "PostgreSQL database {:?} of {user:?} at {} {:?} port {}, schema {schema}",
        options.get_database().unwrap_or(user),
        options.get_host(),
        options.get_socket(),
        options.get_port(),
    )
}

/// PostgreSQL connection string parameters that the driver `sqlx` reads. `sqlx` logs the name and the value of every other parameter.
const SUPPORTED: [&str; 18] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// Connection string parameters of other PostgreSQL clients, which the PostgreSQL driver `sqlx` does not support. An error
/// repeats only these names, because an unknown name can be part of a password with an unescaped `?` or `&`.
const UNSUPPORTED: [&str; 13] = [
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "gssencmode",
    "keepalives",
    "keepalives_idle",
    "passfile",
    "pgbouncer",
    "pool_max_conns",
    "schema",
    "sslpassword",
    "target_session_attrs",
    "tcp_user_timeout",
];

/// Returns an error if a PostgreSQL connection string contains a parameter that the PostgreSQL driver `sqlx` does not read.
fn refuse_unsupported(url: &str) -> Result<(), PostgresError> {
    let before_fragment = url.split('#').next().unwrap_or(url);
    let Some((_, query)) = before_fragment.split_once('?') else {
        return Ok(());
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    for (at, pair) in pairs.enumerate() {
        let name = pair.split('=').next().unwrap_or(pair);
        let is_option = ["options[", "options%5B", "options%5b"]
            .iter()
            .any(|start| name.starts_with(start));
        if !is_option && !SUPPORTED.contains(&name) {
            let mut known = UNSUPPORTED.into_iter();
            return Err(PostgresError::UnsupportedParameter {
                number: at + 1,
                name: known.find(|known| *known == name),
            });
        }
    }
    Ok(())
}

/// Returns the `SET` statements that each new PostgreSQL connection executes first. A connection pooler could reject startup options, or
/// ignore them silently, so the settings are sent as statements.
pub(super) fn set_up(settings: &Settings) -> String {
    let wait_timeout = settings.wait_timeout.as_millis().max(1).to_string();
    let set = [
        // The schema name was validated, so it needs no quotes.
        ("search_path", settings.schema.as_str()),
        ("lock_timeout", &wait_timeout),
        // A process that stopped within a transaction must not block the tenant for others.
        ("idle_in_transaction_session_timeout", &wait_timeout),
        ("default_transaction_isolation", "'read committed'"),
        // Every lookup has an index. A cached plan from a time when the tables were small would otherwise keep using sequential
        // scans after they have grown.
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
    ];
    let set = set.map(|(name, value)| format!("SET {name} = {value}"));
    set.join("; ")
}

/// Logs a warning if the PostgreSQL server can lose commits or accepts no writes, and fails if its version is too old. Returns `true` if
/// the user may execute the function that makes all earlier commits durable.
pub(super) async fn check(connection: &mut PgConnection) -> Result<bool, ConnectFault> {
    const OLDEST: i32 = 14;
    let row = sqlx::query(
        "SELECT current_setting('server_version_num')::int / 10000, current_setting('fsync') = 'on',
             current_setting('synchronous_commit') <> 'off', current_setting('transaction_read_only') = 'on',
             coalesce(has_function_privilege(to_regprocedure('pg_logical_emit_message(boolean,text,text)'), 'EXECUTE'),
                 has_function_privilege(to_regprocedure('pg_logical_emit_message(boolean,text,text,boolean)'), 'EXECUTE'),
                 FALSE)",
    );
    let row = row.fetch_one(connection).await?;
    let found: i32 = row.try_get(0)?;
    if found < OLDEST {
        return Err(PostgresError::OldServer { found }.into());
    }
    if !row.try_get::<bool, _>(1)? {
        tracing::warn!(
            "fsync is off on the PostgreSQL server: a crash of its machine can lose commits and damage the database"
        );
    }
    if !row.try_get::<bool, _>(2)? {
        tracing::warn!(
            "synchronous_commit is off on the PostgreSQL server: a crash of the server can lose the last commits"
        );
    }
    if row.try_get::<bool, _>(3)? {
        tracing::warn!(
            "the PostgreSQL server is read-only: commits fail until the connection string names the primary or \
             default_transaction_read_only is off"
        );
    }
    Ok(row.try_get(4)?)
}

/// SQL statement that makes all earlier commits on the PostgreSQL server durable. The function writes a small record to the server's log,
/// so the statement's own commit waits until the log is on disk, and on the synchronous standbys.
pub(super) const FLUSH: &str = "SELECT pg_logical_emit_message(TRUE, 'universal-executor', '')";

/// SQL statement that makes earlier commits durable after a transaction that wrote nothing, because its result can depend on a
/// commit that is not durable yet. It does nothing if the server knows that all commits are durable. See also [`FLUSH`].
pub(super) const FLUSH_IF_BEHIND: &str = "
    SELECT pg_logical_emit_message(TRUE, 'universal-executor', '')
    WHERE current_setting('synchronous_standby_names') <> '' OR pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()";

#[cfg(test)]
mod tests {
    use super::{PostgresError, refuse_unsupported};
    use crate::error::Chain;
    use crate::store::postgres::PostgresStore;
    use std::error::Error as _;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_connection_error_does_not_contain_the_password() {
        for url in [
            "postgres://ann:hunter2@127.0.0.1:1/none",
            "postgres://ann:hunter2@127.0.0.1:port/none",
            "postgres://ann:hunter2@127.0.0.1/none?sslmode=hunter2",
            "mysql://ann:hunter2@127.0.0.1/none",
        ] {
            let builder = PostgresStore::builder(url).wait_timeout(Duration::from_millis(50));
            let builder_text = format!("{builder:?}");
            let error = builder.connect().await.unwrap_err();

            let text = format!(
                "{builder_text} {error:?} {error} {:?}",
                error.source().map(ToString::to_string)
            );
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    /// Answers the first connection with "starting up", and does not answer the others.
    async fn start_up(listener: TcpListener) {
        let (mut first, _) = listener.accept().await.unwrap();
        let mut length = [0; 4];
        first.read_exact(&mut length).await.unwrap();
        let mut startup = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
        first.read_exact(&mut startup).await.unwrap();
        let fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
        let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
        let answer = [b"E", length.as_slice(), fields].concat();
        first.write_all(&answer).await.unwrap();
        first.shutdown().await.unwrap();

        let mut silent = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            silent.push(connection);
        }
    }

    #[tokio::test]
    async fn a_connect_that_runs_out_of_time_names_the_failure_of_the_attempt_before() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let server = tokio::spawn(start_up(listener));
        let url = format!("postgres://ann@{at}/app?sslmode=disable");

        let builder = PostgresStore::builder(url).wait_timeout(Duration::from_millis(500));
        let error = builder.connect().await.unwrap_err();
        server.abort();

        let text = Chain(&error).to_string();
        assert!(text.contains("starting up"), "{text}");
    }

    #[tokio::test]
    async fn an_unsupported_parameter_is_refused_before_the_driver_can_log_its_value() {
        let url = "postgres://ann@127.0.0.1:1/none";
        for (query, number, known) in [
            ("connect_timeout=hunter2", 1, Some("connect_timeout")),
            (
                "sslmode=disable&sslpassword=hunter2",
                2,
                Some("sslpassword"),
            ),
            ("passwort=hunter2", 1, None),
            ("&hunter2", 1, None),
            ("hunter2@host/db", 1, None),
            ("SSLMODE=hunter2", 1, None),
            ("option[a]=hunter2#x", 1, None),
        ] {
            let builder = PostgresStore::builder(format!("{url}?{query}"));
            let error = builder.connect().await.unwrap_err();

            let PostgresError::UnsupportedParameter { number: at, name } = &error else {
                panic!("{query}: {error:?}")
            };
            assert_eq!((*at, *name), (number, known), "{query}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn every_parameter_that_the_driver_reads_is_accepted() {
        let queries = [
            "",
            "?",
            "?sslmode=disable&user=ann&&password=a%26b",
            "?options=-c%20geqo%3Doff&options[work_mem]=1&options%5Bgeqo%5D=off",
            "?statement-cache-capacity=5&dbname=a&hostaddr=127.0.0.1&port=1&application_name=b",
            "#?unknown=1",
        ];
        for query in queries {
            let url = format!("postgres://ann@127.0.0.1/none{query}");

            assert!(refuse_unsupported(&url).is_ok(), "{url}");
        }
    }
}
