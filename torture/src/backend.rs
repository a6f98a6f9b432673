//! Store under test, and the source of its events.

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

/// Tenant of the canaries: triggers that no worker must see.
pub const OTHERS: &str = "others";

/// Location of a campaign's store and of its event source, saved in a file for the workers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Backend {
    /// A SQLite file.
    Sqlite {
        /// Path of the file.
        file: PathBuf,
    },
    /// A PostgreSQL store with its own events.
    Postgres {
        /// Connection string, with the password of a server that exists only during the campaigns.
        url: String,
        /// Database schema.
        schema: String,
    },
    /// A PostgreSQL store with events through NATS.
    Nats {
        /// Connection string of PostgreSQL.
        url: String,
        /// Database schema, which is also the tenant name in NATS subjects.
        schema: String,
        /// URL of the NATS server.
        nats: String,
    },
}

/// A store on any backend.
#[derive(Clone, Debug)]
pub enum Store {
    /// SQLite.
    Sqlite(SqliteStore),
    /// PostgreSQL.
    Postgres(PostgresStore),
}

impl Store {
    /// Returns a type-erased handle.
    pub fn handle(&self) -> Arc<dyn BreadcrumbStore> {
        match self {
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
        }
    }

    /// Returns a handle on another tenant of the same store.
    pub fn in_tenant(&self, tenant: &str) -> Self {
        match self {
            Self::Sqlite(store) => Self::Sqlite(store.in_tenant(tenant)),
            Self::Postgres(store) => Self::Postgres(store.in_tenant(tenant)),
        }
    }

    /// Moves the clock of the store by a number of microseconds.
    pub fn move_clock(&self, micros: i64) {
        match self {
            Self::Sqlite(store) => store.move_clock(micros),
            Self::Postgres(store) => store.move_clock(micros),
        }
    }

    /// Returns the event source of a named consumer.
    pub fn events_of(&self, consumer: &str) -> Box<dyn EventSource> {
        match self {
            Self::Sqlite(store) => Box::new(store.events_of(consumer)),
            Self::Postgres(store) => Box::new(store.events_of(consumer)),
        }
    }
}

impl Backend {
    const FILE: &'static str = "place.json";

    /// Reads the location from a campaign folder.
    pub fn read(folder: &Path) -> Result<Self, BoxError> {
        let text = std::fs::read_to_string(folder.join(Self::FILE))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Writes the location into a campaign folder.
    pub fn write(&self, folder: &Path) -> Result<(), BoxError> {
        let text = serde_json::to_string(self)?;
        Ok(std::fs::write(folder.join(Self::FILE), text)?)
    }

    /// Opens the store. Retries until it succeeds or the error is permanent.
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

    /// Returns the event source of a worker.
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

    /// Creates the NATS consumer before the first worker starts, so that no event precedes it.
    pub async fn prepare(&self, store: &Store, settings: &Settings) -> Result<(), BoxError> {
        if let (Self::Nats { .. }, false) = (self, settings.deaf) {
            let source = self.source(store, "first", settings).await?;
            drop(source.subscribe(StartAt::Beginning).await?);
        }
        Ok(())
    }

    /// Publishes the events of a store to NATS while this future is polled. Does nothing without NATS.
    pub async fn relay(&self, store: &Store, tenant: Option<&str>) {
        let Self::Nats { schema, nats, .. } = self else {
            return std::future::pending().await;
        };
        loop {
            match NatsRelay::connect(nats, tenant.unwrap_or(schema)).await {
                Ok(relay) => match relay.run(store.events_of("nats")).await {
                    Ok(()) => crate::say(format_args!("the NATS relay ended, starting it again")),
                    Err(error) => crate::say(format_args!(
                        "cannot start the NATS relay, retrying: {error}"
                    )),
                },
                Err(error) => crate::say(format_args!(
                    "the NATS relay cannot connect, retrying: {error}"
                )),
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}

impl On {
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Nats => "postgres+nats",
        }
    }

    /// Parses a name from the command line.
    pub fn of(name: &str) -> Result<Self, BoxError> {
        let all = [Self::Sqlite, Self::Postgres, Self::Nats];
        let found = all.into_iter().find(|on| on.name() == name);
        found.ok_or_else(|| {
            format!("unknown store {name:?}; expected sqlite, postgres or postgres+nats").into()
        })
    }
}
