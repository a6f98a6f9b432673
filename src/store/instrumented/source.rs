use super::{Ended, Instrumented, Watch};
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
        let deliveries = watched(&self.name, Operation::Subscribe, subscribe).await?;
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
async fn watched<T>(
    name: &str,
    operation: Operation,
    call: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    let mut watch = Watch::begin(name, None, operation);
    let answer = call.await;
    watch.ended = Ended::of_source(&answer);
    answer
}

struct Subscription {
    inner: Deliveries,
    name: Arc<str>,
}

impl Subscription {
    async fn next(&mut self) -> Option<Result<Delivery, SourceError>> {
        let mut watch = Watch::begin(&self.name, None, Operation::Next);
        let delivered = self.inner.next().await;
        watch.ended = match &delivered {
            Some(delivered) => Ended::of_source(delivered),
            None => Ended::so("ended"),
        };
        Some(delivered?.map(|delivery| self.observed(delivery)))
    }

    fn observed(&self, delivery: Delivery) -> Delivery {
        let name = Arc::clone(&self.name);
        delivery.map_receipt(|inner| Arc::new(ObservedReceipt { inner, name }))
    }
}

struct ObservedReceipt {
    inner: Arc<dyn Receipt>,
    name: Arc<str>,
}

#[async_trait]
impl Receipt for ObservedReceipt {
    async fn ack(&self) -> Result<(), SourceError> {
        watched(&self.name, Operation::Ack, self.inner.ack()).await
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        watched(&self.name, Operation::Nack, self.inner.nack(delay)).await
    }
}
