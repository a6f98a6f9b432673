use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// Identity of the data behind a store handle: a database, and a tenant in it.
///
/// Two handles with equal identities read and write the same breadcrumbs and runs. A runtime enqueues and claims the runs of
/// their executors together, and checks the store once for all of them, so `Arc::new(store.clone())` for each executor costs
/// no more than one shared handle. It does that through the handle of the first of these executors, with the limits and the
/// metrics of that handle, and keeps the handle until the last of them is removed.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct StoreId {
    database: Arc<str>,
    tenant: Arc<str>,
}

impl StoreId {
    /// Identity of a tenant in a database with a name of your choice, for example `mysql://db.internal:3306/agents`.
    ///
    /// No other database may have the name. It appears in log lines, so it must contain no credentials.
    #[must_use]
    pub fn new(database: impl Into<Arc<str>>, tenant: impl Into<Arc<str>>) -> Self {
        Self {
            database: database.into(),
            tenant: tenant.into(),
        }
    }

    /// Identity that no other store has. Create it once with a store, and return a clone of it for each clone of the store.
    #[must_use]
    pub fn unique(tenant: impl Into<Arc<str>>) -> Self {
        Self::new(Uuid::new_v4().to_string(), tenant)
    }

    /// Name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Name of the tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Identity of another tenant in this database.
    #[must_use]
    pub fn in_tenant(&self, tenant: impl Into<Arc<str>>) -> Self {
        Self {
            database: Arc::clone(&self.database),
            tenant: tenant.into(),
        }
    }

    /// Identity of these breadcrumbs with the runs of another store.
    pub(in crate::store) fn with_runs_of(&self, ledger: &Self) -> Self {
        let database = format!("{} with the runs in {ledger}", self.database);
        Self::new(database, Arc::clone(&self.tenant))
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (tenant {:?})", self.database, self.tenant)
    }
}
