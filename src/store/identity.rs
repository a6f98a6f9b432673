use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// Identity of the data behind a store handle: a database, and a tenant in it.
///
/// Two handles with equal identities read and write the same breadcrumbs and runs. A runtime enqueues and claims the runs of
/// their executors together, and checks the store once for all of them. So `Arc::new(store.clone())` for each executor costs no
/// more than one shared handle.
///
/// The runtime uses the handle of the first of these executors, with its limits and metrics, and retains the handle until the
/// last of them is removed.
///
/// An implementation of a store returns it from
/// [`BreadcrumbStore::identity`](super::BreadcrumbStore::identity). A program can compare two
/// handles with it.
///
/// ```
/// use universal_executor::store::StoreId;
/// use universal_executor::{BreadcrumbStore, MemoryStore};
///
/// let store = MemoryStore::default();
/// assert_eq!(store.identity(), store.clone().identity());
/// assert_ne!(store.identity(), MemoryStore::default().identity());
///
/// let id = StoreId::new("mysql://db.internal:3306/agents", "acme");
/// assert_eq!((id.database(), id.tenant()), ("mysql://db.internal:3306/agents", "acme"));
/// assert_eq!(id.in_tenant("other").database(), id.database());
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct StoreId {
    database: Arc<str>,
    tenant: Arc<str>,
}

impl StoreId {
    /// Creates the identity of a tenant in a database with a name of your choice, for example `mysql://db.internal:3306/agents`.
    ///
    /// No other database may have the name. The name appears in log lines, so it must contain no credentials.
    #[must_use]
    pub fn new(database: impl Into<Arc<str>>, tenant: impl Into<Arc<str>>) -> Self {
        Self {
            database: database.into(),
            tenant: tenant.into(),
        }
    }

    /// Creates an identity that no other store has. Create it once with a store, and return a clone of it for each clone of the
    /// store.
    #[must_use]
    pub fn unique(tenant: impl Into<Arc<str>>) -> Self {
        Self::new(Uuid::new_v4().to_string(), tenant)
    }

    /// Returns the database name in this identity of a store.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the tenant name in this identity of a store.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Returns the identity of another tenant's data in the same database.
    #[must_use]
    pub fn in_tenant(&self, tenant: impl Into<Arc<str>>) -> Self {
        Self {
            database: Arc::clone(&self.database),
            tenant: tenant.into(),
        }
    }

    /// Returns the identity of a store that combines the breadcrumbs of this identity with the runs of `ledger`.
    pub(in crate::store) fn with_runs_of(&self, ledger: &Self) -> Self {
        self.with(&format!("runs in {ledger}"))
    }

    /// Returns the identity of a wrapper that injects faults into the store with this identity. `plan` is the name of the fault
    /// plan.
    #[cfg(any(feature = "conformance", feature = "testing"))]
    pub(in crate::store) fn with_faults_of(&self, plan: &str) -> Self {
        self.with(&format!("faults of plan {plan}"))
    }

    fn with(&self, addition: &str) -> Self {
        let database = format!("{}{WITH}{addition}", self.database);
        Self::new(database, Arc::clone(&self.tenant))
    }

    /// Returns `true` if this identity equals `data`, or belongs to a wrapper of the store with the identity `data`. A wrapper
    /// adds the runs of another store, or injects faults.
    #[cfg(feature = "testing")]
    pub(crate) fn is_of(&self, data: &Self) -> bool {
        let addition = self.database.strip_prefix(&*data.database);
        let is_same = |addition: &str| addition.is_empty() || addition.starts_with(WITH);
        self.tenant == data.tenant && addition.is_some_and(is_same)
    }
}

/// Separator in a wrapper's identity between the name of the wrapped database and the description of the added runs or faults.
const WITH: &str = " with the ";

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (tenant {:?})", self.database, self.tenant)
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[test]
    fn an_identity_with_runs_or_faults_matches_only_its_own_data() {
        let [data, other] = ["db", "db-2"].map(|name| StoreId::new(name, "a"));
        let with_both = data.with_runs_of(&other).with_faults_of("plan-1");

        assert!(data.is_of(&data) && with_both.is_of(&data));
        assert!(!other.is_of(&data) && !data.is_of(&other) && !data.is_of(&with_both));
        assert!(!data.in_tenant("b").is_of(&data));
        assert_eq!(
            with_both.database(),
            "db with the runs in db-2 (tenant \"a\") with the faults of plan plan-1"
        );
    }
}
