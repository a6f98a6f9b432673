//! Subjects of the conformance suite for stores that wrap another subject.

use std::time::Duration;
use universal_executor::EventSource;
use universal_executor::store::conformance::StoreUnderTest;
use universal_executor::store::{Fault, Faulty, Instrumented};

/// Wraps stores so that each call is reported.
pub(crate) struct Watched<S>(pub(crate) S);

impl<S: StoreUnderTest> StoreUnderTest for Watched<S> {
    type Store = Instrumented<S::Store>;

    async fn fresh(&self) -> Self::Store {
        Instrumented::new("watched", self.0.fresh().await)
    }

    async fn in_tenant(&self, store: &Self::Store, tenant: &str) -> Option<Self::Store> {
        let bound = self.0.in_tenant(store.inner(), tenant).await?;
        Some(store.beside(bound))
    }

    fn events(&self, store: &Self::Store) -> Option<Box<dyn EventSource>> {
        let events = self.0.events(store.inner())?;
        Some(Box::new(store.beside(events)))
    }

    async fn advance_clock(&self, duration: Duration) {
        self.0.advance_clock(duration).await;
    }
}

/// Wraps stores with an empty fault plan.
pub(crate) struct Faultless<S>(pub(crate) S);

impl<S: StoreUnderTest> StoreUnderTest for Faultless<S> {
    type Store = Faulty<S::Store>;

    async fn fresh(&self) -> Self::Store {
        Faulty::new(self.0.fresh().await, |_, _| Fault::None)
    }

    async fn in_tenant(&self, store: &Self::Store, tenant: &str) -> Option<Self::Store> {
        let bound = self.0.in_tenant(store.inner(), tenant).await?;
        Some(store.beside(bound))
    }

    fn events(&self, store: &Self::Store) -> Option<Box<dyn EventSource>> {
        let events = self.0.events(store.inner())?;
        Some(Box::new(store.beside(events)))
    }

    async fn advance_clock(&self, duration: Duration) {
        self.0.advance_clock(duration).await;
    }
}
