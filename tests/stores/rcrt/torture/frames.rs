//! Faults of the event stream.

use super::harness::{Harness, runtime, store};
use super::seeds;
use crate::rcrt::server::Weather;
use std::time::Duration;
use tokio::time::sleep;
use universal_executor::{MemoryStore, RcrtStore, WithLedger};

/// A lease that never expires, even on a slow machine, because no worker dies in these tests.
const LEASE: Duration = Duration::from_secs(120);

/// Runs a runtime with a ledger in memory while `asks` asks questions, and then until all questions are answered.
async fn answer(harness: &mut Harness, events: &RcrtStore, asks: impl AsyncFnOnce(&mut Harness)) {
    let both = WithLedger::new(events.clone(), MemoryStore::default());
    let runtime = runtime(events, both, &harness.path("oracle"), LEASE);
    let runtime = runtime.build().unwrap();
    let questions = async {
        while !events.events().health().is_connected {
            sleep(Duration::from_millis(1)).await;
        }
        asks(harness).await;
        harness.wait_until_idle().await;
    };
    runtime.run_until(questions).await.unwrap();
}

/// Fails unless each question was executed once and answered once.
fn each_once(harness: &Harness) {
    assert_eq!(harness.judge(), Vec::<String>::new());
    let executions = harness.oracle.read().executions;
    assert_eq!(executions.len(), harness.questions());
    let again: Vec<_> = executions.iter().filter(|(_, times)| **times > 1).collect();
    assert!(again.is_empty(), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_question_is_answered_without_any_stream_events() {
    for seed in seeds() {
        let mut harness = Harness::new("untold", seed, Weather::default()).await;
        harness.server.ways(|ways| ways.is_deaf = true);
        let events = store(&harness.server.base_url());

        answer(&mut harness, &events, async |harness| {
            for _ in 0..10 {
                harness.ask(15).await;
                // The stream is unavailable for some time.
                harness.server.ways(|ways| ways.status = 503);
                harness.server.cut();
                harness.ask(5).await;
                harness.pause(200).await;
                harness.server.ways(|ways| ways.status = 200);
            }
        })
        .await;

        each_once(&harness);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_question_is_answered_once_over_a_disturbed_stream() {
    let weather = Weather {
        lost: 10,
        copies: 3,
        window: 20,
        noise: 3,
        cuts: 30,
        ..Weather::default()
    };
    for seed in seeds() {
        let mut harness = Harness::new("storm", seed, weather).await;
        let events = store(&harness.server.base_url());

        answer(&mut harness, &events, async |harness| {
            harness.ask(250).await
        })
        .await;

        each_once(&harness);
        let (streams, health) = (
            harness.server.seen("GET", "/events/stream").len(),
            events.events().health(),
        );
        let cuts = harness.server.lock().cuts;
        assert!(
            cuts > 5 && health.unreadable > 20,
            "seed {seed}: {health:?}"
        );
        // The source opens at most one stream more than were closed.
        assert!(
            streams <= cuts + 1,
            "seed {seed}: {streams} streams, {cuts} cuts"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_falls_silent_and_recovers_is_detected_and_loses_nothing() {
    for seed in seeds() {
        let mut harness = Harness::new("deaf", seed, Weather::default()).await;
        let events = store(&harness.server.base_url());
        let health = || events.events().health();

        answer(&mut harness, &events, async |harness| {
            for _ in 0..2 {
                harness.server.ways(|ways| ways.is_deaf = true);
                while !health().is_deaf {
                    harness.ask(1).await;
                    harness.pause(40).await;
                    assert!(harness.questions() < 5_000, "{:?}", health());
                }
                harness.server.ways(|ways| ways.is_deaf = false);
                while health().is_deaf {
                    harness.ask(1).await;
                    harness.pause(40).await;
                    assert!(harness.questions() < 5_000, "{:?}", health());
                }
            }
        })
        .await;

        each_once(&harness);
        assert_eq!(harness.server.seen("GET", "/events/stream").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_often_as_an_event_comes_and_in_any_order_its_question_is_executed_once() {
    let weather = Weather {
        copies: 9,
        window: 20,
        ..Weather::default()
    };
    for seed in seeds() {
        let mut harness = Harness::new("again", seed, weather).await;
        let events = store(&harness.server.base_url());

        answer(&mut harness, &events, async |harness| {
            harness.ask(200).await
        })
        .await;

        each_once(&harness);
    }
}
