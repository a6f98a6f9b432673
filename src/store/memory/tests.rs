use super::{MemoryLimits, MemoryStore};
use crate::model::{BreadcrumbId, NewBreadcrumb, Timestamp};
use crate::source::{EventSource as _, SourceError, StartAt};
use crate::store::{BreadcrumbStoreExt as _, ExecutorLimits, NewRun, RunLedger as _, RunRef};
use futures::StreamExt as _;
use std::time::Duration;

async fn trigger(store: &MemoryStore) -> BreadcrumbId {
    store
        .create(NewBreadcrumb::new("note.v1"))
        .await
        .unwrap()
        .id
}

#[tokio::test]
async fn a_run_counts_as_added_if_its_trigger_is_known() {
    let store = MemoryStore::default();
    let known = RunRef::new("echo", trigger(&store).await, 1);
    let unknown = RunRef::new("echo", BreadcrumbId::NIL, 1);
    let missing = RunRef::new("other", known.trigger_id, 1);

    let added = [&known, &unknown].map(|run| NewRun::from(run.clone()));
    store.enqueue(added.into()).await.unwrap();

    let state = store.tenant.read();
    let added = [&known, &unknown, &missing].map(|run| state.runs.is_added(run));
    assert_eq!(added, [true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn an_executor_has_due_runs_from_their_time_on_and_only_if_it_may_start_one() {
    let store = MemoryStore::default();
    let second = Duration::from_secs(1);
    let mut new = NewRun::from(RunRef::new("echo", trigger(&store).await, 1));
    let due: Timestamp = store.now() + second;
    new.at = Some(due);
    store.enqueue(vec![new]).await.unwrap();

    let state = store.tenant.read();
    let has_due = |executor: &str, free, now| {
        let limits = ExecutorLimits::new(executor, free);
        state.runs.has_due(&[limits], now)
    };
    let answers = [
        has_due("echo", 1, due.just_before()),
        has_due("echo", 1, due),
        has_due("echo", 0, due),
        has_due("other", 1, due),
    ];
    assert_eq!(answers, [false, true, false, false]);
}

#[tokio::test]
async fn a_subscriber_misses_only_events_that_the_log_dropped_before_they_were_read() {
    let limits = MemoryLimits {
        events: 4,
        ..MemoryLimits::default()
    };
    let store = MemoryStore::with_limits(limits);
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(trigger(&store).await);
    }
    let mut source = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let mut read = vec![source.next().await.unwrap().unwrap().event.breadcrumb_id];
    for _ in 0..8 {
        ids.push(trigger(&store).await);
    }

    let mut missed_after = None;
    while read.len() < 8 {
        match source.next().await.unwrap() {
            Ok(delivery) => read.push(delivery.event.breadcrumb_id),
            Err(SourceError::Lagged { missed, .. }) => missed_after = Some((read.len(), missed)),
            Err(error) => panic!("{error}"),
        }
    }

    ids.drain(4..8);
    assert_eq!((read, missed_after), (ids, Some((4, 4))));
}
