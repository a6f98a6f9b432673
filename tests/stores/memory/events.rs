use futures::{FutureExt, StreamExt};
use std::time::Duration;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{MemoryLimits, Write};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, EventSource, MemoryStore, NewBreadcrumb,
};

type Events = Deliveries;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the number of events that a store still has.
pub(crate) async fn kept(store: &MemoryStore) -> usize {
    let mut events = subscribe(store, StartAt::Beginning).await;
    let mut kept = 0;
    while let Some(Some(delivery)) = events.next().now_or_never() {
        assert!(delivery.is_ok(), "{delivery:?}");
        kept += 1;
    }
    kept
}

async fn subscribe(store: &MemoryStore, from: StartAt) -> Events {
    store.events().subscribe(from).await.unwrap()
}

async fn write(store: &MemoryStore, n: usize) {
    let writes = vec![Write::Create(NewBreadcrumb::new("note.v1")); n];
    store.commit(writes.into()).await.unwrap();
}

/// Returns the positions of all deliveries that are available without waiting.
async fn positions(events: &mut Events) -> Vec<u64> {
    let mut positions = Vec::new();
    while let Some(Some(delivery)) = events.next().now_or_never() {
        positions.push(delivery.unwrap().position.unwrap());
    }
    positions
}

fn small() -> MemoryStore {
    let mut limits = MemoryLimits::default();
    limits.events = 3;
    MemoryStore::with_limits(limits)
}

#[tokio::test]
async fn a_subscription_starts_at_the_requested_position() {
    let store = MemoryStore::default();
    write(&store, 4).await;
    let mut now = subscribe(&store, StartAt::Now).await;
    let mut beginning = subscribe(&store, StartAt::Beginning).await;
    let mut after = subscribe(&store, StartAt::After(3)).await;

    write(&store, 1).await;

    assert_eq!(positions(&mut now).await, [5]);
    assert_eq!(positions(&mut beginning).await, [1, 2, 3, 4, 5]);
    assert_eq!(positions(&mut after).await, [4, 5]);
}

#[tokio::test]
async fn a_position_from_the_future_misses_nothing_that_happens_from_now_on() {
    let store = MemoryStore::default();
    write(&store, 1).await;

    let mut events = subscribe(&store, StartAt::After(u64::MAX)).await;
    write(&store, 1).await;

    assert_eq!(positions(&mut events).await, [2]);
}

#[tokio::test]
async fn the_beginning_is_the_oldest_event_still_there() {
    let store = small();
    write(&store, 10).await;

    let mut events = subscribe(&store, StartAt::Beginning).await;

    assert_eq!(positions(&mut events).await, [8, 9, 10]);
}

#[tokio::test]
async fn a_slow_subscriber_receives_a_lag_error_and_continues() {
    let store = small();
    let mut slow = subscribe(&store, StartAt::Now).await;
    let mut resumed = subscribe(&store, StartAt::After(2)).await;

    write(&store, 10).await;

    let lag = slow.next().await.unwrap().unwrap_err();
    assert!(
        matches!(lag, SourceError::Lagged { missed: 7, .. }),
        "{lag:?}"
    );
    assert_eq!(positions(&mut slow).await, [8, 9, 10]);
    let lag = resumed.next().await.unwrap().unwrap_err();
    assert!(
        matches!(lag, SourceError::Lagged { missed: 7, .. }),
        "after position 0: {lag:?}"
    );
    write(&store, 1).await;
    assert_eq!(positions(&mut slow).await, [11]);
}

#[tokio::test]
async fn a_waiting_subscriber_is_woken_by_a_commit() {
    let store = MemoryStore::default();
    let mut events = subscribe(&store, StartAt::Now).await;

    let (delivery, written) =
        futures::future::join(events.next(), store.create(NewBreadcrumb::new("note.v1"))).await;

    assert_eq!(
        delivery.unwrap().unwrap().event.breadcrumb_id,
        written.unwrap().id
    );
}

#[tokio::test]
async fn a_tenant_receives_only_events_of_its_own_commits() {
    let store = MemoryStore::default();
    let acme = store.in_tenant("acme");
    let mut events = subscribe(&acme, StartAt::Beginning).await;

    write(&store, 2).await;

    assert!(positions(&mut events).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_nacked_event_is_redelivered_after_its_delay() {
    let store = MemoryStore::default();
    let mut events = subscribe(&store, StartAt::Now).await;
    write(&store, 2).await;
    let first = events.next().await.unwrap().unwrap();
    let begun = tokio::time::Instant::now();

    first.nack(MINUTE).await.unwrap();

    assert_eq!(positions(&mut events).await, [2]);
    let again = events.next().await.unwrap().unwrap();
    assert_eq!((&again.event, again.position), (&first.event, Some(1)));
    let waited = begun.elapsed();
    assert!(
        (MINUTE..MINUTE + Duration::from_millis(5)).contains(&waited),
        "{waited:?}"
    );
    again.ack().await.unwrap();
    assert!(positions(&mut events).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_nacked_event_wakes_a_waiting_subscriber() {
    let store = MemoryStore::default();
    let mut events = subscribe(&store, StartAt::Now).await;
    write(&store, 1).await;
    let first = events.next().await.unwrap().unwrap();

    let give_back = async {
        tokio::task::yield_now().await;
        first.nack(Duration::ZERO).await
    };
    let (again, given_back) = futures::future::join(events.next(), give_back).await;

    given_back.unwrap();
    assert_eq!(again.unwrap().unwrap().position, Some(1));
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_event_is_not_redelivered() {
    let store = MemoryStore::default();
    let mut events = subscribe(&store, StartAt::Now).await;
    write(&store, 1).await;

    events.next().await.unwrap().unwrap().ack().await.unwrap();
    tokio::time::advance(100 * MINUTE).await;

    assert!(positions(&mut events).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_number_of_nacked_events_is_bounded() {
    let store = MemoryStore::default();
    let mut events = subscribe(&store, StartAt::Now).await;
    write(&store, 1).await;
    let delivery = events.next().await.unwrap().unwrap();

    for _ in 0..1_024 {
        delivery.nack(MINUTE).await.unwrap();
    }
    let refused = delivery.nack(MINUTE).await;

    assert!(
        matches!(refused, Err(SourceError::NoRedelivery { .. })),
        "{refused:?}"
    );
    tokio::time::advance(MINUTE).await;
    assert_eq!(positions(&mut events).await.len(), 1_024);
    delivery.nack(MINUTE).await.unwrap();
}

#[tokio::test]
async fn a_delay_without_end_is_refused() {
    let store = MemoryStore::default();
    let mut events = subscribe(&store, StartAt::Now).await;
    write(&store, 1).await;
    let delivery = events.next().await.unwrap().unwrap();

    let refused = delivery.nack(Duration::MAX).await;

    assert!(
        matches!(refused, Err(SourceError::NoRedelivery { .. })),
        "{refused:?}"
    );
}
