//! A source with planned faults that loses no event.

use futures::{FutureExt as _, StreamExt as _};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{Fault, Faulty, Moment, Operation, Write};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, Delivery, Event, EventSource, MemoryStore, NewBreadcrumb,
    async_trait,
};

type Events = Deliveries;

const MINUTE: Duration = Duration::from_secs(60);

async fn write(store: &MemoryStore, n: usize) {
    let writes = vec![Write::Create(NewBreadcrumb::new("note.v1")); n];
    store.commit(writes.into()).await.unwrap();
}

/// Wraps a store's events with one fault at the `n`th call of an operation at a moment, counted from 0.
fn faulty(
    store: &MemoryStore,
    at: (Operation, Moment),
    n: usize,
    fault: Fault,
) -> Faulty<impl EventSource> {
    let times = Mutex::new(0);
    Faulty::new(store.events(), move |operation, moment| {
        let mut times = times.lock().unwrap();
        if (operation, moment) != at {
            return Fault::None;
        }
        *times += 1;
        if *times == n + 1 { fault } else { Fault::None }
    })
}

/// Returns the positions of all deliveries that are available without waiting, with 0 for an error.
async fn positions(events: &mut Events) -> Vec<u64> {
    let mut positions = Vec::new();
    while let Some(Some(delivery)) = events.next().now_or_never() {
        positions.push(delivery.map_or(0, |delivery| delivery.position.unwrap()));
    }
    positions
}

fn is_unavailable<T>(answer: &Result<T, SourceError>) -> bool {
    matches!(answer, Err(SourceError::Unavailable { .. }))
}

#[tokio::test]
async fn a_failed_stream_continues_with_the_event_that_was_due() {
    for moment in [Moment::Before, Moment::After] {
        let store = MemoryStore::default();
        let source = faulty(&store, (Operation::Next, moment), 1, Fault::Fail);
        write(&store, 3).await;

        let mut events = source.subscribe(StartAt::Beginning).await.unwrap();

        assert_eq!(positions(&mut events).await, [1, 0, 2, 3], "{moment:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_delayed_comes_after_so_long() {
    for moment in [Moment::Before, Moment::After] {
        let store = MemoryStore::default();
        let delay = Fault::Delay(MINUTE);
        let source = faulty(&store, (Operation::Next, moment), 0, delay);
        write(&store, 1).await;
        let mut events = source.subscribe(StartAt::Beginning).await.unwrap();
        let began = Instant::now();

        let early = timeout(MINUTE / 2, events.next()).await;
        let delivery = events.next().await.unwrap().unwrap();

        assert!(early.is_err());
        assert_eq!(delivery.position, Some(1));
        assert!(began.elapsed() >= MINUTE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_hangs_is_left_by_dropping_it_and_another_has_the_event() {
    for moment in [Moment::Before, Moment::After] {
        let store = MemoryStore::default();
        let source = faulty(&store, (Operation::Next, moment), 0, Fault::Hang);
        write(&store, 1).await;
        let mut events = source.subscribe(StartAt::Beginning).await.unwrap();

        let hangs = timeout(60 * MINUTE, events.next()).await;
        drop(events);
        let mut events = source.subscribe(StartAt::Beginning).await.unwrap();

        assert!(hangs.is_err());
        assert_eq!(positions(&mut events).await, [1]);
    }
}

#[tokio::test]
async fn a_subscription_that_fails_can_be_made_again() {
    for moment in [Moment::Before, Moment::After] {
        let store = MemoryStore::default();
        let source = faulty(&store, (Operation::Subscribe, moment), 0, Fault::Fail);
        write(&store, 1).await;

        let refused = source.subscribe(StartAt::Beginning).await;
        let mut events = source.subscribe(StartAt::Beginning).await.unwrap();

        assert!(is_unavailable(&refused));
        assert_eq!(positions(&mut events).await, [1]);
    }
}

#[tokio::test]
async fn an_event_whose_giving_back_fails_before_does_not_come_again_and_after_it_does() {
    for (moment, again) in [(Moment::Before, vec![]), (Moment::After, vec![1])] {
        let store = MemoryStore::default();
        let source = faulty(&store, (Operation::Nack, moment), 0, Fault::Fail);
        write(&store, 1).await;
        let mut events = source.subscribe(StartAt::Beginning).await.unwrap();
        let delivery = events.next().await.unwrap().unwrap();

        let given_back = delivery.nack(Duration::ZERO).await;

        assert!(is_unavailable(&given_back));
        assert_eq!(positions(&mut events).await, again);
    }
}

#[tokio::test]
async fn an_acknowledgement_that_fails_can_be_given_again() {
    for moment in [Moment::Before, Moment::After] {
        let store = MemoryStore::default();
        let source = faulty(&store, (Operation::Ack, moment), 0, Fault::Fail);
        write(&store, 1).await;
        let mut events = source.subscribe(StartAt::Beginning).await.unwrap();
        let delivery = events.next().await.unwrap().unwrap();

        let answers = [delivery.ack().await, delivery.ack().await];

        assert!(is_unavailable(&answers[0]) && answers[1].is_ok());
    }
}

/// A source that delivers one event without acknowledgement, reports two lost events, and ends.
struct Plain(Event);

#[async_trait]
impl EventSource for Plain {
    async fn subscribe(&self, _: StartAt) -> Result<Events, SourceError> {
        let deliveries = [
            Ok(Delivery::new(self.0.clone())),
            Err(SourceError::Lagged {
                missed: 2,
                after: None,
            }),
        ];
        Ok(Deliveries::new(futures::stream::iter(deliveries)))
    }
}

#[tokio::test]
async fn a_faulty_source_forwards_completeness_lag_and_stream_end() {
    let store = MemoryStore::default();
    let note = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    let plain = Faulty::new(
        Plain(Event::created(&note)),
        |operation, _| match operation {
            Operation::Ack | Operation::Nack => Fault::Fail,
            _ => Fault::None,
        },
    );
    let complete = plain.beside(store.events());

    let mut events = plain.subscribe(StartAt::Now).await.unwrap();
    let delivery = events.next().await.unwrap().unwrap();
    let lagged = events.next().await.unwrap();

    assert!(complete.is_complete() && !plain.is_complete());
    delivery.ack().await.unwrap();
    let nack = delivery.nack(Duration::ZERO).await;
    assert!(matches!(nack, Err(SourceError::NoRedelivery { .. })));
    assert!(matches!(lagged, Err(SourceError::Lagged { missed: 2, .. })));
    assert!(events.next().await.is_none());
}
