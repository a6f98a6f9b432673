use super::{CallOutcome, CallTimer, Instrumented};
use crate::source::{Deliveries, Delivery, EventSource, Receipt, SourceError, StartAt};
use crate::store::Operation;
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use std::sync::Arc;
use std::time::Duration;

#[async_trait]
impl<E: EventSource> EventSource for Instrumented<E> {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let subscribe = self.inner.subscribe(from);
        let deliveries = timed(&self.name, Operation::Subscribe, subscribe).await?;
        let name = Arc::clone(&self.name);
        Ok(deliveries.wrap(|inner| {
            let subscription = Subscription { inner, name };
            stream::unfold(subscription, |mut subscription| async move {
                let delivered = subscription.next().await?;
                Some((delivered, subscription))
            })
        }))
    }

    fn is_complete(&self) -> bool {
        self.inner.is_complete()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn description(&self) -> String {
        self.inner.description()
    }

    /// Returns the inner source's number of events that are not acknowledged. Only monitoring calls this method, so no log line
    /// is written.
    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        self.inner.behind().await
    }
}

/// Awaits a call of an event source and logs it.
async fn timed<T>(
    name: &str,
    operation: Operation,
    call: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let mut timer = CallTimer::begin(name, None, operation);
    let answer = call.await;
    timer.outcome = CallOutcome::of_source(&answer);
    answer
}

struct Subscription {
    inner: Deliveries,
    name: Arc<str>,
}

impl Subscription {
    async fn next(&mut self) -> Option<Result<Delivery, SourceError>> {
        let mut timer = CallTimer::begin(&self.name, None, Operation::Next);
        let delivered = self.inner.next().await;
        timer.outcome = match &delivered {
            Some(delivered) => CallOutcome::of_source(delivered),
            None => CallOutcome::plain("ended"),
        };
        Some(delivered?.map(|delivery| self.instrument(delivery)))
    }

    fn instrument(&self, delivery: Delivery) -> Delivery {
        let name = Arc::clone(&self.name);
        delivery.map_receipt(|inner| Arc::new(InstrumentedReceipt { inner, name }))
    }
}

struct InstrumentedReceipt {
    inner: Arc<dyn Receipt>,
    name: Arc<str>,
}

#[async_trait]
impl Receipt for InstrumentedReceipt {
    async fn ack(&self) -> Result<(), SourceError> {
        timed(&self.name, Operation::Ack, self.inner.ack()).await
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        timed(&self.name, Operation::Nack, self.inner.nack(delay)).await
    }
}
