//! Where events come from.
//!
//! A source says "look": it may deliver an event twice, late or out of order, and none of that changes what is
//! answered. A store offers its own commits as a source ([`MemoryStore::events`](crate::store::MemoryStore::events)).
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

/// A stream of events that can be subscribed to any number of times.
///
/// # Contract
/// Every source keeps these promises; `source::conformance` checks each by name.
/// - **Every commit.** Each write of each commit is announced to whoever listens, at least once: an event may come twice.
/// - **In order.** Events that are new come in the order of the commits, and of the writes within one. What comes again
///   comes at any time.
/// - **Where it begins.** Now, the beginning and a position mean what [`StartAt`] says, or the subscription fails.
/// - **Positions grow.** If events have positions, each has one that is greater than that of the event before, and the
///   same for everybody.
/// - **No silent loss.** A source that [is complete](Self::is_complete) says [`SourceError::Lagged`] for what it dropped,
///   with how many, and the stream goes on.
/// - **Resumes.** Whoever went away, even with the process, and goes on after the last position it has taken care of
///   misses nothing.
/// - **Remembered.** If the source knows a consumer by name, what that did not acknowledge comes again to its next
///   subscription, and what it did acknowledge does not.
/// - **Taken care of.** What is acknowledged does not come again by itself. Telling a source twice, or late, is harmless.
/// - **Taken back.** What is given back comes again after its delay, not before, and holds up nothing else; or the source
///   says [`SourceError::NotTakenBack`].
/// - **Apart.** Subscriptions know nothing of each other: each has everything, and one that is slow, or dropped in the
///   middle, holds up neither another nor a writer.
/// - **Tenants apart.** Nobody hears of what another tenant does.
/// - **Soon.** Whoever waits is woken by a commit.
/// - **Bounded.** A context over [`Event::MAX_CONTEXT_BYTES`] does not travel.
/// - **Its own version.** A context that travels is that of the version the event tells of.
/// - **Cancel safe.** Nothing is lost if whoever waits for the next event stops waiting, and asks again.
#[async_trait]
pub trait EventSource: Send + Sync + 'static {
    /// Subscribes to the events from a position on.
    ///
    /// The [start](Deliveries::start) is settled when this returns: events of later commits are in the stream.
    ///
    /// # Errors
    /// Fails if the source cannot be reached, or does not keep this position.
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError>;

    /// Whether it delivers every event, or says [`SourceError::Lagged`]: then nobody has to look into the store for what
    /// it left out. Not unless it says so.
    fn is_complete(&self) -> bool {
        false
    }

    /// Returns `true` if subscriptions share the events, so that another worker may receive an event instead of this one.
    /// The runtime then also searches the store for the answers to its waits and suspended runs. Defaults to `false`.
    fn is_shared(&self) -> bool {
        false
    }

    /// Describes this source in log lines, for example `SqliteStore, consumer "orders"`. It must not contain credentials.
    /// Defaults to the name of the type.
    fn description(&self) -> String {
        let name = std::any::type_name::<Self>();
        let generics = name.find('<').unwrap_or(name.len());
        let path = name.get(..generics).unwrap_or(name);
        path.rsplit("::").next().unwrap_or(path).to_owned()
    }

    /// Number of events that wait for this source's consumer or are delivered but not acknowledged. `None` if the source
    /// cannot count them.
    ///
    /// A server may count an event a moment after it confirmed it (NATS does). After an error of its subscription, the
    /// runtime calls this method until it succeeds, and reports the source as unavailable until then: a source that can
    /// become unreachable must return an error here while it is.
    ///
    /// # Errors
    /// Fails if the source cannot be reached.
    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }
}

/// A source behind a pointer is one too.
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

/// Where a subscription begins.
///
/// A runtime whose executors have a [saved position](crate::RunLedger::save_positions) also reads the store for everything
/// committed between that position and the start of the subscription.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum StartAt {
    /// With what happens from now on.
    #[default]
    Now,
    /// With the oldest event the source still has.
    Beginning,
    /// After the event at this position; see [`Delivery::position`].
    After(u64),
    /// With the oldest event after this time, by the store's clock. A source that does not know the times of its events starts
    /// with its oldest event, or as it does for [`Beginning`](Self::Beginning).
    Since(Timestamp),
}

/// One delivered event. The runtime acknowledges it once its runs are in a ledger that outlives the process, or have ended.
#[derive(Clone)]
#[non_exhaustive]
pub struct Delivery {
    /// The event.
    pub event: Event,
    /// Its place in the source, if that counts.
    pub position: Option<u64>,
    receipt: Option<Arc<dyn Receipt>>,
    /// If `true`, the source has not yet delivered all earlier events.
    is_ahead: bool,
}

/// How a source learns what became of a delivery.
#[async_trait]
pub trait Receipt: Send + Sync {
    /// The event is taken care of.
    ///
    /// # Errors
    /// Fails if the source cannot be told; it will deliver again.
    async fn ack(&self) -> Result<(), SourceError>;

    /// The event shall come again after a delay.
    ///
    /// # Errors
    /// Fails if the source cannot be told, or takes back no more.
    async fn nack(&self, delay: Duration) -> Result<(), SourceError>;

    /// Returns `true` if [`ack`](Self::ack) has an effect. A runtime does not call the `ack` of other receipts. Defaults to `true`.
    fn needs_ack(&self) -> bool {
        true
    }
}

impl Delivery {
    /// A delivery that needs no acknowledgement.
    #[must_use]
    pub fn new(event: Event) -> Self {
        Self {
            event,
            position: None,
            receipt: None,
            is_ahead: false,
        }
    }

    /// Marks an event that is delivered before earlier events, so that it shows no progress of the source.
    pub(crate) fn ahead(mut self) -> Self {
        self.is_ahead = true;
        self
    }

    /// Returns `true` for an event that the source delivered before earlier events.
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Sets its place in the source.
    #[must_use]
    pub fn at(mut self, position: u64) -> Self {
        self.position = Some(position);
        self
    }

    /// Sets who learns what became of it.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Arc<dyn Receipt>) -> Self {
        self.receipt = Some(receipt);
        self
    }

    /// Puts somebody in between who learns what became of it. Nobody, if it needs no acknowledgement.
    pub(crate) fn map_receipt(
        mut self,
        between: impl FnOnce(Arc<dyn Receipt>) -> Arc<dyn Receipt>,
    ) -> Self {
        self.receipt = self.receipt.map(between);
        self
    }

    /// Its event, its place, and who learns what became of it.
    pub(crate) fn into_parts(self) -> (Event, Option<u64>, Option<Arc<dyn Receipt>>) {
        (self.event, self.position, self.receipt)
    }

    /// Acknowledges the event: its runs are in a ledger that outlives the process, or have ended.
    ///
    /// # Errors
    /// Fails if the source cannot be told; it will deliver again, which is harmless.
    pub async fn ack(&self) -> Result<(), SourceError> {
        match &self.receipt {
            Some(receipt) => receipt.ack().await,
            None => Ok(()),
        }
    }

    /// Asks for the event again after a delay. A source that takes nothing back says so.
    ///
    /// # Errors
    /// Fails if the source cannot be told, or takes nothing (more) back.
    pub async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        match &self.receipt {
            Some(receipt) => receipt.nack(delay).await,
            None => Err(SourceError::NotTakenBack {
                reason: "this source does not deliver again",
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
