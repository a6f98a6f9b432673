//! Event sources: streams that announce changes of breadcrumbs.
//!
//! Use this module to choose the event source of a [`Runtime`](crate::Runtime), or to write one. An event is only a
//! hint that a breadcrumb changed, because the runtime reads the breadcrumb from the store. A source may therefore
//! deliver an event twice, late or out of order.
//!
//! A store is also the source of the events of its commits, see
//! [`MemoryStore::events`](crate::store::MemoryStore::events). [`FallbackSource`] combines a fast source with a
//! complete one. `NatsSource` (feature `nats`) delivers events through NATS JetStream, and `SseSource` (feature `rcrt`)
//! reads the event stream of an RCRT (Right Context Right Time) server. `source::conformance` (feature `conformance`)
//! tests the contract of [`EventSource`].
//!
//! ```
//! use futures::StreamExt;
//! use universal_executor::source::StartAt;
//! use universal_executor::{BreadcrumbStoreExt, EventSource, MemoryStore, NewBreadcrumb};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let store = MemoryStore::default();
//! let mut events = store.events().subscribe(StartAt::Now).await?;
//! let message = store.create(NewBreadcrumb::new("user.message.v1")).await?;
//!
//! let delivery = events.next().await.ok_or("the stream ended")??;
//! assert_eq!(delivery.event.breadcrumb_id, message.id);
//! delivery.ack().await?;
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```
//!
//! # Types to start with
//! | to | use |
//! |---|---|
//! | receive the events of a store | the method `events` or `events_of` of the store |
//! | run executors on a source | [`Runtime::on_source`](crate::Runtime::on_source) |
//! | use a fast source that can lose events | [`FallbackSource`] |
//! | send events to workers on many machines | `NatsSource`, `NatsRelay` (feature `nats`) |
//! | read the events of an RCRT server | `SseSource` (feature `rcrt`) |
//! | write a source | [`EventSource`], [`Deliveries`], [`Delivery`], [`Receipt`] |

#[cfg(feature = "conformance")]
pub mod conformance;
mod deliveries;
mod error;
mod fallback;
#[cfg(any(feature = "openai", feature = "rcrt"))]
pub(crate) mod frames;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rcrt")]
pub(crate) mod sse;

pub use deliveries::Deliveries;
pub use error::SourceError;
pub use fallback::FallbackSource;
#[cfg(feature = "nats")]
pub use nats::{NatsError, NatsRelay, NatsServer, NatsSource, NatsSourceBuilder};
#[cfg(feature = "rcrt")]
pub use sse::{
    Backfill, BearerToken, SseError, SseHealth, SseSource, SseSourceBuilder, TokenError,
};

use crate::model::{Event, Timestamp};
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A stream of events about changed breadcrumbs that can be subscribed to any number of times.
///
/// # Contract
/// Every source keeps these promises. `source::conformance` (feature `conformance`) has tests for them.
/// - **Every commit.** Each write of each commit is announced to every subscription at least once. Duplicates are
///   possible.
/// - **In order.** New events are delivered in commit order, and in the order of the writes within a commit. A repeated
///   event is delivered at any time.
/// - **Start position.** A subscription starts as [`StartAt`] describes, or fails.
/// - **Positions grow.** If events have positions, the position of each event is greater than the previous one, and is
///   the same for every subscriber.
/// - **No silent loss.** A source that [is complete](Self::is_complete) reports the number of dropped events as
///   [`SourceError::Lagged`], and the stream continues.
/// - **Resumes.** A subscriber that resumes after the last position that it handled misses no event, even after a
///   restart of its process.
/// - **Saved consumers.** If the source saves consumers by name, the next subscription of a consumer delivers its
///   unacknowledged events again, and no acknowledged ones.
/// - **Acknowledged.** The source does not deliver an acknowledged event again by itself. A second or a late
///   acknowledgement is harmless.
/// - **Redelivered.** A nacked event is delivered again after its delay, not before, and delays no other event. A
///   source that cannot redeliver events returns [`SourceError::NoRedelivery`].
/// - **Independent subscriptions.** Each subscription delivers all events, unless the source
///   [is shared](Self::is_shared). A slow or dropped subscription delays neither another one nor a writer.
/// - **Tenants apart.** A subscription delivers no event of another tenant.
/// - **Prompt.** A commit wakes a subscriber that waits for an event.
/// - **Bounded.** An event carries no context larger than [`Event::MAX_CONTEXT_BYTES`].
/// - **Matching context.** The context of an event belongs to the version that the event announces.
/// - **Cancel safe.** No event is lost if the future for the next event is dropped.
///
/// # Examples
/// A source without positions and acknowledgements, which announces a fixed list of events:
///
/// ```
/// use futures::{StreamExt, stream};
/// use universal_executor::source::{Deliveries, SourceError, StartAt};
/// use universal_executor::{Breadcrumb, Delivery, Event, EventSource, NewBreadcrumb, async_trait};
///
/// struct Fixed(Vec<Event>);
///
/// #[async_trait]
/// impl EventSource for Fixed {
///     async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
///         let events = self.0.clone().into_iter();
///         Ok(Deliveries::new(stream::iter(events.map(|event| Ok(Delivery::new(event))))))
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let order: Breadcrumb = NewBreadcrumb::new("order.v1").into();
/// let source = Fixed(vec![Event::created(&order)]);
/// assert_eq!(source.description(), "Fixed");
/// assert!(!source.is_complete());
///
/// let mut events = source.subscribe(StartAt::Now).await?;
/// let delivery = events.next().await.ok_or("the stream ended")??;
/// assert_eq!(delivery.event.breadcrumb_id, order.id);
/// assert!(events.next().await.is_none());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[async_trait]
pub trait EventSource: Send + Sync + 'static {
    /// Subscribes to the events of this source from a start position on.
    ///
    /// The [start](Deliveries::start) is fixed when this method returns: the stream delivers the events of all later
    /// commits.
    ///
    /// # Errors
    /// Returns [`SourceError::Unavailable`] if the source cannot be reached. A source may also fail for a position that
    /// it no longer retains.
    ///
    /// # Cancel safety
    /// If the future is dropped, the caller has no subscription. Another call is safe.
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError>;

    /// Returns `true` if the source delivers every event, or reports a loss as [`SourceError::Lagged`]. For other
    /// sources, the runtime periodically searches the store for missed triggers. Defaults to `false`.
    fn is_complete(&self) -> bool {
        false
    }

    /// Returns `true` if subscriptions share the events, so that another worker may receive an event instead of this
    /// worker. The runtime then also searches the store for the answers to its waits and suspended runs. Defaults to
    /// `false`.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns the description of this event source for log lines, for example `SqliteStore, consumer "orders"`. It
    /// must not contain credentials. Defaults to the type name.
    fn description(&self) -> String {
        let name = std::any::type_name::<Self>();
        let generics = name.find('<').unwrap_or(name.len());
        let path = name.get(..generics).unwrap_or(name);
        path.rsplit("::").next().unwrap_or(path).to_owned()
    }

    /// Returns the number of events that this source has still to deliver, or that its subscriber has not acknowledged.
    /// Returns `None` if the source cannot count them, which is the default.
    ///
    /// A server may count an event for a moment after it confirmed the acknowledgement, as NATS does. After an error of
    /// a subscription, the runtime calls this method until it succeeds, and reports the source as unavailable until
    /// then. A source that can become unreachable must therefore return an error here while it is unreachable.
    ///
    /// # Errors
    /// Returns [`SourceError::Unavailable`] if the source cannot be reached.
    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }
}

