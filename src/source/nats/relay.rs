use super::connection::{Connection, pause};
use super::{LARGEST_MESSAGE, NatsError, NatsServer, subject};
use crate::error::Chain;
use crate::error::Retry;
use crate::model::Event;
use crate::source::{Delivery, EventSource, SourceError, StartAt};
use async_nats::HeaderMap;
use async_nats::jetstream::context::PublishErrorKind;
use futures::{StreamExt as _, future};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Maximum number of events that a relay publishes to NATS at the same time.
const MAX_CONCURRENT: usize = 64;

/// Part of the NATS server's maximum message size that is reserved for headers, in bytes.
const HEADERS: usize = 1 << 10;

/// Relay that publishes the events of a store to NATS JetStream (feature `nats`). The store must save consumers by
/// name.
///
/// The relay publishes events in commit order. JetStream stores them in this order unless the connection is lost in
/// between. The relay acknowledges an event to the store once JetStream has stored it, and publishes the event again
/// after a crash in between. The server removes such a duplicate for two minutes by its `Nats-Msg-Id`, and later
/// duplicates find their runs in the ledger. Any number of relays may run.
///
/// The relay omits the context of an event that is too large for the server, and then its tags. It skips an event that
/// is still too large, with a warning. A sweep of the store finds the trigger.
///
/// # Examples
/// ```no_run
/// use universal_executor::source::NatsRelay;
/// use universal_executor::{BoxError, SqliteStore};
///
/// async fn relay(store: SqliteStore) -> Result<(), BoxError> {
///     let relay = NatsRelay::connect("nats://127.0.0.1:4222", "default").await?;
///     // Runs next to the runtime of the service, until the future is dropped.
///     relay.run(store.events_of("nats")).await?;
///     Ok(())
/// }
/// ```
pub struct NatsRelay {
    connection: Connection,
    tenant: Arc<str>,
}

impl NatsRelay {
    /// Connects to a NATS server as the relay of a tenant, and creates the stream if it does not exist. `server` is a
    /// [`NatsServer`] or its address.
    ///
    /// # Errors
    /// Returns a [`NatsError`] in the same cases as [`NatsSourceBuilder::connect`](super::NatsSourceBuilder::connect).
    pub async fn connect(
        server: impl Into<NatsServer>,
        tenant: impl Into<Arc<str>>,
    ) -> Result<Self, NatsError> {
        let tenant = tenant.into();
        subject::check_tenant(&tenant)?;
        Ok(Self {
            connection: Connection::open(&server.into()).await?,
            tenant,
        })
    }

    /// Publishes the events of a source to NATS until the source's event stream ends. Retries an event that cannot be
    /// published, with an exponential backoff of at most 30 s.
    ///
    /// # Errors
    /// Returns a [`SourceError`] if the subscription to the source fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the source delivers the events that are not acknowledged to the next relay.
    pub async fn run(self, source: impl EventSource) -> Result<(), SourceError> {
        let events = source.subscribe(StartAt::Beginning).await?;
        let deliveries = events.then(next_delivery).filter_map(future::ready);
        let published = deliveries
            .map(|delivery| self.publish_and_ack(delivery))
            .buffered(MAX_CONCURRENT);
        let mut published = pin!(published);
        while published.next().await.is_some() {}
        Ok(())
    }

    async fn publish_and_ack(&self, delivery: Delivery) {
        let mut attempts = 0;
        while let Err(error) = self.publish(&delivery.event).await {
            attempts += 1;
            tracing::warn!(error = %Chain(&error), attempts, "cannot publish an event to NATS, will retry");
            sleep(pause(attempts)).await;
            // The stream may be missing.
            drop(self.connection.get_or_create_event_stream().await);
        }
        if let Err(error) = delivery.ack().await {
            tracing::warn!(
                code = error.code(),
                error = %Chain(&error),
                "an event was published to NATS, but cannot be acknowledged in the store; will publish the event again"
            );
        }
    }

