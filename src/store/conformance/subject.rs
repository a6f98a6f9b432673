//! Stores under test of any type, so that the suite is compiled once and not again for each store.

use super::StoreUnderTest;
use crate::source::EventSource;
use crate::store::BreadcrumbStore;
use async_trait::async_trait;
use std::fmt::{self, Debug};
use std::ops::Deref;
use std::time::Duration;

/// A store under test of any type, as the argument of a conformance promise.
///
/// Every [`StoreUnderTest`] implements this trait, so a reference to yours is accepted where a
/// promise takes a `&dyn AnyStoreUnderTest`.
#[async_trait]
pub trait AnyStoreUnderTest: Send + Sync {
    /// Creates an empty store for one conformance test. See [`StoreUnderTest::fresh`].
    async fn fresh(&self) -> AnyStore<'_>;

    /// Advances the clock of the store by at least `duration`. See [`StoreUnderTest::advance_clock`].
    async fn advance_clock(&self, duration: Duration);
}

#[async_trait]
impl<S: StoreUnderTest> AnyStoreUnderTest for S {
    async fn fresh(&self) -> AnyStore<'_> {
        let store = StoreUnderTest::fresh(self).await;
        AnyStore(Box::new(Of {
            subject: self,
            store,
        }))
    }

    async fn advance_clock(&self, duration: Duration) {
        StoreUnderTest::advance_clock(self, duration).await;
    }
}

/// A handle on a store of any type in the conformance suite. A clone of it contains a clone of the store.
///
/// It dereferences to `dyn BreadcrumbStore`.
pub struct AnyStore<'s>(Box<dyn OfAnyStore<'s> + 's>);

impl AnyStore<'_> {
    /// Returns a handle on the same store, bound to another tenant. `None` if the store has only one tenant.
    pub async fn in_tenant(&self, tenant: &str) -> Option<Self> {
        self.0.in_tenant(tenant).await
    }

    /// Returns a source of the events of the store's commits. `None` if the store publishes no events.
    #[must_use]
    pub fn events(&self) -> Option<Box<dyn EventSource>> {
        self.0.events()
    }
}

impl Debug for AnyStore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.store().fmt(f)
    }
}

impl Clone for AnyStore<'_> {
    fn clone(&self) -> Self {
        self.0.cloned()
    }
}

impl Deref for AnyStore<'_> {
    type Target = dyn BreadcrumbStore;

    fn deref(&self) -> &Self::Target {
        self.0.store()
    }
}

#[async_trait]
trait OfAnyStore<'s>: Send + Sync {
    fn cloned(&self) -> AnyStore<'s>;

    fn store(&self) -> &dyn BreadcrumbStore;

    async fn in_tenant(&self, tenant: &str) -> Option<AnyStore<'s>>;

    fn events(&self) -> Option<Box<dyn EventSource>>;
}

/// A store with the subject that created it.
struct Of<'s, S: StoreUnderTest> {
    subject: &'s S,
    store: S::Store,
}

impl<'s, S: StoreUnderTest> Of<'s, S> {
    fn with(&self, store: S::Store) -> AnyStore<'s> {
        AnyStore(Box::new(Of {
            subject: self.subject,
            store,
        }))
    }
}

#[async_trait]
impl<'s, S: StoreUnderTest> OfAnyStore<'s> for Of<'s, S> {
    fn cloned(&self) -> AnyStore<'s> {
        self.with(self.store.clone())
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn in_tenant(&self, tenant: &str) -> Option<AnyStore<'s>> {
        let store = self.subject.in_tenant(&self.store, tenant).await?;
        Some(self.with(store))
    }

    fn events(&self) -> Option<Box<dyn EventSource>> {
        self.subject.events(&self.store)
    }
}