/// Implements [`EventSource`] for a smart pointer to a source.
macro_rules! forward {
    ($pointer:ident) => {
        #[async_trait]
        impl<E: EventSource + ?Sized> EventSource for $pointer<E> {
            async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
                (**self).subscribe(from).await
            }

            fn is_complete(&self) -> bool {
                (**self).is_complete()
            }

            fn is_shared(&self) -> bool {
                (**self).is_shared()
            }

            fn description(&self) -> String {
                (**self).description()
            }

            async fn behind(&self) -> Result<Option<u64>, SourceError> {
                (**self).behind().await
            }
        }
    };
}

forward!(Arc);
forward!(Box);

/// Start position of a subscription to an event source.
///
/// A runtime whose executors have a [saved position](crate::RunLedger::save_positions) also reads the store for
/// everything committed between that position and the start of the subscription.
///
/// # Examples
/// ```
/// use futures::StreamExt;
/// use universal_executor::source::StartAt;
/// use universal_executor::{BreadcrumbStoreExt, EventSource, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// for schema in ["first.v1", "second.v1"] {
///     store.create(NewBreadcrumb::new(schema)).await?;
/// }
///
/// let mut all = store.events().subscribe(StartAt::Beginning).await?;
/// let first = all.next().await.ok_or("the stream ended")??;
/// assert_eq!(first.event.schema_name.as_deref(), Some("first.v1"));
///
/// let position = first.position.ok_or("no position")?;
/// let mut later = store.events().subscribe(StartAt::After(position)).await?;
/// let second = later.next().await.ok_or("the stream ended")??;
/// assert_eq!(second.event.schema_name.as_deref(), Some("second.v1"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum StartAt {
    /// The next commit: events from before the subscription are not delivered.
    #[default]
    Now,
    /// The oldest event that the event source retains, and all later ones.
    Beginning,
    /// The first event after this position in the source, and all later ones; see [`Delivery::position`].
    After(u64),
    /// The oldest event after this time by the store's clock, and all later ones. A source that does not know the times
    /// of its events starts as for [`Beginning`](Self::Beginning).
    Since(Timestamp),
}

