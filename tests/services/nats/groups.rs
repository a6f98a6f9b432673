//! Workers of a group share the group's events, and separate groups each receive all events.

use crate::nats::harness::{Relayed, answered, ask, eventually, runtime};
use crate::nats::server::{url, uuid};
use futures::future::{join_all, pending};
use futures::{FutureExt as _, StreamExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::source::{
    Deliveries, FallbackSource, NatsRelay, NatsSource, NatsSourceBuilder, StartAt,
};
use universal_executor::store::{Fault, Faulty, Operation};
use universal_executor::{BreadcrumbId, EventSource, MemoryStore};

fn group(name: &str, tenant: &str) -> NatsSourceBuilder {
    NatsSource::builder(url(), tenant).group(name)
}

/// Receives and acknowledges events until none has arrived for some time. Returns the number of deliveries per event.
async fn taken(mut events: Deliveries) -> BTreeMap<BreadcrumbId, usize> {
    let mut taken = BTreeMap::new();
    while let Ok(next) = tokio::time::timeout(Duration::from_secs(5), events.next()).await {
        let delivery = next.unwrap().unwrap();
        *taken.entry(delivery.event.breadcrumb_id).or_default() += 1;
        delivery.ack().await.unwrap();
    }
    taken
}

#[tokio::test]
async fn two_groups_each_see_all_and_the_workers_of_one_share_it() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    let mut workers = Vec::new();
    for name in ["shared", "shared", "alone"] {
        // With a higher limit, the first subscriber would receive all events.
        let few = group(name, &tenant).max_unacknowledged(4);
        let source = few.connect().await.unwrap();
        workers.push(source.subscribe(StartAt::Beginning).await.unwrap());
    }
    let mut all = BTreeSet::new();
    for n in 0..40 {
        let event = ask(&store, n).await;
        relay.publish(&event).await.unwrap();
        all.insert(event.breadcrumb_id);
    }

    let taken = join_all(workers.into_iter().map(taken)).await;

    let (one, other, alone) = (&taken[0], &taken[1], &taken[2]);
    assert!(!one.is_empty() && !other.is_empty());
    let shared: Vec<BreadcrumbId> = one.keys().chain(other.keys()).copied().collect();
    assert_eq!(shared.len(), 40, "no event must go to both workers");
    assert_eq!(shared.into_iter().collect::<BTreeSet<_>>(), all);
    assert_eq!(alone.keys().copied().collect::<BTreeSet<_>>(), all);
}

#[tokio::test]
async fn an_event_is_acknowledged_once_its_run_is_in_the_ledger_and_not_before() {
    let (inner, tenant) = (MemoryStore::default(), uuid());
    let is_full = Arc::new(AtomicBool::new(true));
    let refused = Arc::new(AtomicUsize::new(0));
    let (full, refusals) = (Arc::clone(&is_full), Arc::clone(&refused));
    let store = Arc::new(Faulty::new(inner.clone(), move |operation, _| {
        if operation == Operation::Enqueue && full.load(Ordering::SeqCst) {
            refusals.fetch_add(1, Ordering::SeqCst);
            return Fault::Fail;
        }
        Fault::None
    }));
    let soon = group("workers", &tenant).ack_wait(Duration::from_secs(1));
    let source = soon.clone().connect().await.unwrap();
    let behind = source.clone();
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    relay.publish(&ask(&inner, 1).await).await.unwrap();
    let dies = runtime(source, &store).build().unwrap();
    // The worker ends after it has tried twice.
    let tried = eventually(async || refused.load(Ordering::SeqCst) >= 2);
    tokio::select! {
        _ = dies.run_until(pending()) => {}
        () = tried => {}
    }
    drop(dies);
    assert_eq!(behind.behind().await.unwrap(), Some(1));

    is_full.store(false, Ordering::SeqCst);
    let next = soon.connect().await.unwrap();
    let lives = runtime(next, &store).build().unwrap();
    let acknowledged = async {
        answered(&inner, 1).await;
        eventually(async || behind.behind().await.unwrap() == Some(0)).await;
    };

    lives.run_until(acknowledged).await.unwrap();
}

#[tokio::test]
async fn a_source_counts_the_events_that_its_group_has_not_acknowledged() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    let source = group("workers", &tenant).connect().await.unwrap();
    let mut events = source.subscribe(StartAt::Now).await.unwrap();
    for n in 0..3 {
        relay.publish(&ask(&store, n).await).await.unwrap();
    }

    // The server confirms a message before it counts the message for the consumer.
    eventually(async || source.behind().await.unwrap() == Some(3)).await;
    let first = events.next().await.unwrap().unwrap();
    first.ack().await.unwrap();

    eventually(async || source.behind().await.unwrap() == Some(2)).await;
    let backed = FallbackSource::new(source, store.events());
    assert_eq!(backed.behind().await.unwrap(), Some(2));
    let alone = NatsSource::builder(url(), &*tenant)
        .connect()
        .await
        .unwrap();
    assert_eq!(alone.behind().await.unwrap(), None);
}

#[tokio::test]
async fn many_workers_answer_every_question_once() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let _relay = Relayed::begin(url(), &tenant, &store).await;
    let workers = join_all((0..4).map(|_| async {
        let source = group("workers", &tenant).connect().await.unwrap();
        runtime(source, &store.clone()).build().unwrap()
    }))
    .await;
    let asked = async {
        for n in 0..100 {
            ask(&store, n).await;
        }
    };

    let ended = answered(&store, 100).shared();
    let all = workers.iter().map(|worker| worker.run_until(ended.clone()));
    let (reports, ()) = futures::join!(join_all(all), asked);

    let answers = crate::nats::harness::answers(&store).await;
    assert!(answers.values().all(|count| *count == 1), "{answers:?}");
    let responded: u64 = reports
        .into_iter()
        .map(|report| report.unwrap().responded)
        .sum();
    assert_eq!(responded, 100);
}
