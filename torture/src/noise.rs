//! Event sources with faults: one that repeats events at once or much later, and one that delivers none.

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use std::collections::VecDeque;
use universal_executor::EventSource;
use universal_executor::model::Event;
use universal_executor::source::{Deliveries, Delivery, SourceError, StartAt};

/// A source that loses all events.
#[derive(Debug)]
pub struct Deaf;

#[async_trait]
impl EventSource for Deaf {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        Ok(Deliveries::new(stream::pending()))
    }
}

/// Maximum number of events that the source can repeat.
const MAX_REPEATABLE: usize = 256;

/// A source that repeats events at random.
#[derive(Debug)]
pub struct Noisy<E> {
    inner: E,
    seed: u64,
}

impl<E> Noisy<E> {
    /// Wraps a source.
    pub const fn new(inner: E, seed: u64) -> Self {
        Self { inner, seed }
    }
}

struct Repeated {
    inner: Deliveries,
    random: fastrand::Rng,
    delivered: VecDeque<Event>,
    repetitions: usize,
}

impl Repeated {
    async fn next(&mut self) -> Option<Result<Delivery, SourceError>> {
        if self.repetitions > 0 && !self.delivered.is_empty() {
            self.repetitions -= 1;
            let which = self.random.usize(..self.delivered.len());
            let event = self.delivered.get(which).cloned();
            return event.map(|event| Ok(Delivery::new(event)));
        }
        let next = self.inner.next().await?;
        if let Ok(delivery) = &next {
            self.delivered.push_back(delivery.event.clone());
            if self.delivered.len() > MAX_REPEATABLE {
                self.delivered.pop_front();
            }
            if self.random.u8(..10) == 0 {
                self.repetitions = self.random.usize(1..=5);
            }
        }
        Some(next)
    }
}

#[async_trait]
impl<E: EventSource> EventSource for Noisy<E> {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let deliveries = self.inner.subscribe(from).await?;
        Ok(deliveries.wrap(|inner| {
            let repeated = Repeated {
                inner,
                random: fastrand::Rng::with_seed(self.seed),
                delivered: VecDeque::new(),
                repetitions: 0,
            };
            stream::unfold(repeated, |mut repeated| async move {
                let next = repeated.next().await?;
                Some((next, repeated))
            })
        }))
    }

    fn is_complete(&self) -> bool {
        self.inner.is_complete()
    }
}
