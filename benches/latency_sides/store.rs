//! Stores of two kinds behind one type.

use std::path::PathBuf;
use std::sync::Arc;
use universal_executor::store::Durability;
use universal_executor::{BreadcrumbStore, EventSource, PostgresStore, SqliteStore};

/// The environment variable with the URL of the PostgreSQL server.
pub(crate) const POSTGRES_URL: &str = "POSTGRES_URL";

/// The location of a store's data.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// A SQLite file.
    File(PathBuf),
    /// A tenant in a schema of the PostgreSQL database.
    Tenant { schema: String, tenant: String },
}

/// An open store.
#[derive(Clone)]
pub(crate) enum Handle {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

impl Location {
    /// Opens another handle. On PostgreSQL it has its own connection pool; on SQLite, the handles of a process share a database.
    pub(crate) async fn open(&self) -> Handle {
        match self {
            Self::File(file) => {
                let store = SqliteStore::builder(file).durability(Durability::Full);
                Handle::Sqlite(store.open().await.unwrap())
            }
            Self::Tenant { schema, tenant } => {
                let url = std::env::var(POSTGRES_URL).unwrap();
                let store = PostgresStore::builder(url).schema(schema);
                Handle::Postgres(store.connect().await.unwrap().in_tenant(tenant))
            }
        }
    }

    /// Returns the location as a string for [`parse`](Self::parse).
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::File(file) => format!("file {}", file.to_str().unwrap()),
            Self::Tenant { schema, tenant } => format!("{schema} {tenant}"),
        }
    }

    pub(crate) fn parse(text: &str) -> Self {
        match text.split_once(' ').unwrap() {
            ("file", file) => Self::File(file.into()),
            (schema, tenant) => Self::Tenant {
                schema: schema.into(),
                tenant: tenant.into(),
            },
        }
    }
}

impl Handle {
    pub(crate) fn store(&self) -> Arc<dyn BreadcrumbStore> {
        match self {
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
        }
    }

    pub(crate) fn events(&self) -> Box<dyn EventSource> {
        match self {
            Self::Sqlite(store) => Box::new(store.events()),
            Self::Postgres(store) => Box::new(store.events()),
        }
    }

    /// Closes the store. All clones must be dropped before.
    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => store.close().await,
        }
    }
}
