//! Conformance suite for implementations of [`EventSource`].
//!
//! Use this when you write a source. Each promise of [`EventSource`] is a function that tests the source on a fresh
//! backend, the origin of the events. [`Abilities`] declares the optional abilities of the source. Where a missing
//! ability has a defined behavior, the suite tests this behavior: for example, a source that cannot redeliver an event
//! has to refuse a nack with [`SourceError::NoRedelivery`](super::SourceError::NoRedelivery).
//!
//! [`source_conformance!`](crate::source_conformance) creates a module with a `#[test]` for each promise:
//!
//! ```
//! use std::time::Duration;
//! use universal_executor::source::conformance::{Abilities, Change, SourceUnderTest};
//! use universal_executor::store::MemoryLimits;
//! use universal_executor::store::conformance::announce;
//! use universal_executor::{BoxError, Event, EventSource, MemoryStore};
//!
//! struct Memory;
//!
//! impl SourceUnderTest for Memory {
//!     type Backend = MemoryStore;
//!
//!     fn abilities(&self) -> Abilities {
//!         Abilities::default().history(true).redelivers(true)
//!     }
//!
//!     async fn fresh(&self) -> MemoryStore {
//!         MemoryStore::default()
//!     }
//!
//!     async fn fresh_with_limit(&self, events: usize) -> Option<MemoryStore> {
//!         let mut limits = MemoryLimits::default();
//!         limits.events = events;
//!         Some(MemoryStore::with_limits(limits))
//!     }
//!
//!     async fn in_tenant(&self, store: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
//!         Some(store.in_tenant(tenant))
//!     }
//!
//!     async fn restart(&self, _: MemoryStore) -> Option<MemoryStore> {
//!         None
//!     }
//!
//!     fn source(&self, store: &MemoryStore, _: &str) -> Box<dyn EventSource> {
//!         Box::new(store.events())
//!     }
//!
//!     async fn commit(&self, store: &MemoryStore, changes: Vec<Change>) -> Result<Vec<Event>, BoxError> {
//!         Ok(announce(store, changes).await?)
//!     }
//!
//!     async fn advance_clock(&self, duration: Duration) {
//!         tokio::time::sleep(duration).await;
//!     }
//! }
//!
//! universal_executor::source_conformance!(memory, Memory);
//! # use universal_executor::source::conformance::{commits_are_delivered_in_order, run};
//! # run(commits_are_delivered_in_order(&Memory))?;
//! # Ok::<(), universal_executor::source::conformance::Broken>(())
//! ```
#![expect(
    clippy::missing_errors_doc,
    reason = "every function returns `Broken` if the source does not keep the promise"
)]

mod broken;
mod delivers;
mod lags;
mod reader;
mod redelivery;
mod resumes;
mod shares;
mod start_position;

pub use broken::Broken;
pub(crate) use broken::{expect, same, some};
pub use delivers::{
    a_context_is_that_of_its_version, a_large_context_does_not_travel,
    commits_are_delivered_in_order, commits_at_the_same_time_are_all_delivered,
    events_of_tenants_are_isolated, every_commit_is_delivered,
};
pub use lags::{
    deleted_events_after_a_position_are_reported,
    deleted_events_before_the_beginning_are_not_reported, dropped_events_are_reported,
};
pub use redelivery::{
    a_nacked_event_is_redelivered, a_nacked_event_is_redelivered_after_its_delay,
    an_acknowledged_event_is_not_redelivered, repeated_and_late_acknowledgements_have_no_effect,
};
pub use resumes::{
    a_consumer_continues_after_its_acknowledged_events, a_nacked_event_survives_a_restart,
    a_position_is_valid_after_a_restart, an_unacknowledged_event_is_redelivered,
    consumers_are_saved_separately, no_event_is_lost_across_reconnects,
    the_backlog_of_a_consumer_is_reported,
};
pub use shares::{
    a_waiting_subscriber_is_woken, an_unread_stream_delays_no_other, cancel_safe,
    many_subscribers_receive_all_events, two_subscribers_both_receive_all_events,
};
pub use start_position::{
    a_position_from_the_future_loses_no_event, a_position_is_followed_by_the_next_event,
    now_begins_with_the_next_commit, positions_increase, the_beginning_is_the_oldest_event,
};

use super::EventSource;
use crate::error::BoxError;
use crate::model::{BreadcrumbId, Event, NewBreadcrumb, Patch};
use std::time::Duration;

/// An event source that the conformance suite tests, with the backend whose events the source delivers.
///
/// Implement it for an empty type in a test file of the source, and pass a value to
/// [`source_conformance!`](crate::source_conformance). A method that returns `None` excludes the
/// tests that need it.
pub trait SourceUnderTest: Send + Sync {
    /// The origin of the tested source's events: a store, or a connection to the server that publishes the events.
    type Backend: Send + Sync;

    /// Returns the optional abilities of the tested event source.
    fn abilities(&self) -> Abilities;

    /// Creates a backend of the tested source without events, isolated from other tests that run at the same time.
    ///
    /// Use a new database, stream or name for each call, because the tests run in parallel.
    fn fresh(&self) -> impl Future<Output = Self::Backend> + Send;

    /// Creates a backend of the tested source that retains at most `events` events. Returns `None` if the source
    /// retains all events.
    ///
    /// The suite passes 8, and commits more events than that.
    fn fresh_with_limit(&self, events: usize)
    -> impl Future<Output = Option<Self::Backend>> + Send;

    /// Returns the tested source's backend, bound to another tenant, or `None` if the backend has one tenant only.
    fn in_tenant(
        &self,
        backend: &Self::Backend,
        tenant: &str,
    ) -> impl Future<Output = Option<Self::Backend>> + Send;

