//! Which store is tortured, and where its events come from.

use crate::BoxError;
use crate::noise::Deaf;
use crate::settings::{On, Settings};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use universal_executor::error::Retry;
use universal_executor::source::{FallbackSource, NatsRelay, NatsSource, StartAt};
use universal_executor::{BreadcrumbStore, EventSource, PostgresStore, SqliteStore};

/// The tenant of canaries: what is in it is of no concern to any worker.
pub const OTHERS: &str = "others";

/// Where the store of a campaign is, and where its events come from. Left in a file for the workers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Place {
    /// A store in a file.
    Sqlite {
        /// The file.
        file: PathBuf,
    },
    /// A store in PostgreSQL, which also offers its events.
    Postgres {
        /// The connection string. It has the password of a server that lives no longer than the campaigns.
        url: String,
        /// The schema.
        schema: String,
    },
    /// A store in PostgreSQL, whose events come through NATS.
    Nats {
        /// The connection string of PostgreSQL.
        url: String,
        /// The schema, and the tenant by which NATS knows the events.
        schema: String,
        /// The NATS server.
        nats: String,
    },
}

/// A store of any kind.
#[derive(Clone, Debug)]
pub enum Store {
    /// In a file.
    Sqlite(SqliteStore),
    /// In PostgreSQL.
    Postgres(PostgresStore),
}

impl Store {
    /// It as the rest of the crate knows stores.
    pub fn handle(&self) -> Arc<dyn BreadcrumbStore> {
        match self {
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
        }
    }

    /// The same store, of another tenant.
    pub fn in_tenant(&self, tenant: &str) -> Self {
        match self {
            Self::Sqlite(store) => Self::Sqlite(store.in_tenant(tenant)),
            Self::Postgres(store) => Self::Postgres(store.in_tenant(tenant)),
        }
    }

    /// Moves its clock, in microseconds.
    pub fn move_clock(&self, micros: i64) {
        match self {
            Self::Sqlite(store) => store.move_clock(micros),
            Self::Postgres(store) => store.move_clock(micros),
        }
    }

    /// Its commits, for a consumer that is remembered.
    pub fn events_of(&self, consumer: &str) -> Box<dyn EventSource> {
        match self {
            Self::Sqlite(store) => Box::new(store.events_of(consumer)),
            Self::Postgres(store) => Box::new(store.events_of(consumer)),
        }
    }
}

impl Place {
    const FILE: &'static str = "place.json";

    /// What a folder says.
    pub fn read(folder: &Path) -> Result<Self, BoxError> {
        let text = std::fs::read_to_string(folder.join(Self::FILE))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Leaves it for the workers.
    pub fn write(&self, folder: &Path) -> Result<(), BoxError> {
        let text = serde_json::to_string(self)?;
        Ok(std::fs::write(folder.join(Self::FILE), text)?)
    }

    /// Opens the store, as every process does: again, as long as that may help.
    pub async fn open(&self) -> Result<Store, BoxError> {
        loop {
            let (error, retry) = match self {
                Self::Sqlite { file } => {
                    let builder = SqliteStore::builder(file)
                        .busy_timeout(Duration::from_secs(1))
                        .poll_every(Duration::from_millis(20));
                    match builder.open().await {
                        Ok(store) => return Ok(Store::Sqlite(store)),
                        Err(error) => (BoxError::from(error.to_string()), error.retry()),
                    }
                }
                Self::Postgres { url, schema } | Self::Nats { url, schema, .. } => {
                    let builder = PostgresStore::builder(url).schema(schema);
                    match builder.connect().await {
                        Ok(store) => return Ok(Store::Postgres(store)),
                        Err(error) => (BoxError::from(error.to_string()), error.retry()),
                    }
                }
            };
            match retry {
                Retry::After(delay) => sleep(delay).await,
                Retry::Never => return Err(error),
            }
        }
    }

    /// What a worker hears of the commits of a store.
    pub async fn source(
        &self,
        store: &Store,
        slot: &str,
        settings: &Settings,
    ) -> Result<Box<dyn EventSource>, BoxError> {
        if settings.deaf {
            return Ok(Box::new(Deaf));
        }
        match self {
            Self::Sqlite { .. } | Self::Postgres { .. } => Ok(store.events_of(slot)),
            Self::Nats { schema, nats, .. } => loop {
                let builder = NatsSource::builder(nats, schema.as_str())
                    .group("workers")
                    .ack_wait(settings.lease());
                match builder.connect().await {
                    Ok(source) if settings.backed => {
                        let sure = store.events_of("workers");
                        let source =
                            FallbackSource::new(source, sure).ask_every(settings.sweep() * 4);
                        return Ok(Box::new(source));
                    }
                    Ok(source) => return Ok(Box::new(source)),
                    Err(error) => match error.retry() {
                        Retry::After(delay) => sleep(delay).await,
                        Retry::Never => return Err(error.into()),
                    },
                }
            },
        }
    }

    /// Makes the consumer of the workers before there are any, so that where they begin does not matter.
    pub async fn prepare(&self, store: &Store, settings: &Settings) -> Result<(), BoxError> {
        if let (Self::Nats { .. }, false) = (self, settings.deaf) {
            let source = self.source(store, "first", settings).await?;
            drop(source.subscribe(StartAt::Beginning).await?);
        }
        Ok(())
    }

    /// Publishes the events of a store to NATS, if that is where they come from, for as long as it is polled.
    pub async fn relay(&self, store: &Store, tenant: Option<&str>) {
        let Self::Nats { schema, nats, .. } = self else {
            return std::future::pending().await;
        };
        loop {
            match NatsRelay::connect(nats, tenant.unwrap_or(schema)).await {
                Ok(relay) => match relay.run(store.events_of("nats")).await {
                    Ok(()) => crate::say(format_args!("the relay ended")),
                    Err(error) => crate::say(format_args!("the relay cannot begin: {error}")),
                },
                Err(error) => crate::say(format_args!("the relay cannot connect: {error}")),
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}

impl On {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Nats => "postgres+nats",
        }
    }

    /// What a name on the command line means.
    pub fn of(name: &str) -> Result<Self, BoxError> {
        let all = [Self::Sqlite, Self::Postgres, Self::Nats];
        let found = all.into_iter().find(|on| on.name() == name);
        found
            .ok_or_else(|| format!("{name:?} is none of sqlite, postgres and postgres+nats").into())
    }
}
