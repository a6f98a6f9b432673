use super::link::{Link, pause};
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

/// How many events may be on their way to the server at a time.
const AT_ONCE: usize = 64;

/// How much of the largest message a server takes is for headers.
const HEADERS: usize = 1 << 10;

/// Publishes what a store commits: the outbox of a store whose events are remembered by name.
///
/// Events are published in the order of the commits, and come to JetStream in that order unless the connection is lost
/// meanwhile. An event is acknowledged to the store once JetStream has it, so one that a crash took is published again; the
/// server knows it by its `Nats-Msg-Id` for two minutes, and workers by their ledger for longer. Any number may run.
///
/// An event that is too large for the server goes without its context, or without its tags; one that is still too large is
/// left to those who look into the store.
pub struct NatsRelay {
    link: Link,
    tenant: Arc<str>,
}

impl NatsRelay {
    /// A relay to a server, for a tenant. An address alone will do for a server: see [`NatsServer::new`].
    ///
    /// # Errors
    /// As [`NatsSourceBuilder::connect`](super::NatsSourceBuilder::connect).
    pub async fn connect(
        server: impl Into<NatsServer>,
        tenant: impl Into<Arc<str>>,
    ) -> Result<Self, NatsError> {
        let tenant = tenant.into();
        subject::check_tenant(&tenant)?;
        Ok(Self {
            link: Link::open(&server.into()).await?,
            tenant,
        })
    }

    /// Publishes the events of a source until it ends. What cannot be published now is tried again.
    ///
    /// # Errors
    /// Only if the source cannot be subscribed to.
    pub async fn run(self, source: impl EventSource) -> Result<(), SourceError> {
        let events = source.subscribe(StartAt::Beginning).await?;
        let deliveries = events.then(delivered).filter_map(future::ready);
        let passed_on = deliveries
            .map(|delivery| self.pass_on(delivery))
            .buffered(AT_ONCE);
        let mut passed_on = pin!(passed_on);
        while passed_on.next().await.is_some() {}
        Ok(())
    }

    async fn pass_on(&self, delivery: Delivery) {
        let mut attempts = 0;
        while let Err(error) = self.publish(&delivery.event).await {
            attempts += 1;
            tracing::warn!(error = %Chain(&error), attempts, "an event is published later");
            sleep(pause(attempts)).await;
            // It may be that which is missing.
            drop(self.link.make_stream().await);
        }
        if let Err(error) = delivery.ack().await {
            tracing::warn!(code = error.code(), error = %Chain(&error), "an event will be published again");
        }
    }

    /// Publishes one event, and waits until JetStream has it. One that is too large for the server is left out.
    ///
    /// # Errors
    /// [`NatsError::Failed`].
    pub async fn publish(&self, event: &Event) -> Result<(), NatsError> {
        const PUBLISH: &str = "publish an event";
        let payload = self.payload(event);
        let payload = payload.map_err(|error| NatsError::failed(PUBLISH, error))?;
        let Some(payload) = payload else {
            tracing::warn!(breadcrumb = %event.breadcrumb_id, "an event is too large to be published");
            return Ok(());
        };
        let subject = subject::of_event(&self.tenant, event.schema_name.as_deref());
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", subject::message_id(&self.tenant, event));
        headers.insert("Nats-Expected-Stream", &*self.link.stream);
        let sent = self
            .link
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
                tracing::warn!(breadcrumb = %event.breadcrumb_id, "the server takes no event of this size");
                Ok(())
            }
            Err(error) => Err(NatsError::failed(PUBLISH, error)),
        }
    }

    /// The event as JSON; without its context, or its tags too, if server or stream take no message as large as that.
    fn payload(&self, event: &Event) -> Result<Option<Vec<u8>>, serde_json::Error> {
        let takes = self.link.largest().saturating_sub(HEADERS);
        smallest(event, takes.min(LARGEST_MESSAGE))
    }
}

/// As much of an event as there is room for, if there is for any.
fn smallest(event: &Event, largest: usize) -> Result<Option<Vec<u8>>, serde_json::Error> {
    let fits = |payload: &Vec<u8>| payload.len() <= largest;
    let whole = serde_json::to_vec(event)?;
    if fits(&whole) {
        return Ok(Some(whole));
    }
    let mut less = event.envelope();
    let without_context = serde_json::to_vec(&less)?;
    if fits(&without_context) {
        return Ok(Some(without_context));
    }
    less.tags.clear();
    Ok(Some(serde_json::to_vec(&less)?).filter(fits))
}

/// A delivery; none after an error, and a while later.
async fn delivered(next: Result<Delivery, SourceError>) -> Option<Delivery> {
    let error = match next {
        Ok(delivery) => return Some(delivery),
        Err(error) => error,
    };
    tracing::warn!(error = %Chain(&error), "the events of the store stumbled");
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
            .field("stream", &self.link.stream)
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
