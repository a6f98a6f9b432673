use super::{Delivery, SourceError};
use crate::model::Timestamp;
use futures::Stream;
use futures::stream::BoxStream;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Stream of the events that one subscription to an event source delivers.
///
/// An error item does not end the stream. It reports a loss ([`SourceError::Lagged`]) or a failure of the source, and
/// the next item follows once the source delivers again. The stream has ended when it returns `None`.
///
/// [`EventSource::subscribe`](super::EventSource::subscribe) returns it. Read it with `next` of
/// `futures::StreamExt`.
///
/// # Cancel safety
/// The future of `next` can be dropped: no event is lost.
#[must_use = "a stream does nothing unless it is polled"]
pub struct Deliveries {
    start: Option<u64>,
    delivered_after: Option<Timestamp>,
    stream: BoxStream<'static, Result<Delivery, SourceError>>,
}

impl Deliveries {
    /// Creates the deliveries of one subscription from a stream of items, for a source whose events have no positions.
    /// Sets neither [`start`](Self::start) nor [`delivered_after`](Self::delivered_after).
    pub fn new(stream: impl Stream<Item = Result<Delivery, SourceError>> + Send + 'static) -> Self {
        Self {
            start: None,
            delivered_after: None,
            stream: Box::pin(stream),
        }
    }

    /// Sets the source position of the last event before this subscription, which [`start`](Self::start) returns.
    pub fn starting_after(mut self, position: impl Into<Option<u64>>) -> Self {
        self.start = position.into();
        self
    }

    /// Sets the time after which this subscription delivers every event, which
    /// [`delivered_after`](Self::delivered_after) returns.
    pub fn delivering_after(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.delivered_after = time.into();
        self
    }

    /// Replaces the stream of deliveries by the stream that `wrapper` returns. Keeps [`start`](Self::start) and
    /// [`delivered_after`](Self::delivered_after). Use this in an [`EventSource`](super::EventSource) that wraps
    /// another one.
    ///
    /// # Examples
    /// A source that omits the events of one schema:
    ///
    /// ```
    /// use futures::{StreamExt, future};
    /// use universal_executor::source::{Deliveries, StartAt};
    /// use universal_executor::{BreadcrumbStoreExt, EventSource, MemoryStore, NewBreadcrumb};
    ///
    /// fn without_logs(deliveries: Deliveries) -> Deliveries {
    ///     deliveries.wrap(|events| {
    ///         events.filter(|next| {
    ///             let event = next.as_ref().ok().map(|one| &one.event);
    ///             let schema = event.and_then(|event| event.schema_name.as_deref());
    ///             future::ready(schema != Some("log.v1"))
    ///         })
    ///     })
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let mut events = without_logs(store.events().subscribe(StartAt::Now).await?);
    /// store.create(NewBreadcrumb::new("log.v1")).await?;
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    ///
    /// let delivery = events.next().await.ok_or("the stream ended")??;
    /// assert_eq!(delivery.event.breadcrumb_id, order.id);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn wrap<S>(self, wrapper: impl FnOnce(Self) -> S) -> Self
    where
        S: Stream<Item = Result<Delivery, SourceError>> + Send + 'static,
    {
        let (start, time) = (self.start, self.delivered_after);
        Self::new(wrapper(self))
            .starting_after(start)
            .delivering_after(time)
    }

    /// Returns the position of the last event before this subscription, or `None` if the source has no positions.
    ///
    /// A later subscription [after](super::StartAt::After) this position delivers every event of this one again.
    #[must_use]
    pub const fn start(&self) -> Option<u64> {
        self.start
    }

    /// Returns the time after which this subscription delivers every event or reports its loss. The consumer has
    /// acknowledged the earlier events, or the subscription starts after them. Returns `None` if the source does not
    /// know the time.
    ///
    /// The runtime reads the store for events between its saved position and this time.
    #[must_use]
    pub const fn delivered_after(&self) -> Option<Timestamp> {
        self.delivered_after
    }
}

impl Stream for Deliveries {
    type Item = Result<Delivery, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.as_mut().poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliveries")
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}
