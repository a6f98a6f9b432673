//! A subscription to a NATS stream: a pull consumer, which is created again when it is lost.

use super::connection::{is_unknown, pause};
use super::nacked::Nacked;
use super::stream_position::StreamPosition;
use super::{LARGEST_MESSAGE, NatsError, NatsSource};
use crate::bugs::planted;
use crate::clock::later;
use crate::error::Retry;
use crate::model::Event;
use crate::source::{Deliveries, Delivery, Receipt, SourceError, StartAt};
use async_nats::jetstream::consumer::{Config, PullConsumer, pull};
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{AckKind, Message};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

struct Subscription {
    source: NatsSource,
    /// Stream position at which the next NATS consumer starts.
    stream_position: StreamPosition,
    messages: Option<pull::Stream>,
    /// Number of consecutive failures of the NATS subscription.
    failures: u32,
    /// Time of the next attempt to receive messages from NATS.
    retry_at: Instant,
    nacked: Arc<Nacked>,
}

pub(super) async fn begin(source: NatsSource, from: StartAt) -> Result<Deliveries, SourceError> {
    let mut subscription = Subscription {
        source,
        stream_position: StreamPosition::new(from),
        messages: None,
        failures: 0,
        retry_at: Instant::now(),
        nacked: Arc::default(),
    };
    subscription.open().await.map_err(unavailable)?;
    let start = subscription.stream_position.start();
    let stream = stream::unfold(subscription, |mut subscription| async move {
        let next = subscription.next().await;
        Some((next, subscription))
    });
    Ok(Deliveries::new(stream).starting_after(start))
}

impl Subscription {
    async fn next(&mut self) -> Result<Delivery, SourceError> {
        loop {
            sleep_until(self.retry_at).await;
            if self.messages.is_none()
                && let Err(error) = self.open().await
            {
                return Err(self.connection_lost(error));
            }
            let Some(messages) = &mut self.messages else {
                continue;
            };
            let ended = match messages.next().await {
                Some(Ok(message)) => {
                    self.failures = 0;
                    if let Some(delivery) = self.delivery(message).await {
                        return Ok(delivery);
                    }
                    continue;
                }
                Some(Err(error)) => NatsError::failed("deliver the next message", error),
                None => NatsError::failed("deliver the next message", "the consumer ended"),
            };
            self.messages = None;
            return Err(self.connection_lost(ended));
        }
    }

    /// Creates the NATS consumer, or continues with the group's existing consumer, and requests messages.
    async fn open(&mut self) -> Result<(), NatsError> {
        let stream = self.source.connection.get_or_create_event_stream().await?;
        let (created, last) = {
            let info = stream.cached_info();
            (info.created, info.state.last_sequence)
        };
        if self.stream_position.is_of_other_stream(created) {
            self.nacked = Arc::default();
        }
        let start_at = self
            .stream_position
            .begin(created, last, self.nacked.first());
        let config = self.source.config(start_at);
        let known = match &config.durable_name {
            Some(name) => find_consumer(&stream, name).await?,
            None => None,
        };
        let consumer = match known {
            Some(known) => {
                let acknowledged = known.cached_info().ack_floor.stream_sequence;
                self.stream_position.resume_after(acknowledged);
                known
            }
            None => create_consumer(&stream, &config).await?,
        };
        check(&config, &consumer.cached_info().config)?;
        let messages = consumer
            .stream()
            .max_messages_per_batch(self.source.max_unacknowledged.min(256))
            .heartbeat(Duration::from_secs(5))
            .expires(Duration::from_secs(15))
            .messages()
            .await;
        let messages = messages.map_err(|error| NatsError::failed("request messages", error))?;
        self.messages = Some(messages);
        Ok(())
    }

    /// Reads the event in a NATS message. Returns `None` and naks the message if a nacked message arrives before it is
    /// due. Returns `None` and terminates the message if its payload is not an event.
    async fn delivery(&mut self, message: Message) -> Option<Delivery> {
        let position = message.info().ok().map(|info| info.stream_sequence);
        if let Some(remaining) = position.and_then(|position| self.nacked.remaining_delay(position))
        {
            let delay = remaining.min(self.source.ack_wait);
            drop(message.ack_with(AckKind::Nak(Some(delay))).await);
            return None;
        }
        if let Some(position) = position {
            self.stream_position.reached(position);
        }
        let event = match read(&message.payload) {
            Ok(event) => event,
            Err(Unreadable { why, bytes }) => {
                tracing::warn!(
                    position,
                    bytes,
                    reason = why,
                    "skipped a NATS message that is not an event"
                );
                drop(message.ack_with(AckKind::Term).await);
                return None;
            }
        };
        let receipt = NatsReceipt {
            message,
            position,
            max_delay: self.source.ack_wait,
            nacked: Arc::clone(&self.nacked),
        };
        let delivery = Delivery::new(event).with_receipt(Arc::new(receipt));
        Some(match position {
            Some(position) => delivery.at(position),
            None => delivery,
        })
    }

