//! Stores that publish the events of their commits.

use super::{BreadcrumbStore, Instrumented, MemoryStore, WithLedger};
use crate::source::EventSource;

/// A store that publishes the events of its commits, so that [`Runtime::on`](crate::Runtime::on) needs no other event source.
///
/// Implement it for your own store if the store has such an event source. A wrapper returns the source of the wrapped store.
///
/// [`MemoryStore`], `SqliteStore` and `PostgresStore` implement it. [`WithLedger`] implements it if
/// its first store does, and [`Instrumented`] if its inner store does. An `RcrtStore` does not:
/// pass its `events()` to [`Runtime::on_source`](crate::Runtime::on_source).
///
/// ```
/// use universal_executor::MemoryStore;
/// use universal_executor::store::{Instrumented, StoreWithEvents, WithLedger};
///
/// fn check(_: &impl StoreWithEvents) {}
///
/// let (breadcrumbs, runs) = (MemoryStore::default(), MemoryStore::default());
/// check(&WithLedger::new(Instrumented::new("desk", breadcrumbs), runs));
/// ```
pub trait StoreWithEvents: BreadcrumbStore + Clone + 'static {
    /// Returns an event source for the commits of the store's tenant. It delivers every event, or reports the loss of events.
    ///
    /// [`Runtime::on`](crate::Runtime::on) and [`Client::new`](crate::Client::new) call it once.
    fn event_source(&self) -> Box<dyn EventSource>;
}

impl StoreWithEvents for MemoryStore {
    fn event_source(&self) -> Box<dyn EventSource> {
        Box::new(self.events())
    }
}

#[cfg(feature = "sqlite")]
impl StoreWithEvents for super::SqliteStore {
    fn event_source(&self) -> Box<dyn EventSource> {
        Box::new(self.events())
    }
}

#[cfg(feature = "postgres")]
impl StoreWithEvents for super::PostgresStore {
    fn event_source(&self) -> Box<dyn EventSource> {
        Box::new(self.events())
    }
}

impl<S: StoreWithEvents, L: BreadcrumbStore + Clone + 'static> StoreWithEvents
    for WithLedger<S, L>
{
    fn event_source(&self) -> Box<dyn EventSource> {
        self.store().event_source()
    }
}

#[cfg(any(feature = "conformance", feature = "testing"))]
impl<S: StoreWithEvents> StoreWithEvents for super::Faulty<S> {
    /// Returns the event source of the wrapped store. Injects faults by the same plan as this wrapper.
    fn event_source(&self) -> Box<dyn EventSource> {
        Box::new(self.beside(self.inner().event_source()))
    }
}

impl<S: StoreWithEvents> StoreWithEvents for Instrumented<S> {
    fn event_source(&self) -> Box<dyn EventSource> {
        Box::new(self.beside(self.inner().event_source()))
    }
}
