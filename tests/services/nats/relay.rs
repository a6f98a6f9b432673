//! The relay publishes a store's commits to a runtime, also after failures.

use crate::nats::harness::{Answers, ask};
use crate::nats::server::{url, uuid};
use futures::StreamExt as _;
use universal_executor::source::{NatsRelay, NatsSource, StartAt};
use universal_executor::{BreadcrumbStoreExt as _, EventSource as _, MemoryStore, Runtime};

async fn source(tenant: &str) -> NatsSource {
    let builder = NatsSource::builder(url(), tenant).group("workers");
    builder.connect().await.unwrap()
}

#[tokio::test]
async fn a_commit_is_answered_once_through_two_relays() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let answers = Answers::on(store.clone());
    let relays = [0, 1].map(|_| {
        let (tenant, events) = (tenant.clone(), store.events());
        tokio::spawn(async move {
            let relay = NatsRelay::connect(url(), tenant).await.unwrap();
            relay.run(events).await
        })
    });
    for n in 0..20 {
        ask(&store, n).await;
    }
    let runtime = Runtime::builder(source(&tenant).await)
        .start_at(StartAt::Beginning)
        .executor(answers)
        .build()
        .unwrap();
    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let all_answered = async {
        let mut answered = 0;
        while answered < 20 {
            let event = events.next().await.unwrap().unwrap().event;
            answered += usize::from(event.schema_name.as_deref() == Some("answer.v1"));
        }
    };

    let report = runtime.run_until(all_answered).await.unwrap();

    assert_eq!(store.recent("answer.v1", 100).await.unwrap().len(), 20);
    assert_eq!(report.responded, 20);
    relays.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_event_that_is_published_twice_is_stored_once() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    let (first, second) = (ask(&store, 1).await, ask(&store, 2).await);

    for event in [&first, &first, &second] {
        relay.publish(event).await.unwrap();
    }

    let mut events = source(&tenant)
        .await
        .subscribe(StartAt::Beginning)
        .await
        .unwrap();
    for wanted in [first, second] {
        let found = events.next().await.unwrap().unwrap();
        assert_eq!(found.event.breadcrumb_id, wanted.breadcrumb_id);
        found.ack().await.unwrap();
    }
}