/// An event that a subscription to an event source delivered.
///
/// The runtime acknowledges the delivery once all runs of the event are in a ledger that outlives the process, or have
/// ended.
///
/// A [`Runtime`](crate::Runtime) acknowledges deliveries itself. A program that reads a source on
/// its own calls [`ack`](Self::ack) after it has handled the event.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::source::SourceError;
/// use universal_executor::{Breadcrumb, Delivery, Event, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let order: Breadcrumb = NewBreadcrumb::new("order.v1").into();
/// let delivery = Delivery::new(Event::created(&order)).at(7);
/// assert_eq!(delivery.position, Some(7));
///
/// // Without a receipt, an acknowledgement has no effect, and a nack is refused.
/// delivery.ack().await?;
/// let refused = delivery.nack(Duration::from_secs(1)).await;
/// assert!(matches!(refused, Err(SourceError::NoRedelivery { .. })));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Delivery {
    /// The delivered event, which announces a change of a breadcrumb.
    ///
    /// It is only a hint: read the breadcrumb from the store before you act on it.
    pub event: Event,
    /// Position of the event in the source, or `None` if the source has no positions.
    ///
    /// Pass it to [`StartAt::After`] to continue after this event.
    pub position: Option<u64>,
    receipt: Option<Arc<dyn Receipt>>,
    /// If `true`, the source delivered this event out of order, so earlier events may follow.
    is_ahead: bool,
}

/// Acknowledgement handle of a [`Delivery`], implemented by an event source.
#[async_trait]
pub trait Receipt: Send + Sync {
    /// Acknowledges the delivered event. The source must not deliver the event again by itself.
    ///
    /// # Errors
    /// Returns [`SourceError::Unavailable`] if the source cannot be reached. The source then delivers the event again.
    async fn ack(&self) -> Result<(), SourceError>;

    /// Requests that the source delivers this event again after `delay`, because its handling has not succeeded.
    ///
    /// # Errors
    /// Returns [`SourceError::Unavailable`] if the source cannot be reached, and [`SourceError::NoRedelivery`] if it
    /// cannot redeliver the event, for example because too many nacked events wait.
    async fn nack(&self, delay: Duration) -> Result<(), SourceError>;

    /// Returns `true` if the source needs the acknowledgement, so that [`ack`](Self::ack) has an effect. The runtime
    /// does not call the `ack` of other receipts. Defaults to `true`.
    fn needs_ack(&self) -> bool {
        true
    }
}

impl Delivery {
    /// Creates the delivery of an event, without a position and without an acknowledgement handle.
    #[must_use]
    pub fn new(event: Event) -> Self {
        Self {
            event,
            position: None,
            receipt: None,
            is_ahead: false,
        }
    }

    /// Marks a delivery that arrives before earlier events. The delivery then does not count as progress of the source.
    pub(crate) fn ahead(mut self) -> Self {
        self.is_ahead = true;
        self
    }

    /// Returns `true` for an event that the source delivered before earlier events.
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Sets the position of the delivered event in its source.
    #[must_use]
    pub fn at(mut self, position: u64) -> Self {
        self.position = Some(position);
        self
    }

    /// Sets the handle for the acknowledgement of the delivered event.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Arc<dyn Receipt>) -> Self {
        self.receipt = Some(receipt);
        self
    }

    /// Replaces the acknowledgement handle of a delivery by the handle that a function returns for the old one. Does
    /// nothing without a handle.
    pub(crate) fn map_receipt(
        mut self,
        between: impl FnOnce(Arc<dyn Receipt>) -> Arc<dyn Receipt>,
    ) -> Self {
        self.receipt = self.receipt.map(between);
        self
    }

    /// Splits the delivery into its event, its position and its acknowledgement handle.
    pub(crate) fn into_parts(self) -> (Event, Option<u64>, Option<Arc<dyn Receipt>>) {
        (self.event, self.position, self.receipt)
    }

    /// Acknowledges the delivered event. Call it when the runs of the event are in a ledger that outlives the process,
    /// or have ended. Does nothing if the delivery needs no acknowledgement.
    ///
    /// # Errors
    /// Returns [`SourceError::Unavailable`] if the source cannot be reached. The source then delivers the event again,
    /// which is harmless.
    ///
    /// # Cancel safety
    /// If the future is dropped, the source may deliver the event again, which is harmless.
    pub async fn ack(&self) -> Result<(), SourceError> {
        match &self.receipt {
            Some(receipt) => receipt.ack().await,
            None => Ok(()),
        }
    }

    /// Nacks the delivered event: requests its redelivery after `delay`.
    ///
    /// # Errors
    /// Returns [`SourceError::Unavailable`] if the source cannot be reached, and [`SourceError::NoRedelivery`] if it
    /// cannot redeliver the event. A delivery without a receipt always returns the latter.
    ///
    /// # Cancel safety
    /// If the future is dropped, the source may not have received the request. Another call is safe.
    pub async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        match &self.receipt {
            Some(receipt) => receipt.nack(delay).await,
            None => Err(SourceError::NoRedelivery {
                reason: "the delivery has no receipt",
            }),
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("event", &self.event)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
