//! One subscription: a pull consumer, made again when it is lost.

use super::{NatsError, NatsSource};
use crate::bugs::planted;
use crate::clock::later;
use crate::model::Event;
use crate::source::{Delivery, Receipt, SourceError, StartAt};
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{AckKind, Message};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

struct Subscription {
    source: NatsSource,
    /// Where a consumer begins that has to be made.
    from: StartAt,
    messages: Option<pull::Stream>,
    /// How often in a row it could not go on, and when it is tried again.
    failures: u32,
    again: Instant,
    returned: Arc<Returned>,
}

/// When what was given back is due, by position. The server is told of a short delay at a time: it keeps what it is told
/// for whoever comes next, and that shall not have to wait.
#[derive(Default)]
struct Returned(Mutex<HashMap<u64, Instant>>);

impl Returned {
    fn set(&self, position: u64, due: Instant) {
        self.open().insert(position, due);
    }

    /// How long something is not due yet; what is due is forgotten.
    fn early(&self, position: u64) -> Option<Duration> {
        let mut open = self.open();
        let left = open
            .get(&position)?
            .saturating_duration_since(Instant::now());
        if left.is_zero() {
            open.remove(&position);
            return None;
        }
        Some(left)
    }

    fn forget(&self, position: u64) {
        self.open().remove(&position);
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn begin(
    source: NatsSource,
    from: StartAt,
) -> Result<BoxStream<'static, Result<Delivery, SourceError>>, SourceError> {
    let mut subscription = Subscription {
        source,
        from,
        messages: None,
        failures: 0,
        again: Instant::now(),
        returned: Arc::default(),
    };
    subscription.open().await.map_err(unavailable)?;
    Ok(stream::unfold(subscription, |mut subscription| async move {
        let next = subscription.next().await;
        Some((next, subscription))
    })
    .boxed())
}

impl Subscription {
    async fn next(&mut self) -> Result<Delivery, SourceError> {
        loop {
            sleep_until(self.again).await;
            if self.messages.is_none()
                && let Err(error) = self.open().await
            {
                return Err(self.lost(error));
            }
            let Some(messages) = &mut self.messages else {
                continue;
            };
            match messages.next().await {
                Some(Ok(message)) => {
                    self.failures = 0;
                    if let Some(delivery) = self.delivery(message).await {
                        return Ok(delivery);
                    }
                }
                Some(Err(error)) => {
                    self.messages = None;
                    let source = error.into();
                    let operation = "go on delivering";
                    return Err(self.lost(NatsError::Failed { operation, source }));
                }
                None => {
                    self.messages = None;
                    let source = "the consumer ended".into();
                    let operation = "go on delivering";
                    return Err(self.lost(NatsError::Failed { operation, source }));
                }
            }
        }
    }

    /// Makes the consumer, or goes on with the one that is there.
    async fn open(&mut self) -> Result<(), NatsError> {
        let link = &self.source.link;
        link.make_stream().await?;
        let wanted = self.source.config(self.from);
        let stream = link.jetstream.get_stream(&link.stream).await;
        let stream = stream.map_err(|error| NatsError::Failed {
            operation: "find the stream",
            source: error.into(),
        })?;
        let from_the_future = match self.from {
            StartAt::After(position) => position > stream.cached_info().state.last_sequence,
            StartAt::Now | StartAt::Beginning => false,
        };
        // A position from the future is of another stream's life: nothing from now on may be missed for it.
        let wanted = match from_the_future {
            true => self.source.config(StartAt::Now),
            false => wanted,
        };
        let known = match &wanted.durable_name {
            Some(name) => stream.get_consumer::<pull::Config>(name).await.ok(),
            None => None,
        };
        let consumer = match known {
            Some(known) => {
                check(&wanted, &known.cached_info().config)?;
                known
            }
            None => {
                let made = stream.create_consumer(wanted).await;
                made.map_err(|error| NatsError::Failed {
                    operation: "make the consumer",
                    source: error.into(),
                })?
            }
        };
        let messages = consumer
            .stream()
            .max_messages_per_batch(self.source.max_unacknowledged.min(256))
            .heartbeat(Duration::from_secs(5))
            .expires(Duration::from_secs(15))
            .messages()
            .await;
        self.messages = Some(messages.map_err(|error| NatsError::Failed {
            operation: "ask for messages",
            source: error.into(),
        })?);
        Ok(())
    }

