//! The suite that every source passes, this crate's and yours.
//!
//! Each promise of [`EventSource`] is a function that tests it on a fresh backend, the origin of the events. The optional abilities of
//! a source are in its [`Abilities`]. Where a missing ability has a defined behavior, the suite tests that: a source that takes no
//! event back has to return an error that states this. [`source_conformance!`](crate::source_conformance) creates a module with a
//! `#[test]` for each promise:
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
//!         Abilities::default().history(true).takes_back(true)
//!     }
//!
//!     async fn fresh(&self) -> MemoryStore {
//!         MemoryStore::default()
//!     }
//!
//!     async fn keeping(&self, events: usize) -> Option<MemoryStore> {
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
//! # use universal_executor::source::conformance::{in_order, run};
//! # run(in_order(&Memory))?;
//! # Ok::<(), universal_executor::source::conformance::Broken>(())
//! ```
#![expect(
    clippy::missing_errors_doc,
    reason = "every promise fails alike: with what is broken about it"
)]

mod again;
mod begins;
mod broken;
mod delivers;
mod lags;
mod reader;
mod resumes;
mod shares;

pub use again::{
    an_acknowledged_event_does_not_come_again, an_event_given_back_comes_again,
    an_event_given_back_waits_for_its_delay, telling_a_source_twice_or_late_is_harmless,
};
pub use begins::{
    a_position_from_the_future_misses_nothing, after_a_position_comes_what_is_behind_it,
    now_begins_with_the_next_commit, positions_grow, the_beginning_is_the_oldest_event,
};
pub use broken::Broken;
pub(crate) use broken::{expect, same, some};
pub use delivers::{
    a_context_is_that_of_its_version, a_large_context_does_not_travel,
    commits_at_the_same_time_are_all_delivered, every_commit, in_order, tenants_apart,
};
pub use lags::{
    what_is_dropped_is_told, what_is_gone_before_the_beginning_is_not_missed,
    what_is_gone_behind_a_position_is_told,
};
pub use resumes::{
    a_consumer_goes_on_after_what_it_acknowledged, a_position_outlives_a_restart,
    an_unacknowledged_event_comes_again, consumers_are_remembered_apart,
    nothing_is_lost_across_reconnects, what_is_given_back_is_not_lost,
    what_is_left_for_a_consumer_is_told,
};
pub use shares::{
    a_waiting_subscriber_is_woken, an_unread_stream_holds_up_nobody, cancel_safe, many_subscribe,
    two_subscribers_both_get_all,
};

use super::EventSource;
use crate::error::BoxError;
use crate::model::{BreadcrumbId, Event, NewBreadcrumb, Patch};
use std::time::Duration;

/// A source under test: creates the backend of its events, and commits changes there.
pub trait SourceUnderTest: Send + Sync {
    /// The origin of the events: a store, or a connection to the server that announces its commits.
    type Backend: Send + Sync;

    /// What the source can do.
    fn abilities(&self) -> Abilities;

    /// Creates a backend without events, isolated from other tests that run at the same time.
    fn fresh(&self) -> impl Future<Output = Self::Backend> + Send;

    /// Creates a backend that retains at most so many events. Returns `None` if the source retains all events.
    fn keeping(&self, events: usize) -> impl Future<Output = Option<Self::Backend>> + Send;

    /// Returns the same backend, bound to another tenant, or `None` if the backend has one tenant only.
    fn in_tenant(
        &self,
        backend: &Self::Backend,
        tenant: &str,
    ) -> impl Future<Output = Option<Self::Backend>> + Send;

    /// Closes a backend and opens it again, as after a restart of the process. Returns `None` if nothing outlives a restart. All
    /// subscriptions have ended by then.
    fn restart(&self, backend: Self::Backend)
    -> impl Future<Output = Option<Self::Backend>> + Send;

    /// Returns the events of a backend, for a consumer with a name. A source without saved consumers ignores the name.
    fn source(&self, backend: &Self::Backend, consumer: &str) -> Box<dyn EventSource>;

