//! The commits of a database file as events.

use crate::consumers::one_consumer_too_many_is_refused;
use crate::sqlite::{Folder, quick};
use futures::StreamExt as _;
use serde_json::json;
use std::time::Duration;
use universal_executor::model::Timestamp;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{SqliteLimits, SqliteStore, Write};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, Delivery, Event, EventSource, NewBreadcrumb, Patch,
};

type Events = Deliveries;

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

async fn write(store: &SqliteStore, n: usize) {
    store
        .commit(vec![Write::Create(note()); n].into())
        .await
        .unwrap();
}

async fn next(events: &mut Events) -> Result<Delivery, SourceError> {
    let next = tokio::time::timeout(Duration::from_secs(10), events.next());
    next.await.unwrap().unwrap()
}

/// Returns the positions of the next `n` deliveries.
async fn positions(events: &mut Events, n: usize) -> Vec<u64> {
    let mut positions = Vec::new();
    for _ in 0..n {
        positions.push(next(events).await.unwrap().position.unwrap());
    }
    positions
}

/// Returns `true` if no event arrives during several polls.
async fn is_silent(events: &mut Events) -> bool {
    tokio::time::timeout(Duration::from_millis(30), events.next())
        .await
        .is_err()
}

async fn opened(folder: &Folder, events: usize) -> SqliteStore {
    let mut limits = SqliteLimits::default();
    limits.events = events;
    let builder = quick(&folder.file()).limits(limits);
    builder
        .poll_every(Duration::from_millis(10))
        .open()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_subscription_starts_at_the_requested_position() {
    let folder = Folder::new();
    let store = opened(&folder, 1_000).await;
    assert!(store.events().is_complete());
    let subscribe = async |from| store.events().subscribe(from).await.unwrap();
    let mut early = subscribe(StartAt::Beginning).await;
    write(&store, 100).await;
    let mut now = subscribe(StartAt::Now).await;
    let mut beginning = subscribe(StartAt::Beginning).await;
    let mut after = subscribe(StartAt::After(99)).await;
    let mut future = subscribe(StartAt::After(u64::MAX)).await;

    write(&store, 1).await;

    assert_eq!(
        positions(&mut early, 101).await,
        (1..=101).collect::<Vec<_>>()
    );
    assert_eq!(
        positions(&mut beginning, 101).await,
        (1..=101).collect::<Vec<_>>()
    );
    assert_eq!(positions(&mut after, 2).await, [100, 101]);
    assert_eq!(
        (
            positions(&mut now, 1).await,
            positions(&mut future, 1).await
        ),
        (vec![101], vec![101])
    );
}

#[tokio::test]
async fn a_commit_of_the_same_process_reaches_a_subscriber_immediately() {
    let folder = Folder::new();
    let store = quick(&folder.file())
        .poll_every(Duration::from_secs(3_600))
        .open()
        .await
        .unwrap();
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();

    let (heard, written) = futures::future::join(next(&mut events), store.create(note())).await;

    assert_eq!(heard.unwrap().event, Event::created(&written.unwrap()));
}

#[tokio::test]
async fn an_event_carries_the_context_of_its_version_as_long_as_that_is_the_current_one() {
    let folder = Folder::new();
    let store = opened(&folder, 1_000).await;
    let first = store.create(note().context(json!({"n": 1}))).await.unwrap();
    store
        .update(first.id, 1, Patch::new().context(json!({"n": 2})))
        .await
        .unwrap();
    let large = json!({"text": "x".repeat(Event::MAX_CONTEXT_BYTES)});
    store.create(note().context(large)).await.unwrap();

    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let mut contexts = Vec::new();
    for _ in 0..3 {
        contexts.push(
            next(&mut events)
                .await
                .unwrap()
                .event
                .context
                .map(|context| context["n"].clone()),
        );
    }

    assert_eq!(contexts, [None, Some(json!(2)), None]);
}

#[tokio::test]
async fn a_slow_subscriber_receives_a_lag_error_and_continues() {
    let folder = Folder::new();
    let store = opened(&folder, 3).await;
    let mut slow = store.events().subscribe(StartAt::Now).await.unwrap();

    write(&store, 10).await;

    let lag = next(&mut slow).await.unwrap_err();
    assert!(
        matches!(lag, SourceError::Lagged { missed: 7, .. }),
        "{lag:?}"
    );
    assert_eq!(positions(&mut slow, 3).await, [8, 9, 10]);
    write(&store, 1).await;
    assert_eq!(positions(&mut slow, 1).await, [11]);
}

#[tokio::test]
async fn a_nacked_event_is_redelivered() {
    let folder = Folder::new();
    let store = opened(&folder, 10).await;
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
    write(&store, 2).await;

    next(&mut events)
        .await
        .unwrap()
        .nack(Duration::ZERO)
        .await
        .unwrap();

    let mut seen = positions(&mut events, 2).await;
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
    assert!(is_silent(&mut events).await);
}

#[tokio::test]
async fn a_tenant_receives_only_events_of_its_own_commits() {
    let folder = Folder::new();
    let store = opened(&folder, 10).await;
    let mut events = store
        .in_tenant("acme")
        .events()
        .subscribe(StartAt::Beginning)
        .await
        .unwrap();

    write(&store, 2).await;

    assert!(is_silent(&mut events).await);
}

#[tokio::test]
async fn a_consumer_resumes_after_its_acknowledged_events_even_after_a_restart() {
    let folder = Folder::new();
    let store = opened(&folder, 100).await;
    write(&store, 2).await;
    let mut events = store
        .events_of("indexer")
        .subscribe(StartAt::Now)
        .await
        .unwrap();
    write(&store, 6).await;
    let mut deliveries = Vec::new();
    for _ in 0..6 {
        deliveries.push(next(&mut events).await.unwrap());
    }
    for at in [0, 1, 3, 5] {
        deliveries[at].ack().await.unwrap();
    }
    drop((events, deliveries));
    store.close().await;

    let store = opened(&folder, 100).await;
    let mut events = store
        .events_of("indexer")
        .subscribe(StartAt::Now)
        .await
        .unwrap();
    let mut other = store
        .events_of("other")
        .subscribe(StartAt::Now)
        .await
        .unwrap();

    assert_eq!(
        positions(&mut events, 4).await,
        [5, 6, 7, 8],
        "event 5 was not acknowledged"
    );
    assert!(
        is_silent(&mut other).await,
        "another consumer starts at the current position"
    );
}

#[tokio::test]
async fn a_consumer_without_acknowledgements_resumes_at_its_first_position() {
    let folder = Folder::new();
    let store = opened(&folder, 100).await;
    drop(
        store
            .events_of("indexer")
            .subscribe(StartAt::Now)
            .await
            .unwrap(),
    );
    write(&store, 1).await;

    let mut events = store
        .events_of("indexer")
        .subscribe(StartAt::Now)
        .await
        .unwrap();

    assert_eq!(positions(&mut events, 1).await, [1]);
}

#[tokio::test]
async fn a_tenant_has_a_limited_number_of_consumers() {
    let folder = Folder::new();
    let store = opened(&folder, 100).await;

    one_consumer_too_many_is_refused(|name| Box::new(store.events_of(name))).await;
}

#[tokio::test]
async fn a_consumer_that_was_offline_too_long_receives_a_lag_error() {
    let folder = Folder::new();
    let store = opened(&folder, 3).await;
    let before = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    drop(
        store
            .events_of("indexer")
            .subscribe(StartAt::Now)
            .await
            .unwrap(),
    );
    write(&store, 5).await;

    let mut events = store
        .events_of("indexer")
        .subscribe(StartAt::Now)
        .await
        .unwrap();

    let lag = next(&mut events).await.unwrap_err();
    let SourceError::Lagged { missed: 2, after } = lag else {
        panic!("{lag:?}");
    };
    let last = Timestamp::from_micros(before.updated_at.as_micros() - 1);
    assert_eq!(
        after,
        Some(last),
        "the commit of the last event may have had more events"
    );
    assert_eq!(positions(&mut events, 3).await, [4, 5, 6]);
}
