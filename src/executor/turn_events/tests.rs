use super::*;
use crate::model::{CHAT_TURN, NewBreadcrumb, Order, Selector};
#[cfg(feature = "conformance")]
use crate::store::{Fault, Faulty, Moment, Operation};
use crate::store::{MemoryLimits, MemoryStore, Query, RunRef};
use std::sync::Arc;
#[cfg(feature = "conformance")]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const EXECUTOR: &str = "helper";
const LEASE: Duration = Duration::from_secs(30);

fn message() -> Breadcrumb {
    let new = NewBreadcrumb::new("user.message.v1").tag(turn_tag(EXECUTOR));
    new.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH)
}

fn events() -> TurnEvents {
    let run = RunRef::new(EXECUTOR, BreadcrumbId::NIL, 1);
    let lease = Lease::new(run, 7, Timestamp::UNIX_EPOCH);
    TurnEvents::of(&message(), &lease, 2).unwrap()
}

fn text(text: &str) -> Record {
    Record::Text(text.to_owned())
}

async fn segments(store: &MemoryStore) -> Vec<Segment> {
    let query = Query::new(Selector::schema(CHAT_TURN)).limit(1_000);
    let found = store.search(&query.order(Order::OldestFirst)).await;
    let found = found.unwrap();
    let segment = |one: &Arc<Breadcrumb>| Segment::of(one, BreadcrumbId::NIL);
    found.iter().map(|one| segment(one).unwrap()).collect()
}

#[test]
fn a_message_is_a_turn_of_the_executor_in_its_tag_only() {
    let long = "é".repeat(200);
    for executor in [EXECUTOR, &long] {
        let tags = [turn_tag(executor)];

        assert!(
            tags.iter()
                .all(|tag| tag.len() <= Breadcrumb::MAX_TAG_BYTES)
        );
        assert!(is_turn_of(executor, &tags));
        assert!(!is_turn_of("other", &tags));
    }
    assert!(!is_turn_of(EXECUTOR, &["session:1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn text_that_arrives_within_a_pause_is_one_segment() {
    let (store, events) = (MemoryStore::default(), events());
    let run = async {
        events.add(text("One"));
        sleep(PAUSE / 2).await;
        events.add(text(", two"));
        events.add(text(", three"));
        sleep(PAUSE).await;
    };

    tokio::select! {
        () = events.drive(&store) => {}
        () = run => {}
    }

    let segments = segments(&store).await;
    let texts: Vec<&[Record]> = segments.iter().map(|one| &*one.events).collect();
    assert_eq!(texts, [[text("One")], [text(", two, three")]]);
    let numbers = segments
        .iter()
        .map(|one| (one.token, one.number, one.attempt));
    assert_eq!(numbers.collect::<Vec<_>>(), [(7, 1, 2), (7, 2, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_states_that_its_events_are_not_repeated() {
    let (store, events) = (MemoryStore::default(), events());

    events.add(text("May I?"));
    events.finish(&store, LEASE).await;
    events.add(text("too late"));
    events.settle(&store).await;

    let segments = segments(&store).await;
    let parts: Vec<_> = segments
        .iter()
        .map(|one| (&*one.events, one.is_settled))
        .collect();
    assert_eq!(parts, [(&[text("May I?")][..], false), (&[][..], true)]);
}

#[tokio::test(start_paused = true)]
async fn a_run_without_events_writes_nothing() {
    let (store, events) = (MemoryStore::default(), events());

    events.finish(&store, LEASE).await;
    events.settle(&store).await;

    assert_eq!(segments(&store).await, []);
}

#[tokio::test(start_paused = true)]
async fn text_beyond_the_limit_is_omitted_once() {
    let (store, events) = (MemoryStore::default(), events());
    let piece = "x".repeat(MAX_BYTES);

    for _ in 0..3 {
        events.add(text(&piece));
    }
    events.finish(&store, LEASE).await;

    let segments = segments(&store).await;
    assert_eq!(segments[0].events, [text(&piece), Record::Missed]);
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_the_store_refuses_is_reported_as_missed() {
    let limits = MemoryLimits {
        breadcrumb_bytes: 2_000,
        ..MemoryLimits::default()
    };
    let (store, events) = (MemoryStore::with_limits(limits), events());
    events.add(text(&"x".repeat(4_000)));
    let later = async {
        sleep(PAUSE * 3).await;
        events.add(text("More."));
        sleep(PAUSE * 3).await;
    };

    tokio::select! {
        () = events.drive(&store) => {}
        () = later => {}
    }

    let segments = segments(&store).await;
    let parts: Vec<_> = segments.iter().map(|one| &*one.events).collect();
    assert_eq!(parts, [[Record::Missed], [text("More.")]]);
}

#[cfg(feature = "conformance")]
#[tokio::test(start_paused = true)]
async fn a_segment_whose_write_failed_is_written_again_with_its_number() {
    let (store, events) = (MemoryStore::default(), events());
    let calls = AtomicU32::new(0);
    // The first write takes effect, but its answer is lost. The second write does not take effect.
    let faulty = Faulty::new(store.clone(), move |operation, moment| {
        match (operation, moment) {
            (Operation::Commit, Moment::Before) if calls.fetch_add(1, Relaxed) == 1 => Fault::Fail,
            (Operation::Commit, Moment::After) if calls.load(Relaxed) == 1 => Fault::Fail,
            _ => Fault::None,
        }
    });
    events.add(text("One"));

    tokio::select! {
        () = events.drive(&faulty) => {}
        () = sleep(MAX_PAUSE) => {}
    }

    let segments = segments(&store).await;
    let numbers: Vec<u32> = segments.iter().map(|one| one.number).collect();
    assert_eq!(numbers, [1, 1]);
    assert!(segments.iter().all(|one| one.events == [text("One")]));
}
