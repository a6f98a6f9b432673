//! State of each tenant of a store in this process, shared by all handles of the store for the same tenant. Removes tenants
//! without data that no handle uses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Map from tenant names to the shared state of each tenant.
#[derive(Debug)]
pub(in crate::store) struct Tenants<T>(Mutex<TenantMap<T>>);

#[derive(Debug)]
struct TenantMap<T> {
    by_name: HashMap<Arc<str>, Arc<T>>,
    /// Number of tenants in the map at which the map next removes the states of unused tenants.
    clean_at: usize,
}

/// Minimum number of tenants in the map before the map removes the states of unused tenants.
const CLEAN_AT: usize = 1_024;

impl<T> Tenants<T> {
    pub(in crate::store) fn new() -> Self {
        Self(Mutex::new(TenantMap {
            by_name: HashMap::new(),
            clean_at: CLEAN_AT,
        }))
    }

    /// Returns the data that all store handles of one tenant share, created with `make` if the tenant is unknown.
    ///
    /// Removes states that no handle uses and that `is_unused` reports as equal to a new state. The average cost is constant,
    /// because the number of tenants must double between two removals.
    pub(in crate::store) fn of(
        &self,
        name: &str,
        is_unused: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = tenants.by_name.get(name) {
            return Arc::clone(found);
        }
        if tenants.by_name.len() >= tenants.clean_at {
            tenants
                .by_name
                .retain(|_, other| Arc::strong_count(other) > 1 || !is_unused(other));
            tenants.clean_at = tenants.by_name.len().saturating_mul(2).max(CLEAN_AT);
        }
        let state = Arc::new(make());
        tenants.by_name.insert(name.into(), Arc::clone(&state));
        state
    }

    #[cfg(test)]
    pub(in crate::store) fn len(&self) -> usize {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .by_name
            .len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_tenant_is_removed_unless_it_has_data() {
        let tenants = Tenants::new();
        let of = |name: &str, data: u32| tenants.of(name, |data| *data == 0, || data);
        let held = of("held", 0);
        drop(of("full", 7));

        for n in 0..100_000 {
            drop(of(&n.to_string(), 0));
        }

        assert!(tenants.len() <= CLEAN_AT, "{}", tenants.len());
        assert_eq!(*of("full", 0), 7);
        assert!(Arc::ptr_eq(&held, &of("held", 0)));
    }

    #[test]
    fn every_tenant_with_data_is_retained() {
        let tenants = Tenants::new();
        for n in 1..=5_000_u32 {
            drop(tenants.of(&n.to_string(), |data| *data == 0, || n));
        }

        assert_eq!(tenants.len(), 5_000);
    }
}
