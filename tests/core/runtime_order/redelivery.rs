//! Events that an executor needs again, and a source that cannot deliver them again.

use crate::runtime_order::harness::until;
use crate::support::{Probe, Shim, event_of, eventually, put};
use futures::StreamExt as _;
use futures::stream::{self};
use serde_json::json;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::source::{Deliveries, Receipt, SourceError, StartAt};
use universal_executor::store::{Fault, Faulty, Moment, Operation};
use universal_executor::{Delivery, Event, EventSource, MemoryStore, Runtime, async_trait};

/// Creates an executor without a ledger, which can only retry when its event is delivered again. Its first attempt fails.
fn fails_once(store: &MemoryStore) -> Arc<Probe> {
    let attempts = AtomicUsize::new(0);
    let probe = Probe::on("question.v1", "direct", &Shim::without_ledger(store));
    let probe = probe.executing(move |_| {
        let first = attempts.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                return Err("reset".into());
            }
            Ok(json!({}))
        }
    });
    probe.shared()
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_nack_fails_is_retried_inside_the_runtime() {
    for fault in [Fault::Fail, Fault::Hang] {
        for moment in [Moment::Before, Moment::After] {
            let store = MemoryStore::default();
            put(&store, "question.v1", json!({})).await;
            let source = Faulty::new(store.events(), move |operation, at| {
                let nack = (operation, at) == (Operation::Nack, moment);
                if nack { fault } else { Fault::None }
            });
            let probe = fails_once(&store);
            let runtime = Runtime::builder(source)
                .start_at(StartAt::Beginning)
                .executor(Arc::clone(&probe))
                .build()
                .unwrap();

            let answered = until(&store, "answer.v1", 1);
            runtime.run_until(answered).await.unwrap();

            assert!(probe.executed() >= 2, "{fault:?} {moment:?}");
        }
    }
}

/// A receipt that does not support nacks and counts acknowledgements.
struct Firm(Arc<AtomicUsize>);

#[async_trait]
impl Receipt for Firm {
    async fn ack(&self) -> Result<(), SourceError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn nack(&self, _: Duration) -> Result<(), SourceError> {
        Err(SourceError::NoRedelivery { reason: "firm" })
    }
}

/// A source that delivers one event.
struct Once {
    event: Event,
    receipt: Arc<dyn Receipt>,
}

#[async_trait]
impl EventSource for Once {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let delivery = Delivery::new(self.event.clone()).with_receipt(Arc::clone(&self.receipt));
        let deliveries = stream::iter([Ok(delivery)]).chain(stream::pending());
        Ok(Deliveries::new(deliveries))
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_a_source_did_not_take_back_is_acknowledged_once_it_is_taken_care_of() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let source = Once {
        event: event_of(&question),
        receipt: Arc::new(Firm(Arc::clone(&acknowledged))),
    };
    let runtime = Runtime::builder(source)
        .executor(fails_once(&store))
        .build()
        .unwrap();
    let scenario = async {
        until(&store, "answer.v1", 1).await;
        eventually(async || acknowledged.load(Ordering::SeqCst) > 0).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(acknowledged.load(Ordering::SeqCst), 1);
}

/// A receipt that counts acknowledgements and may declare that it needs none.
struct Counter {
    acknowledged: Arc<AtomicUsize>,
    needs_ack: bool,
}

#[async_trait]
impl Receipt for Counter {
    async fn ack(&self) -> Result<(), SourceError> {
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn nack(&self, _: Duration) -> Result<(), SourceError> {
        Ok(())
    }

    fn needs_ack(&self) -> bool {
        self.needs_ack
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_receipt_that_needs_it_is_acknowledged() {
    for (needs_ack, expected) in [(true, 1), (false, 0)] {
        let store = MemoryStore::default();
        let question = put(&store, "question.v1", json!({})).await;
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let receipt = Counter {
            acknowledged: Arc::clone(&acknowledged),
            needs_ack,
        };
        let source = Once {
            event: event_of(&question),
            receipt: Arc::new(receipt),
        };
        let runtime = Runtime::builder(source)
            .executor(Probe::on("question.v1", "direct", &store).shared())
            .build()
            .unwrap();

        let answered = until(&store, "answer.v1", 1);
        runtime.run_until(answered).await.unwrap();

        assert_eq!(acknowledged.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn more_events_may_come_again_than_may_be_on_their_way() {
    let store = MemoryStore::default();
    for n in 0..40 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let seen = Mutex::new(HashSet::new());
    let probe = Probe::on("question.v1", "direct", &Shim::without_ledger(&store));
    let probe = probe.executing(move |context| {
        let first = seen.lock().unwrap().insert(context.trigger().id);
        async move {
            if first {
                return Err("reset".into());
            }
            Ok(json!({}))
        }
    });
    let source = Faulty::new(store.events(), |operation, _| match operation {
        Operation::Nack => Fault::Fail,
        _ => Fault::None,
    });
    let runtime = Runtime::builder(source)
        .start_at(StartAt::Beginning)
        .max_deliveries(4)
        .executor(probe.shared())
        .build()
        .unwrap();

    let answered = until(&store, "answer.v1", 40);
    let ended = timeout(Duration::from_secs(600), runtime.run_until(answered)).await;

    assert!(ended.is_ok(), "the events must not block each other");
}
