use super::link::Link;
use super::{NatsError, subject};
use crate::model::{Event, EventKind};
use crate::source::{EventSource, SourceError, StartAt};
use async_nats::HeaderMap;
use futures::StreamExt as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Publishes what a store commits, in the order of the commits: the outbox of a store whose events are remembered by name.
///
/// An event is acknowledged to the store once JetStream has it, so one that a crash took is published again; the server
/// knows it by its `Nats-Msg-Id` for two minutes, and workers by their ledger for longer. Any number may run.
pub struct NatsRelay {
    link: Link,
    tenant: Arc<str>,
}

impl NatsRelay {
    /// A relay to a server, for a tenant. The stream `BREADCRUMBS` is made if it is not there.
    ///
    /// # Errors
    /// As [`NatsSourceBuilder::connect`](super::NatsSourceBuilder::connect).
    pub async fn connect(
        url: impl AsRef<str>,
        tenant: impl Into<Arc<str>>,
    ) -> Result<Self, NatsError> {
        Self::connect_to(url, Link::STREAM, tenant).await
    }

    /// The same with a stream of another name.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_to(
        url: impl AsRef<str>,
        stream: impl AsRef<str>,
        tenant: impl Into<Arc<str>>,
    ) -> Result<Self, NatsError> {
        Ok(Self {
            link: Link::open(url.as_ref(), stream.as_ref()).await?,
            tenant: tenant.into(),
        })
    }

    /// Publishes the events of a source until it ends. What cannot be published now is tried again.
    ///
    /// # Errors
    /// Only if the source cannot be subscribed to.
    pub async fn run(self, source: impl EventSource) -> Result<(), SourceError> {
        let mut events = source.subscribe(StartAt::Beginning).await?;
        while let Some(next) = events.next().await {
            let delivery = match next {
                Ok(delivery) => delivery,
                Err(error) => {
                    tracing::warn!(error = error.code(), "the events of the store stumbled");
                    continue;
                }
            };
            self.publish_until_it_is_there(&delivery.event).await;
            if let Err(error) = delivery.ack().await {
                tracing::warn!(error = error.code(), "an event will be published again");
            }
        }
        Ok(())
    }

    async fn publish_until_it_is_there(&self, event: &Event) {
        const LONGEST: Duration = Duration::from_secs(30);
        let mut pause = Duration::from_millis(100);
        while let Err(error) = self.publish(event).await {
            tracing::warn!(%error, "an event is published later");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Publishes one event, and waits until JetStream has it.
    ///
    /// # Errors
    /// [`NatsError::Failed`].
    pub async fn publish(&self, event: &Event) -> Result<(), NatsError> {
        let failed = |error: async_nats::Error| NatsError::Failed {
            operation: "publish an event",
            source: error,
        };
        let payload = self.payload(event).map_err(|error| failed(error.into()))?;
        let subject = subject::of_event(&self.tenant, event.schema_name.as_deref());
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", self.message_id(event));
        let sent = self
            .link
            .jetstream
            .publish_with_headers(subject, headers, payload.into())
            .await;
        let stored = sent.map_err(|error| failed(error.into()))?.await;
        stored.map_err(|error| failed(error.into()))?;
        Ok(())
    }

    /// The event as JSON; without its context if the server takes no message as large as that.
    fn payload(&self, event: &Event) -> Result<Vec<u8>, serde_json::Error> {
        let whole = serde_json::to_vec(event)?;
        if whole.len() <= self.link.client.max_payload() || event.context.is_none() {
            return Ok(whole);
        }
        let mut bare = event.clone();
        bare.context = None;
        serde_json::to_vec(&bare)
    }

    fn message_id(&self, event: &Event) -> String {
        let kind = match event.kind {
            EventKind::Created | EventKind::Updated => "written",
            EventKind::Deleted => "deleted",
            EventKind::Ping => "ping",
        };
        let (id, version) = (event.breadcrumb_id, event.version);
        format!("{}:{id}:{version}:{kind}", self.tenant)
    }
}

impl fmt::Debug for NatsRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsRelay")
            .field("stream", &self.link.stream)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}