    /// Publishes one event to NATS, and waits until JetStream has stored it. Skips an event that is too large for the
    /// server, with a warning.
    ///
    /// # Errors
    /// Returns [`NatsError::Failed`] if the event cannot be published.
    ///
    /// # Cancel safety
    /// If the future is dropped, the event may or may not be published. Publishing it again is safe: the server removes
    /// duplicates for two minutes.
    pub async fn publish(&self, event: &Event) -> Result<(), NatsError> {
        const PUBLISH: &str = "publish an event";
        let payload = self.payload(event);
        let payload = payload.map_err(|error| NatsError::failed(PUBLISH, error))?;
        let Some(payload) = payload else {
            tracing::warn!(
                breadcrumb = %event.breadcrumb_id,
                "an event is too large for NATS and was not published; a sweep of the store will find its breadcrumb"
            );
            return Ok(());
        };
        let subject = subject::of_event(&self.tenant, event.schema_name.as_deref());
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", subject::message_id(&self.tenant, event));
        headers.insert("Nats-Expected-Stream", &*self.connection.stream);
        let sent = self
            .connection
            .jetstream
            .publish_with_headers(subject, headers, payload.into())
            .await;
        let stored = match sent {
            Ok(stored) => stored.await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                tracing::warn!(
                    breadcrumb = %event.breadcrumb_id,
                    "the NATS server rejected an event as too large; a sweep of the store will find its breadcrumb"
                );
                Ok(())
            }
            Err(error) => Err(NatsError::failed(PUBLISH, error)),
        }
    }

    /// Returns an event as JSON for NATS. Omits the context, or the context and the tags, if the event is too large for
    /// the server or the stream. Returns `None` if the event is still too large.
    fn payload(&self, event: &Event) -> Result<Option<Vec<u8>>, serde_json::Error> {
        let max_bytes = self.connection.max_message_size().saturating_sub(HEADERS);
        smallest(event, max_bytes.min(LARGEST_MESSAGE))
    }
}

/// Returns an event as JSON of at most `largest` bytes, and omits the context, and then also the tags, of a larger
/// event. Returns `None` if the event is still too large.
fn smallest(event: &Event, largest: usize) -> Result<Option<Vec<u8>>, serde_json::Error> {
    let fits = |payload: &Vec<u8>| payload.len() <= largest;
    let full = serde_json::to_vec(event)?;
    if fits(&full) {
        return Ok(Some(full));
    }
    let mut reduced = event.envelope();
    let without_context = serde_json::to_vec(&reduced)?;
    if fits(&without_context) {
        return Ok(Some(without_context));
    }
    reduced.tags.clear();
    Ok(Some(serde_json::to_vec(&reduced)?).filter(fits))
}

/// Returns the next delivery of the event source whose events the relay publishes to NATS. After an error of the event
/// source, waits for the retry delay and returns `None`.
async fn next_delivery(next: Result<Delivery, SourceError>) -> Option<Delivery> {
    let error = match next {
        Ok(delivery) => return Some(delivery),
        Err(error) => error,
    };
    tracing::warn!(error = %Chain(&error), "reading events for the NATS relay failed, will retry");
    sleep(match error.retry() {
        Retry::After(delay) => delay,
        Retry::Never => Duration::from_secs(1),
    })
    .await;
    None
}

impl fmt::Debug for NatsRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsRelay")
            .field("stream", &self.connection.stream)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb, Timestamp};

    #[test]
    fn as_much_of_an_event_travels_as_there_is_room_for() {
        let new = NewBreadcrumb::new("note.v1").tag("x".repeat(200));
        let new = new.context(serde_json::json!({"text": "y".repeat(500)}));
        let event = Event::created(&new.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH));
        let room_for = |bytes| smallest(&event, bytes).unwrap();
        let event_of =
            |bytes| -> Event { serde_json::from_slice(&room_for(bytes).unwrap()).unwrap() };

        assert!(event_of(1_000).context.is_some());
        assert_eq!((event_of(500).context, event_of(500).tags.len()), (None, 1));
        assert!(event_of(300).tags.is_empty());
        assert_eq!(room_for(10), None);
    }
}
