//! Connections to the server, set up alike.

use super::builder::Settings;
use super::error::PostgresError;
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
    let options: PgConnectOptions = url.parse().map_err(|_| {
        PostgresError::InvalidUrl("user, host, port, database or an option is wrong".into())
    })?;
    let options = options
        .application_name(&format!("universal-executor/{name}"))
        .statement_cache_capacity(256);
    Ok(options.disable_statement_logging())
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

/// Warns if the server may lose what it has committed, and fails if it is too old.
pub(super) async fn check(connection: &mut PgConnection) -> Result<(), PostgresError> {
    const OLDEST: i32 = 14;
    let row = sqlx::query(
        "SELECT current_setting('server_version_num')::int / 10000, current_setting('fsync') = 'on',
             current_setting('synchronous_commit') <> 'off'",
    );
    let row = row.fetch_one(connection).await?;
    let found: i32 = row.try_get(0)?;
    if found < OLDEST {
        return Err(PostgresError::OldServer { found });
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::store::postgres::PostgresStore;
    use std::error::Error as _;
    use std::time::Duration;

    #[tokio::test]
    async fn what_cannot_be_connected_is_told_without_the_password() {
        for url in [
            "postgres://ann:hunter2@127.0.0.1:1/none",
            "postgres://ann:hunter2@127.0.0.1:port/none",
            "postgres://ann:hunter2@127.0.0.1/none?sslmode=hunter2",
            "mysql://ann:hunter2@127.0.0.1/none",
        ] {
            let builder = PostgresStore::builder(url).patience(Duration::from_millis(50));
            let shown = format!("{builder:?}");
            let error = builder.connect().await.unwrap_err();

            let told = format!(
                "{shown} {error:?} {error} {:?}",
                error.source().map(ToString::to_string)
            );
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}
