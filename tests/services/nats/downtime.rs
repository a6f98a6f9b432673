//! Answers after a downtime of all workers, for NATS streams that have all, some or none of the events of the downtime. The store's clock
//! advances by the length of the downtime, and the stream loses the events that it would lose in that time.

use crate::nats::harness::{Relayed, answered, answers, ask_all, eventually, runtime};
use crate::nats::server::{Server, uuid};
use crate::postgres::server::Namespaces;
use async_nats::jetstream::{self, Context, stream};
use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;
use universal_executor::runtime::{RunReport, RuntimeBuilder};
use universal_executor::source::NatsSource;
use universal_executor::{EventSource as _, PostgresStore};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The number of questions before each downtime.
const BEFORE: u64 = 5;

/// The number of questions during each downtime.
const DURING: u64 = 500;

/// The loss of events in a stream during a downtime.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Loss {
    None,
    /// An operator purges the stream.
    Purged,
    /// Every event is older than the maximum age of the stream.
    TooOld,
    /// The stream retains only the last ten events.
    AllButTen,
}

/// A NATS server, a store, and the events that the store's relay publishes.
struct Stage {
    server: Server,
    jetstream: Context,
    tenant: String,
    store: PostgresStore,
    _namespaces: Namespaces,
}

impl Stage {
    async fn new() -> Self {
        let server = Server::started().await;
        let client = async_nats::connect(server.url()).await.unwrap();
        let namespaces = Namespaces::default();
        Self {
            jetstream: jetstream::new(client),
            tenant: uuid(),
            store: namespaces.builder().connect().await.unwrap(),
            server,
            _namespaces: namespaces,
        }
    }

    async fn source(&self) -> NatsSource {
        let source = NatsSource::builder(self.server.url(), &*self.tenant).group("workers");
        source.connect().await.unwrap()
    }

    async fn worker(&self) -> RuntimeBuilder {
        runtime(self.source().await, &self.store)
    }

    async fn relay(&self) -> Relayed {
        let events = self.store.events_of("nats");
        Relayed::of(self.server.url(), &self.tenant, events).await
    }

    async fn stream(&self) -> stream::Stream {
        self.jetstream.get_stream("BREADCRUMBS").await.unwrap()
    }

    /// Changes the limits of the stream.
    async fn limit(&self, change: impl FnOnce(&mut stream::Config)) {
        let mut config = self.stream().await.cached_info().config.clone();
        change(&mut config);
        self.jetstream.update_stream(config).await.unwrap();
    }

    /// Waits until the stream has this number of events.
    async fn has_events(&self, count: u64) {
        eventually(async || self.stream().await.cached_info().state.messages == count).await;
    }

    /// Lets a worker answer the first questions. Then asks the other questions while no worker runs, and advances the time. The relay
    /// publishes all of them.
    async fn downtime(&self, downtime: Duration) {
        let _relay = self.relay().await;
        ask_all(&self.store, 0..BEFORE).await;
        let worker = self.worker().await.build().unwrap();
        worker.run_until(self.answered(BEFORE)).await.unwrap();
        drop(worker);
        for first in (BEFORE..BEFORE + DURING).step_by(20) {
            self.store.advance_clock(downtime / 25);
            ask_all(&self.store, first..first + 20).await;
        }
        let relayed = self.store.events_of("nats");
        eventually(async || relayed.behind().await.unwrap() == Some(0)).await;
    }

    /// Waits until this number of answers exists.
    async fn answered(&self, questions: u64) {
        answered(&self.store, usize::try_from(questions).unwrap()).await;
    }

    async fn lose(&self, loss: Loss) {
        match loss {
            Loss::None => {}
            Loss::Purged => {
                self.stream().await.purge().await.unwrap();
                self.has_events(0).await;
            }
            Loss::TooOld => {
                self.limit(|config| {
                    config.max_age = Duration::from_millis(100);
                    config.duplicate_window = config.max_age;
                })
                .await;
                self.has_events(0).await;
            }
            Loss::AllButTen => {
                self.limit(|config| config.max_messages = 10).await;
                self.has_events(10).await;
            }
        }
    }

    /// Runs a worker until all questions have an answer, and the worker has acknowledged each event.
    async fn catch_up(&self) -> RunReport {
        let source = self.source().await;
        let worker = self.worker().await.build().unwrap();
        let is_read = async || source.behind().await.unwrap() == Some(0);
        let caught_up = async {
            self.answered(BEFORE + DURING).await;
            eventually(is_read).await;
        };
        worker.run_until(caught_up).await.unwrap()
    }

    async fn judge(&self) {
        let answers = answers(&self.store).await;
        let expected: BTreeMap<u64, usize> = (0..BEFORE + DURING).map(|n| (n, 1)).collect();
        assert_eq!(answers, expected);
    }
}

/// Lets a worker catch up after a minute, an hour and a week.
async fn answers_after(loss: Loss) {
    for downtime in [MINUTE, HOUR, WEEK] {
        let stage = Stage::new().await;
        stage.downtime(downtime).await;
        stage.lose(loss).await;

        let report = stage.catch_up().await;

        stage.judge().await;
        let (delivered, found) = (report.events, report.found_by_sweep);
        // The sweep also finds questions from the last minute before the downtime.
        let is_all = (DURING..=DURING + BEFORE).contains(&found);
        let is_expected = match loss {
            Loss::None => delivered >= DURING,
            Loss::Purged | Loss::TooOld => delivered == 0 && is_all,
            Loss::AllButTen => delivered == 10 && found >= DURING - 10,
        };
        assert!(is_expected, "{loss:?} {downtime:?}: {report:?}");
    }
}

#[tokio::test]
async fn all_is_answered_once_after_a_downtime_if_the_stream_has_every_event() {
    answers_after(Loss::None).await;
}

#[tokio::test]
async fn all_is_answered_once_after_a_downtime_in_which_the_stream_was_purged() {
    answers_after(Loss::Purged).await;
}

#[tokio::test]
async fn all_is_answered_once_after_a_downtime_longer_than_the_maximum_age_of_the_stream() {
    answers_after(Loss::TooOld).await;
}

#[tokio::test]
async fn all_is_answered_once_after_a_downtime_if_the_stream_has_the_last_ten_events() {
    answers_after(Loss::AllButTen).await;
}

#[tokio::test]
async fn a_worker_that_is_killed_while_it_catches_up_without_events_answers_the_rest_once() {
    let stage = Stage::new().await;
    stage.downtime(WEEK).await;
    stage.lose(Loss::Purged).await;
    for count in [50, 150] {
        let worker = stage.worker().await.max_inflight(4).build().unwrap();
        tokio::select! {
            ended = worker.run_until(pending()) => panic!("{ended:?}"),
            () = stage.answered(count) => {}
        }
    }
    let before = answers(&stage.store).await.len();

    stage.catch_up().await;

    stage.judge().await;
    assert!(before < 500, "{before}");
}
