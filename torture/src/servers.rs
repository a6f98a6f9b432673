//! PostgreSQL and NATS servers for campaigns, and their faults. `scripts/services` starts, restarts and stops them.

use crate::BoxError;
use crate::backend::Backend;
use crate::settings::On;
use sqlx::Connection as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tokio::process::Command;

/// Servers with a unique name, so that other servers on the machine are not affected.
pub struct Servers {
    name: String,
    postgres: String,
    nats: String,
}

impl Servers {
    /// Starts both servers.
    pub async fn start() -> Result<Self, BoxError> {
        let name = format!("torture-{}", std::process::id());
        let started = services(&name, &["start"]).await?;
        let told = String::from_utf8(started.stdout)?;
        let url = |variable: &str| {
            let mut lines = told.lines().filter_map(|line| line.split_once('='));
            let found = lines.find(|(name, _)| *name == variable);
            let (_, url) =
                found.ok_or_else(|| format!("scripts/services printed no {variable}"))?;
            Ok::<_, BoxError>(url.to_owned())
        };
        Ok(Self {
            postgres: url("POSTGRES_URL")?,
            nats: url("NATS_URL")?,
            name,
        })
    }

    /// Returns the port of PostgreSQL.
    pub fn port(&self) -> Result<u16, BoxError> {
        let (_, rest) = self
            .postgres
            .rsplit_once(':')
            .ok_or("the PostgreSQL URL has no port")?;
        let (port, _) = rest
            .split_once('/')
            .ok_or("the PostgreSQL URL has no port")?;
        Ok(port.parse()?)
    }

    /// Returns the location of a campaign's store on these servers. PostgreSQL is reached through the proxy at `port`.
    pub fn backend(&self, on: On, folder: &Path, port: u16) -> Result<Backend, BoxError> {
        let schema = schema(folder);
        let url = self
            .postgres
            .replace(&format!(":{}/", self.port()?), &format!(":{port}/"));
        Ok(match on {
            On::Sqlite => Backend::Sqlite {
                file: folder.join("store.db"),
            },
            On::Postgres => Backend::Postgres { url, schema },
            On::Nats => Backend::Nats {
                url,
                schema,
                nats: self.nats.clone(),
            },
        })
    }

    /// Stops PostgreSQL as in a crash, and starts it again after some seconds.
    pub async fn restart_postgres(&self, seconds: f64) -> Result<(), BoxError> {
        self.restart("postgres", seconds).await
    }

    /// Kills the NATS server, and starts it again after some seconds.
    pub async fn restart_nats(&self, seconds: f64) -> Result<(), BoxError> {
        self.restart("nats", seconds).await
    }

    async fn restart(&self, server: &str, seconds: f64) -> Result<(), BoxError> {
        let down = seconds.to_string();
        services(&self.name, &["restart", server, "--down", &down]).await?;
        Ok(())
    }

    /// Deletes the stream, with its consumers and all unreceived events.
    pub async fn delete_stream(&self) -> Result<(), BoxError> {
        let client = async_nats::connect(&self.nats).await?;
        let jetstream = async_nats::jetstream::new(client);
        jetstream.delete_stream("BREADCRUMBS").await?;
        Ok(())
    }

    /// Drops the database schema of a campaign.
    pub async fn clear(&self, folder: &Path) -> Result<(), BoxError> {
        let mut connection = sqlx::PgConnection::connect(&self.postgres).await?;
        // The schema name has only characters that need no quotes.
        let drop = format!(
            "SET client_min_messages = 'warning'; DROP SCHEMA IF EXISTS {} CASCADE",
            schema(folder)
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(drop))
            .execute(&mut connection)
            .await?;
        Ok(connection.close().await?)
    }

    /// Stops both servers and removes their data.
    pub async fn stop(self) -> Result<(), BoxError> {
        services(&self.name, &["stop"]).await?;
        Ok(())
    }
}

/// Returns the database schema of the campaign in a folder.
fn schema(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.to_ascii_lowercase().chars().map(plain).collect();
    name.chars().take(40).collect()
}

async fn services(name: &str, words: &[&str]) -> Result<Output, BoxError> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scripts/services");
    let done = Command::new(script)
        .args(["--name", name])
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await?;
    if !done.status.success() {
        return Err(format!(
            "scripts/services {} failed: {}",
            words.join(" "),
            done.status
        )
        .into());
    }
    Ok(done)
}