    /// Closes a backend of the tested source and opens it again, as after a restart of the process. Returns `None` if
    /// nothing outlives a restart. All subscriptions have ended by then.
    ///
    /// Only data on a disk or a server may survive.
    fn restart(&self, backend: Self::Backend)
    -> impl Future<Output = Option<Self::Backend>> + Send;

    /// Returns the tested event source of a backend, for the event consumer with this name. A source without saved
    /// consumers ignores the name.
    fn source(&self, backend: &Self::Backend, consumer: &str) -> Box<dyn EventSource>;

    /// Commits all changes to the backend in one step, and returns one event per change. Each event has the schema,
    /// tags and context of the version that it announces. For a store, call `store::conformance::announce`.
    fn commit(
        &self,
        backend: &Self::Backend,
        changes: Vec<Change>,
    ) -> impl Future<Output = Result<Vec<Event>, BoxError>> + Send;

    /// Advances the clock of the tested source by at least `duration`. The suite passes 100 ms.
    fn advance_clock(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// Optional abilities of an event source, which decide the applicable conformance tests. A source without any of them
/// delivers only the events of the time of a subscription.
///
/// [`EventSource::is_complete`] states whether the source reports each loss.
///
/// ```
/// use universal_executor::source::conformance::Abilities;
///
/// let none = Abilities::default();
/// assert!(!none.history && !none.saves_consumers && !none.redelivers);
/// assert!(Abilities::default().history(true).history);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Abilities {
    /// If `true`, the tested source retains events for some time: each event has a position, and
    /// [`StartAt`](super::StartAt) is supported in full.
    ///
    /// `true` for stores with an event table. The tests of positions apply.
    pub history: bool,
    /// If `true`, the tested source saves the acknowledgements of each consumer under the consumer's name.
    ///
    /// The tests of saved consumers apply.
    pub saves_consumers: bool,
    /// If `true`, the tested source delivers a nacked event again.
    ///
    /// If `false`, each nack must fail with
    /// [`SourceError::NoRedelivery`](super::SourceError::NoRedelivery).
    pub redelivers: bool,
}

impl Abilities {
    /// Sets whether the tested event source retains events. Defaults to `false`.
    #[must_use]
    pub const fn history(mut self, yes: bool) -> Self {
        self.history = yes;
        self
    }

    /// Sets whether the tested event source saves the acknowledgements of each named consumer. Defaults to `false`.
    #[must_use]
    pub const fn saves_consumers(mut self, yes: bool) -> Self {
        self.saves_consumers = yes;
        self
    }

    /// Sets whether the tested event source delivers a nacked event again. Defaults to `false`.
    #[must_use]
    pub const fn redelivers(mut self, yes: bool) -> Self {
        self.redelivers = yes;
        self
    }
}

/// A change of a breadcrumb that [`SourceUnderTest::commit`] commits and the tested source announces.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// The creation of a breadcrumb by the conformance suite.
    Create(NewBreadcrumb),
    /// The update of a breadcrumb by the conformance suite.
    Update {
        /// ID of the breadcrumb to update.
        id: BreadcrumbId,
        /// Current version of the breadcrumb to update.
        version: u64,
        /// The breadcrumb fields to change.
        patch: Patch,
    },
    /// The deletion of a breadcrumb by the conformance suite.
    Delete {
        /// ID of the breadcrumb to delete.
        id: BreadcrumbId,
    },
}

/// Runs the future of a conformance test to its end, on a new single-threaded tokio runtime on this thread.
#[doc(hidden)]
pub fn run(promise: impl Future<Output = Result<(), Broken>>) -> Result<(), Broken> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(Broken::failed)?.block_on(promise)
}

/// Creates a test module for an event source: one `#[test]` for each function of
/// [`source::conformance`](crate::source::conformance), with the function's name.
///
/// The first argument is the module name. The second argument is an expression for a
/// [`SourceUnderTest`](crate::source::conformance::SourceUnderTest), which each test evaluates.
#[macro_export]
macro_rules! source_conformance {
    ($name:ident, $subject:expr) => {
        $crate::source_conformance! { @promises $name, $subject,
            every_commit_is_delivered
            commits_are_delivered_in_order
            commits_at_the_same_time_are_all_delivered
            a_large_context_does_not_travel
            a_context_is_that_of_its_version
            events_of_tenants_are_isolated
            now_begins_with_the_next_commit
            the_beginning_is_the_oldest_event
            a_position_is_followed_by_the_next_event
            a_position_from_the_future_loses_no_event
            positions_increase
            dropped_events_are_reported
            deleted_events_after_a_position_are_reported
            deleted_events_before_the_beginning_are_not_reported
            no_event_is_lost_across_reconnects
            a_position_is_valid_after_a_restart
            an_unacknowledged_event_is_redelivered
            a_consumer_continues_after_its_acknowledged_events
            a_nacked_event_survives_a_restart
            consumers_are_saved_separately
            the_backlog_of_a_consumer_is_reported
            a_nacked_event_is_redelivered
            a_nacked_event_is_redelivered_after_its_delay
            an_acknowledged_event_is_not_redelivered
            repeated_and_late_acknowledgements_have_no_effect
            two_subscribers_both_receive_all_events
            many_subscribers_receive_all_events
            an_unread_stream_delays_no_other
            a_waiting_subscriber_is_woken
            cancel_safe
        }
    };
    (@promises $name:ident, $subject:expr, $($promise:ident)+) => {
        mod $name {
            #[allow(unused_imports, reason = "the subject expression may use items of the surrounding module")]
            use super::*;

            $(
                #[test]
                fn $promise() -> ::core::result::Result<(), $crate::source::conformance::Broken> {
                    let subject = $subject;
                    $crate::source::conformance::run($crate::source::conformance::$promise(&subject))
                }
            )+
        }
    };
}
