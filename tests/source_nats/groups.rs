//! Workers of a group share its events, and groups know nothing of each other.

use crate::server::{url, uuid};
use crate::stage::{Relayed, answered, ask, eventually, runtime};
use futures::future::{join_all, pending};
use futures::{FutureExt as _, StreamExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use universal_executor::source::{Backed, NatsRelay, NatsSource, NatsSourceBuilder, StartAt};
use universal_executor::store::{Fault, Faulty, Operation};
use universal_executor::{BreadcrumbId, EventSource, MemoryStore};

fn group(name: &str, tenant: &str) -> NatsSourceBuilder {
    NatsSource::builder(url(), tenant).group(name)
}

/// Takes events until none has come for some time, and acknowledges them.
async fn taken(source: NatsSource) -> BTreeMap<BreadcrumbId, usize> {
    let mut events = source.subscribe(StartAt::Beginning).await.unwrap();
    let mut taken = BTreeMap::new();
    while let Ok(next) = tokio::time::timeout(Duration::from_secs(2), events.next()).await {
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
    let mut all = BTreeSet::new();
    for n in 0..40 {
        let event = ask(&store, n).await;
        relay.publish(&event).await.unwrap();
        all.insert(event.breadcrumb_id);
    }
    let workers = ["shared", "shared", "alone"].map(|name| async {
        // Few at a time: else the first to ask has them all.
        let few = group(name, &tenant).max_unacknowledged(4);
        taken(few.connect().await.unwrap()).await
    });

    let taken = join_all(workers).await;

    let (one, other, alone) = (&taken[0], &taken[1], &taken[2]);
    assert!(!one.is_empty() && !other.is_empty());
    let shared: Vec<BreadcrumbId> = one.keys().chain(other.keys()).copied().collect();
    assert_eq!(shared.len(), 40, "none goes to both");
    assert_eq!(shared.into_iter().collect::<BTreeSet<_>>(), all);
    assert_eq!(alone.keys().copied().collect::<BTreeSet<_>>(), all);
}

#[tokio::test]
async fn an_event_is_acknowledged_once_its_run_is_in_the_ledger_and_not_before() {
    let (inner, tenant) = (MemoryStore::default(), uuid());
    let is_full = Arc::new(AtomicBool::new(true));
    let full = Arc::clone(&is_full);
    let store = Arc::new(Faulty::new(inner.clone(), move |operation, _| {
        match operation == Operation::Enqueue && full.load(Ordering::SeqCst) {
            true => Fault::Fail,
            false => Fault::None,
        }
    }));
    let source = group("workers", &tenant).connect().await.unwrap();
    let behind = source.clone();
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    relay.publish(&ask(&inner, 1).await).await.unwrap();
    let dies = runtime(source.clone(), &store).build().unwrap();
    let refused = Arc::new(AtomicBool::new(false));
    {
        // Until it has tried, for longer than it takes to be tried again; then the worker is gone.
        let (tried, fell) = (Arc::clone(&refused), behind.clone());
        let tries = async {
            eventually(async || fell.behind().await.unwrap() == Some(1)).await;
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            tried.store(true, Ordering::SeqCst);
        };
        tokio::select! {
            _ = dies.run_until(pending()) => {}
            () = tries => {}
        }
    }
    assert!(refused.load(Ordering::SeqCst));
    assert_eq!(behind.behind().await.unwrap(), Some(1));

    is_full.store(false, Ordering::SeqCst);
    let next = group("workers", &tenant).connect().await.unwrap();
    let lives = runtime(next, &store).build().unwrap();
    lives.run_until(answered(&inner, 1)).await.unwrap();

    eventually(async || behind.behind().await.unwrap() == Some(0)).await;
}

#[tokio::test]
async fn how_far_a_group_is_behind_is_told() {
    let (store, tenant) = (MemoryStore::default(), uuid());
    let relay = NatsRelay::connect(url(), &*tenant).await.unwrap();
    let source = group("workers", &tenant).connect().await.unwrap();
    let mut events = source.subscribe(StartAt::Now).await.unwrap();
    for n in 0..3 {
        relay.publish(&ask(&store, n).await).await.unwrap();
    }

    let before = source.behind().await.unwrap();
    let first = events.next().await.unwrap().unwrap();
    first.ack().await.unwrap();

    assert_eq!((before, source.behind().await.unwrap()), (Some(3), Some(2)));
    let backed = Backed::new(source, store.events());
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

    let answers = crate::stage::answers(&store).await;
    assert!(answers.values().all(|count| *count == 1), "{answers:?}");
    let responded: u64 = reports
        .into_iter()
        .map(|report| report.unwrap().responded)
        .sum();
    assert_eq!(responded, 100);
}