    /// What a message announces; none if that is nothing that could ever be read.
    async fn delivery(&mut self, message: Message) -> Option<Delivery> {
        let position = message.info().ok().map(|info| info.stream_sequence);
        if let Some(left) = position.and_then(|position| self.returned.early(position)) {
            let delay = left.min(self.source.ack_wait);
            drop(message.ack_with(AckKind::Nak(Some(delay))).await);
            return None;
        }
        let event: Event = match serde_json::from_slice(&message.payload) {
            Ok(event) => event,
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                tracing::warn!(
                    position,
                    line,
                    column,
                    "a message in the stream is no event, and is left out"
                );
                drop(message.ack_with(AckKind::Term).await);
                return None;
            }
        };
        if let Some(position) = position
            && self.source.group.is_none()
        {
            // A consumer that is made again goes on behind what was delivered.
            self.from = StartAt::After(position);
        }
        let receipt = NatsReceipt {
            message,
            position,
            longest: self.source.ack_wait,
            returned: Arc::clone(&self.returned),
        };
        let delivery = Delivery::new(event).with_receipt(Arc::new(receipt));
        Some(match position {
            Some(position) => delivery.at(position),
            None => delivery,
        })
    }

    fn lost(&mut self, error: NatsError) -> SourceError {
        const LONGEST: Duration = Duration::from_secs(30);
        self.failures = self.failures.saturating_add(1);
        let pause = Duration::from_millis(100).saturating_mul(1 << self.failures.min(9));
        self.again = later(Instant::now(), pause.min(LONGEST));
        unavailable(error)
    }
}

/// Whether a consumer that is there is the one that is wanted, as far as it matters.
fn check(
    wanted: &pull::Config,
    found: &async_nats::jetstream::consumer::Config,
) -> Result<(), NatsError> {
    let consumer = wanted.durable_name.clone().unwrap_or_default();
    let difference = if found.filter_subject != wanted.filter_subject {
        format!("it filters {:?}", found.filter_subject)
    } else if found.max_deliver != wanted.max_deliver {
        format!("it gives up after {} deliveries", found.max_deliver)
    } else if found.ack_policy != wanted.ack_policy {
        format!("its acknowledgements are {:?}", found.ack_policy)
    } else if found.deliver_subject.is_some() {
        "it pushes".to_owned()
    } else {
        return Ok(());
    };
    Err(NatsError::OtherConsumer {
        consumer,
        difference,
    })
}

struct NatsReceipt {
    message: Message,
    position: Option<u64>,
    /// How long the server is told to wait at the most.
    longest: Duration,
    returned: Arc<Returned>,
}

#[async_trait]
impl Receipt for NatsReceipt {
    /// Waits until the server says that it knows.
    async fn ack(&self) -> Result<(), SourceError> {
        if let Some(position) = self.position {
            self.returned.forget(position);
        }
        self.message.double_ack().await.map_err(untold)
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        if let Some(position) = self.position {
            self.returned.set(position, later(Instant::now(), delay));
        }
        let kind = match planted("nak-late") {
            true => AckKind::Term,
            false => AckKind::Nak(Some(delay.min(self.longest))),
        };
        self.message.double_ack_with(kind).await.map_err(untold)
    }
}

fn untold(source: async_nats::Error) -> SourceError {
    SourceError::Unavailable {
        retry_after: Duration::from_secs(1),
        source,
    }
}

fn unavailable(error: NatsError) -> SourceError {
    SourceError::Unavailable {
        retry_after: Duration::from_secs(1),
        source: error.into(),
    }
}