    /// Does all changes in one step, and returns the event that is to announce each: with the schema, tags and context
    /// of the version it tells of. For a store this is `store::conformance::announce`.
    fn commit(
        &self,
        backend: &Self::Backend,
        changes: Vec<Change>,
    ) -> impl Future<Output = Result<Vec<Event>, BoxError>> + Send;

    /// Lets at least that much time pass for the source. The suite asks for a tenth of a second at a time.
    fn advance_clock(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// What a source can do beyond delivering what happens while somebody listens.
///
/// Whether it tells of everything it drops is what it says itself: [`EventSource::is_complete`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Abilities {
    /// It keeps events for a while: each has a position, and [`StartAt`](super::StartAt) has all its meanings.
    pub history: bool,
    /// It remembers by the name of a consumer what that has acknowledged.
    pub remembers: bool,
    /// What is given back comes again.
    pub takes_back: bool,
}

impl Abilities {
    /// Sets whether it keeps events for a while.
    #[must_use]
    pub const fn history(mut self, yes: bool) -> Self {
        self.history = yes;
        self
    }

    /// Sets whether it remembers what a consumer has acknowledged.
    #[must_use]
    pub const fn remembers(mut self, yes: bool) -> Self {
        self.remembers = yes;
        self
    }

    /// Sets whether what is given back comes again.
    #[must_use]
    pub const fn takes_back(mut self, yes: bool) -> Self {
        self.takes_back = yes;
        self
    }
}

/// Something that is to happen, and be announced.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A breadcrumb is created.
    Create(NewBreadcrumb),
    /// A breadcrumb at a version is changed.
    Update {
        /// Its id.
        id: BreadcrumbId,
        /// The version it has.
        version: u64,
        /// What becomes of it.
        patch: Patch,
    },
    /// A breadcrumb is deleted.
    Delete {
        /// Its id.
        id: BreadcrumbId,
    },
}

/// Runs a promise to its end on a runtime of its own, on this thread.
#[doc(hidden)]
pub fn run(promise: impl Future<Output = Result<(), Broken>>) -> Result<(), Broken> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(Broken::failed)?.block_on(promise)
}

/// Makes a module with one `#[test]` for each promise of [`source::conformance`](crate::source::conformance), named
/// after it, from a name for the module and a [`SourceUnderTest`](crate::source::conformance::SourceUnderTest). The subject is made
/// anew for each test.
#[macro_export]
macro_rules! source_conformance {
    ($name:ident, $subject:expr) => {
        $crate::source_conformance! { @promises $name, $subject,
            every_commit
            in_order
            commits_at_the_same_time_are_all_delivered
            a_large_context_does_not_travel
            a_context_is_that_of_its_version
            tenants_apart
            now_begins_with_the_next_commit
            the_beginning_is_the_oldest_event
            after_a_position_comes_what_is_behind_it
            a_position_from_the_future_misses_nothing
            positions_grow
            what_is_dropped_is_told
            what_is_gone_behind_a_position_is_told
            what_is_gone_before_the_beginning_is_not_missed
            nothing_is_lost_across_reconnects
            a_position_outlives_a_restart
            an_unacknowledged_event_comes_again
            a_consumer_goes_on_after_what_it_acknowledged
            what_is_given_back_is_not_lost
            consumers_are_remembered_apart
            what_is_left_for_a_consumer_is_told
            an_event_given_back_comes_again
            an_event_given_back_waits_for_its_delay
            an_acknowledged_event_does_not_come_again
            telling_a_source_twice_or_late_is_harmless
            two_subscribers_both_get_all
            many_subscribe
            an_unread_stream_holds_up_nobody
            a_waiting_subscriber_is_woken
            cancel_safe
        }
    };
    (@promises $name:ident, $subject:expr, $($promise:ident)+) => {
        mod $name {
            #[allow(unused_imports, reason = "the subject may name what is around the module")]
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
