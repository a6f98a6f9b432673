use super::{Faulty, Moment, Plan, call_with_faults, inject};
use crate::source::{Deliveries, Delivery, EventSource, Receipt, SourceError, StartAt};
use crate::store::Operation;
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use std::sync::Arc;
use std::time::Duration;

#[async_trait]
impl<E: EventSource> EventSource for Faulty<E> {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let subscribe = || self.inner.subscribe(from);
        let deliveries = call_with_faults(&self.plan, Operation::Subscribe, subscribe).await?;
        let plan = Arc::clone(&self.plan);
        Ok(deliveries.wrap(|inner| {
            let undelivered = None;
            let subscription = Subscription {
                inner,
                plan,
                undelivered,
            };
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

    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        self.inner.behind().await
    }
}

struct Subscription {
    inner: Deliveries,
    plan: Plan,
    /// Delivery of the inner event source that an injected error withheld from the caller, and that the next call returns.
    undelivered: Option<Delivery>,
}

impl Subscription {
    async fn next(&mut self) -> Option<Result<Delivery, SourceError>> {
        if let Err(fault) = inject(&self.plan, Operation::Next, Moment::Before).await {
            return Some(Err(fault.into()));
        }
        let delivery = match self.undelivered.take() {
            Some(delivery) => delivery,
            None => match self.inner.next().await? {
                Ok(delivery) => self.with_faults(delivery),
                Err(error) => return Some(Err(error)),
            },
        };
        if let Err(fault) = inject(&self.plan, Operation::Next, Moment::After).await {
            self.undelivered = Some(delivery);
            return Some(Err(fault.into()));
        }
        Some(Ok(delivery))
    }

    fn with_faults(&self, delivery: Delivery) -> Delivery {
        let plan = Arc::clone(&self.plan);
        delivery.map_receipt(|inner| Arc::new(FaultyReceipt { inner, plan }))
    }
}

struct FaultyReceipt {
    inner: Arc<dyn Receipt>,
    plan: Plan,
}

#[async_trait]
impl Receipt for FaultyReceipt {
    async fn ack(&self) -> Result<(), SourceError> {
        call_with_faults(&self.plan, Operation::Ack, || self.inner.ack()).await
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        call_with_faults(&self.plan, Operation::Nack, || self.inner.nack(delay)).await
    }
}
