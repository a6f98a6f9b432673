//! Connections to the server, set up alike.

use super::builder::Settings;
use super::error::{ConnectFault, PostgresError};
use crate::store::StoreId;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection, Row as _};

/// What connects to the server as the settings say.
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
            "it does not begin with postgres://".into(),
        ));
    }
    refuse_unsupported(url)?;
    let options: PgConnectOptions = url.parse().map_err(|_| {
        PostgresError::InvalidUrl("user, host, port, database or an option is wrong".into())
    })?;
    let options = options
        .application_name(&format!("universal-executor/{name}"))
        .statement_cache_capacity(256);
    Ok(options.disable_statement_logging())
}

/// Returns a name of the tables that no other ones have, without credentials. Tables that are reached in two ways, for example by
/// two host names, have two names. So does each connection with options of the server, which can lead to other tables.
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

/// Parameters of a connection string that `sqlx` reads. It logs the name and the value of every other one.
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

/// Parameters of other PostgreSQL clients. Only these names are repeated in an error, because an unknown name can be part
/// of a password with an unescaped `?` or `&`.
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

/// Refuses a connection string with a parameter that the driver does not read.
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

/// What a connection is told first. As options of its start a pooler between would refuse them, or leave them out and not
/// say so.
pub(super) fn set_up(settings: &Settings) -> String {
    let patience = settings.patience.as_millis().max(1).to_string();
    let set = [
        // The name was checked: it needs no quotes.
        ("search_path", settings.schema.as_str()),
        ("lock_timeout", &patience),
        // A process that was stopped in a transaction shall not keep others from the tenant.
        ("idle_in_transaction_session_timeout", &patience),
        ("default_transaction_isolation", "'read committed'"),
        // Everything is found by an index. A plan that was made while the tables were small would read all of them,
        // and be kept when they are not.
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
    ];
    let set = set.map(|(name, value)| format!("SET {name} = {value}"));
    set.join("; ")
}

/// Warns if the server may lose commits or accepts no writes, and fails if its version is too old. Returns `true` if the user may
/// execute the function that makes all commits before durable.
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
            "fsync is off: the database may be damaged and lose commits when the machine of the server ends"
        );
    }
    if !row.try_get::<bool, _>(2)? {
        tracing::warn!(
            "synchronous_commit is off: the last commits may be lost when the server ends"
        );
    }
    if row.try_get::<bool, _>(3)? {
        tracing::warn!(
            "the server is read-only: commits fail until the connection string names the primary or \
             default_transaction_read_only is off"
        );
    }
    Ok(row.try_get(4)?)
}

/// Makes all commits before durable. The function writes a small record to the log of the server, so that the statement's own
/// commit waits until the log is on disk, and on the synchronous standbys.
pub(super) const FLUSH: &str = "SELECT pg_logical_emit_message(TRUE, 'universal-executor', '')";

/// The same, for a transaction that changed nothing. Its answer can depend on a commit that is not durable yet.
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
    async fn what_cannot_be_connected_is_told_without_the_password() {
        for url in [
            "postgres://ann:hunter2@127.0.0.1:1/none",
            "postgres://ann:hunter2@127.0.0.1:port/none",
            "postgres://ann:hunter2@127.0.0.1/none?sslmode=hunter2",
            "mysql://ann:hunter2@127.0.0.1/none",
        ] {
            let builder = PostgresStore::builder(url).wait_timeout(Duration::from_millis(50));
            let shown = format!("{builder:?}");
            let error = builder.connect().await.unwrap_err();

            let told = format!(
                "{shown} {error:?} {error} {:?}",
                error.source().map(ToString::to_string)
            );
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    /// Answers the first connection with "starting up" and the others not at all.
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

        let told = Chain(&error).to_string();
        assert!(told.contains("starting up"), "{told}");
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
