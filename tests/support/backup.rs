//! Copies of a store, taken while a runtime works and after the runtime has stopped.

use crate::inbox::runtime;
use futures::StreamExt as _;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::source::StartAt;
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, EventSource, NewBreadcrumb,
};

const ORDERS: usize = 200;

const PATIENCE: Duration = Duration::from_secs(60);

/// A test's store, or a copy of one.
pub(crate) trait Copied: BreadcrumbStore + Clone {
    /// Returns the store's events, for the consumer name that all runtimes of a test share.
    fn consumer(&self) -> Box<dyn EventSource>;

    /// Moves the store's clock ahead, so that leases expire.
    fn advance_clock(&self, time: Duration);
}

/// Returns the confirmations of each order.
async fn confirmed(store: &impl BreadcrumbStore) -> BTreeMap<u64, Vec<BreadcrumbId>> {
    let mut confirmed: BTreeMap<u64, Vec<BreadcrumbId>> = BTreeMap::new();
    for found in store.recent("confirmed.v1", 10_000).await.unwrap() {
        let number = found.context["number"].as_u64().unwrap();
        confirmed.entry(number).or_default().push(found.id);
    }
    confirmed
}

async fn orders(store: &impl BreadcrumbStore) -> BTreeSet<u64> {
    let orders = store.recent("order.v1", 10_000).await.unwrap();
    let number =
        |order: &Arc<universal_executor::Breadcrumb>| order.context["number"].as_u64().unwrap();
    orders.iter().map(number).collect()
}

async fn order(store: &impl BreadcrumbStore, number: usize) {
    let order = NewBreadcrumb::new("order.v1").context(json!({"number": number}));
    store.create(order).await.unwrap();
}

/// Runs a runtime until each order is confirmed.
async fn work_to_the_end<S: Copied + 'static>(store: &S) {
    let mut events = store.consumer().subscribe(StartAt::Beginning).await;
    let handle: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let runtime = runtime(&handle, store.consumer());
    let done = async {
        while confirmed(store).await.len() < orders(store).await.len() {
            let events = events.as_mut().unwrap();
            events.next().await.unwrap().unwrap();
        }
    };
    let run = runtime.run_until(done);
    timeout(PATIENCE, run).await.unwrap().unwrap();
}

/// Checks a copy: its existing confirmations stay unchanged, and each of its orders is confirmed exactly once in the end. New orders are
/// confirmed too.
async fn continues<S: Copied + 'static>(copy: &S) {
    let before = confirmed(copy).await;
    // A worker of the original store holds leases in the copy, and will never use them.
    copy.advance_clock(Duration::from_secs(60));
    order(copy, ORDERS).await;
    work_to_the_end(copy).await;

    let after = confirmed(copy).await;
    let numbers: BTreeSet<u64> = after.keys().copied().collect();
    assert_eq!(numbers, orders(copy).await);
    assert!(after.values().all(|each| each.len() == 1), "{after:?}");
    assert!(before.iter().all(|(number, each)| after[number] == *each));
}

/// A copy that is taken while a runtime works is a snapshot of one moment, and a runtime on the copy continues from there.
pub(crate) async fn a_copy_of_a_store_that_works_is_continued<S: Copied + 'static>(
    store: &S,
    copy: impl AsyncFnOnce() -> S,
) {
    let handle: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let runtime = runtime(&handle, store.consumer());
    let load = async {
        let mut events = store
            .consumer()
            .subscribe(StartAt::Beginning)
            .await
            .unwrap();
        for number in 0..=ORDERS / 2 {
            order(store, number).await;
        }
        while confirmed(store).await.is_empty() {
            events.next().await.unwrap().unwrap();
        }
        let copy = copy().await;
        for number in ORDERS / 2 + 1..ORDERS {
            order(store, number).await;
        }
        copy
    };
    let (sender, mut taken) = tokio::sync::oneshot::channel();
    let work = async {
        assert!(sender.send(load.await).is_ok());
    };
    timeout(PATIENCE, runtime.run_until(work))
        .await
        .unwrap()
        .unwrap();
    let copy = taken.try_recv().unwrap();
    let in_copy = orders(&copy).await.len();
    assert!(in_copy > ORDERS / 2 && in_copy < ORDERS, "{in_copy}");

    continues(&copy).await;
    work_to_the_end(store).await;

    assert_eq!(orders(store).await.len(), ORDERS);
}

/// A copy of a store without running workers can be continued, and so can the original store.
pub(crate) async fn a_copy_of_a_store_at_rest_is_continued<S: Copied + 'static>(
    store: S,
    copy: impl AsyncFnOnce(S) -> S,
) {
    for number in 0..ORDERS / 2 {
        order(&store, number).await;
    }
    work_to_the_end(&store).await;
    for number in ORDERS / 2..ORDERS {
        order(&store, number).await;
    }

    let copy = copy(store).await;

    assert_eq!(confirmed(&copy).await.len(), ORDERS / 2);
    continues(&copy).await;
}