    fn connection_lost(&mut self, error: NatsError) -> SourceError {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = later(Instant::now(), pause(self.failures));
        unavailable(error)
    }
}

/// Reason why a NATS message is not an event. Omits the payload, which may be confidential.
struct Unreadable {
    why: &'static str,
    bytes: usize,
}

fn read(payload: &[u8]) -> Result<Event, Unreadable> {
    let unreadable = |why| Unreadable {
        why,
        bytes: payload.len(),
    };
    if payload.len() > LARGEST_MESSAGE {
        return Err(unreadable("message is too large"));
    }
    serde_json::from_slice(payload).map_err(|_| unreadable("payload is not the JSON of an event"))
}

/// Returns the NATS pull consumer with this name, or `None` if it does not exist.
async fn find_consumer(stream: &Stream, name: &str) -> Result<Option<PullConsumer>, NatsError> {
    const FIND: &str = "find the consumer";
    match stream.consumer_info(name).await {
        Ok(info) if info.config.deliver_subject.is_some() => Err(NatsError::OtherSettings {
            what: "consumer",
            name: name.to_owned(),
            difference: "expected a pull consumer, found a push consumer".to_owned(),
        }),
        Ok(_) => {
            let found = stream.get_consumer(name).await;
            found
                .map(Some)
                .map_err(|error| NatsError::failed(FIND, error))
        }
        Err(error) if is_unknown(&error) => Ok(None),
        Err(error) => Err(NatsError::failed(FIND, error)),
    }
}

/// Creates a NATS consumer. If that fails and the consumer has a name, returns the existing consumer: another worker
/// may have created it a moment before, with another start position.
async fn create_consumer(
    stream: &Stream,
    config: &pull::Config,
) -> Result<PullConsumer, NatsError> {
    let made = stream.create_consumer(config.clone()).await;
    let error = match made {
        Ok(made) => return Ok(made),
        Err(error) => NatsError::failed("create the consumer", error),
    };
    match &config.durable_name {
        Some(name) => find_consumer(stream, name).await?.ok_or(error),
        None => Err(error),
    }
}

/// Checks that a NATS consumer has the settings that delivery depends on. An existing consumer may have other settings,
/// and an old server ignores settings that it does not support.
fn check(expected: &pull::Config, found: &Config) -> Result<(), NatsError> {
    let difference = if found.filter_subject != expected.filter_subject {
        format!(
            "filter subject is {:?}, expected {:?}",
            found.filter_subject, expected.filter_subject
        )
    } else if found.max_deliver != expected.max_deliver {
        format!("server gives up after {} deliveries", found.max_deliver)
    } else if found.ack_policy != expected.ack_policy {
        format!(
            "acknowledgements are {:?}, expected Explicit",
            found.ack_policy
        )
    } else if found.max_ack_pending != expected.max_ack_pending {
        format!(
            "delivery stops after {} unacknowledged events, expected {}",
            found.max_ack_pending, expected.max_ack_pending
        )
    } else if found.headers_only {
        "only message headers are delivered".to_owned()
    } else {
        if found.ack_wait != expected.ack_wait {
            tracing::warn!(
                existing = ?found.ack_wait,
                configured = ?expected.ack_wait,
                "existing NATS consumer has another acknowledgement timeout than configured; the existing timeout applies"
            );
        }
        return Ok(());
    };
    Err(NatsError::OtherSettings {
        what: "consumer",
        name: expected.durable_name.clone().unwrap_or_default(),
        difference,
    })
}

struct NatsReceipt {
    message: Message,
    position: Option<u64>,
    /// Maximum redelivery delay that a nak (negative acknowledgement) to the NATS server requests.
    max_delay: Duration,
    nacked: Arc<Nacked>,
}

#[async_trait]
impl Receipt for NatsReceipt {
    /// Acknowledges the NATS message, and waits until the server confirms the acknowledgement.
    async fn ack(&self) -> Result<(), SourceError> {
        if let Some(position) = self.position {
            self.nacked.remove(position);
        }
        self.message.double_ack().await.map_err(not_confirmed)
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        if let Some(position) = self.position
            && !self.nacked.set(position, later(Instant::now(), delay))
        {
            return Err(SourceError::NoRedelivery {
                reason: "too many nacked messages wait for redelivery",
            });
        }
        let kind = match planted("nak-late") {
            true => AckKind::Term,
            false => AckKind::Nak(Some(delay.min(self.max_delay))),
        };
        self.message
            .double_ack_with(kind)
            .await
            .map_err(not_confirmed)
    }
}

fn not_confirmed(source: async_nats::Error) -> SourceError {
    SourceError::Unavailable {
        retry_after: Duration::from_secs(1),
        source,
    }
}

pub(super) fn unavailable(error: NatsError) -> SourceError {
    let retry_after = match error.retry() {
        Retry::After(delay) => delay,
        // An operator may fix the configuration.
        Retry::Never => Duration::from_secs(30),
    };
    SourceError::Unavailable {
        retry_after,
        source: error.into(),
    }
}
