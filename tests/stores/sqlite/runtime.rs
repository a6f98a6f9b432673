//! A runtime on a file that is stopped and started again.

use crate::sqlite::{Folder, quick};
use crate::support::eventually;
use crate::support::log::Log;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::model::Timestamp;
use universal_executor::source::{Deliveries, FallbackSource, SourceError, StartAt};
use universal_executor::store::{RunFilter, RunLedger, RunState, SqliteLimits};
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{
    BreadcrumbStoreExt, EventSource, NewBreadcrumb, Response, Runtime, SqliteStore, Subscription,
    UniversalExecutor as _, async_trait, executor,
};

async fn request(store: &SqliteStore, number: usize) {
    let context =
        json!({"tool": "echo", "requestId": format!("r-{number}"), "input": {"n": number}});
    store
        .create(NewBreadcrumb::new("tool.request.v1").context(context))
        .await
        .unwrap();
}

/// Runs a tool until this number of answers exists.
async fn work(store: &SqliteStore, answers: usize) {
    let runtime = Runtime::builder(store.events_of("tools"))
        .executor(echo(store))
        .build()
        .unwrap();
    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let answered = async {
        let mut found = 0;
        while found < answers {
            let event = events.next().await.unwrap().unwrap().event;
            found += usize::from(event.schema_name.as_deref() == Some("tool.response.v1"));
        }
    };
    let answered = tokio::time::timeout(Duration::from_secs(30), answered);
    let report = runtime
        .run_until(async { answered.await.unwrap() })
        .await
        .unwrap();
    assert_eq!(report.errors, 0, "{report:?}");
}

/// Creates a tool executor that answers requests with their input.
fn echo(store: &SqliteStore) -> ToolExecutor {
    let echo = json_tool("echo", "Says it again.", json!({}), |input, _| async move {
        Ok(input)
    });
    ToolExecutor::new(echo, Arc::new(store.clone()))
        .unwrap()
        .idempotent()
}

async fn forgetful(folder: &Folder) -> SqliteStore {
    let mut limits = SqliteLimits::default();
    limits.events = 20;
    quick(&folder.file()).limits(limits).open().await.unwrap()
}

async fn answers(store: &SqliteStore) -> usize {
    let answers = store.recent("tool.response.v1", 1_000).await.unwrap();
    answers.len()
}

/// Waits until this number of requests has an answer. Runs that a dropped runtime had claimed have no answer before their leases of 30 s
/// expire.
async fn until_answered(store: &SqliteStore, requests: usize) {
    let answered = eventually(async || answers(store).await >= requests);
    let answered = tokio::time::timeout(Duration::from_secs(120), answered).await;
    assert!(answered.is_ok(), "{} of {requests}", answers(store).await);
}

/// Returns the value of a field in a log line.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let (_, rest) = line.split_once(&format!(" {name}=")).unwrap();
    rest.split(' ').next().unwrap()
}

#[tokio::test]
async fn the_log_reports_the_look_back_period_of_a_first_start() {
    const FIRST: &str = "first start without a saved position: catching up with";
    let (log, _guard) = Log::capture(Level::INFO, FmtSpan::NONE);
    let folder = Folder::new();
    let store = forgetful(&folder).await;
    for number in 0..100 {
        request(&store, number).await;
    }
    let newest = store.latest("tool.request.v1").await.unwrap().unwrap();
    let runtime = || {
        let builder = Runtime::on(&store);
        builder.executor(echo(&store)).build().unwrap()
    };

    let first = runtime();
    first.run_until(until_answered(&store, 100)).await.unwrap();
    let first = log.take();
    request(&store, 100).await;
    let second = runtime();
    second.run_until(until_answered(&store, 101)).await.unwrap();
    let second = log.take();

    let line = first.lines().find(|line| line.contains(FIRST));
    let line = line.unwrap_or_else(|| panic!("the expected log line is missing in {first}"));
    assert!(line.contains("INFO"), "{line}");
    let look_back: u64 = field(line, "look_back_ms").parse().unwrap();
    assert!((3_590_000..3_690_000).contains(&look_back), "{line}");
    let since: Timestamp = field(line, "since").parse().unwrap();
    let minutes = Duration::from_secs(59 * 60);
    assert!(newest.updated_at.since(since) > minutes, "{line}");
    let until: Timestamp = field(line, "until").parse().unwrap();
    assert!(until >= newest.updated_at, "{line}");
    assert!(!second.contains(FIRST), "{second}");
}

#[tokio::test]
async fn triggers_missed_during_a_downtime_are_answered_and_earlier_ones_are_not() {
    let folder = Folder::new();
    let store = forgetful(&folder).await;
    for number in 0..5 {
        request(&store, number).await;
    }
    let runtime = || {
        let builder = Runtime::builder(store.events_of("tools"));
        builder.executor(echo(&store)).build().unwrap()
    };
    let first = async {
        request(&store, 10).await;
        until_answered(&store, 1).await;
    };
    runtime().run_until(first).await.unwrap();
    for number in 100..200 {
        request(&store, number).await;
    }

    let second = runtime();
    let report = second.run_until(until_answered(&store, 101)).await.unwrap();

    assert!(report.missed > 0, "{report:?}");
    let runs = store.runs(&RunFilter::all().limit(1_000)).await.unwrap();
    assert_eq!(
        runs.len(),
        101,
        "requests from before the consumer must have no run"
    );
}

/// A worker that receives later events from the quick source can save a later position.
#[tokio::test]
async fn an_event_that_only_the_sure_source_has_is_answered_although_the_saved_position_is_later() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let tools = store.events_of("tools");
    let mut events = tools.subscribe(StartAt::Now).await.unwrap();
    request(&store, 0).await;
    let acknowledged = events.next().await.unwrap().unwrap();
    acknowledged.ack().await.unwrap();
    drop(events);
    drop(eventually_after(&store, acknowledged.position.unwrap()).await);
    for number in 1..=5 {
        request(&store, number).await;
    }
    let reader = executor("reader")
        .on(Subscription::trigger("tool.request.v1"))
        .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("read.v1"))) });
    let reads = Runtime::on(&store).executor(reader).build().unwrap();
    let read = eventually(async || store.recent("read.v1", 9).await.unwrap().len() == 6);
    reads.run_until(read).await.unwrap();
    let later = store.positions(&["reader".into()]).await.unwrap().remove(0);
    let echo = echo(&store);
    let later = (Arc::from(echo.id()), later.unwrap());
    store.save_positions(&[later]).await.unwrap();

    let both = FallbackSource::new(store.events(), tools);
    let worker = Runtime::on(&store).events(both).executor(echo);
    let worker = worker.build().unwrap();
    worker.run_until(until_answered(&store, 5)).await.unwrap();

    assert_eq!(answers(&store).await, 5);
}

/// The runtime must read the store up to the time after which the source delivers. Otherwise it would count events as read that
/// another worker has not read.
#[tokio::test]
async fn a_consumer_whose_last_event_is_gone_delivers_after_the_time_of_the_next_one() {
    let folder = Folder::new();
    let store = forgetful(&folder).await;
    let mut events = store
        .events_of("tools")
        .subscribe(StartAt::Now)
        .await
        .unwrap();
    let (mut open, mut first) = (Vec::new(), 1);
    while first == 1 && open.len() < 1_000 {
        request(&store, open.len()).await;
        open.push(events.next().await.unwrap().unwrap());
        let all = store.events().subscribe(StartAt::Beginning).await.unwrap();
        first = all.start().unwrap() + 1;
    }
    assert!(first > 1, "no event was deleted");

    let next = open.split_off(usize::try_from(first).unwrap() - 1);
    for delivery in open {
        delivery.ack().await.unwrap();
    }
    let again = eventually_after(&store, first - 1).await;

    let after = again.delivered_after().unwrap();
    let oldest = next[0].event.updated_at;
    assert!(after < oldest, "{after} {oldest}");
    assert!(
        oldest.since(after) <= Duration::from_micros(2),
        "{after} {oldest}"
    );
}

/// Subscribes once the store has the acknowledgements up to a position.
async fn eventually_after(store: &SqliteStore, position: u64) -> Deliveries {
    loop {
        let events = store.events_of("tools");
        let again = events.subscribe(StartAt::Now).await.unwrap();
        if again.start() == Some(position) {
            return again;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_consumer_that_dies_while_it_catches_up_loses_nothing() {
    let folder = Folder::new();
    let store = forgetful(&folder).await;
    let runtime = || {
        let builder = Runtime::builder(store.events_of("tools"));
        builder.executor(echo(&store)).build().unwrap()
    };
    let first = async {
        request(&store, 0).await;
        until_answered(&store, 1).await;
    };
    runtime().run_until(first).await.unwrap();
    for number in 1..400 {
        request(&store, number).await;
    }
    for answered in [5, 50, 100] {
        let killed = runtime();
        tokio::select! {
            ended = killed.run_until(std::future::pending()) => panic!("{ended:?}"),
            () = until_answered(&store, answered) => {}
        }
    }

    runtime()
        .run_until(until_answered(&store, 400))
        .await
        .unwrap();

    let runs = store.runs(&RunFilter::all().limit(1_000)).await.unwrap();
    assert_eq!((runs.len(), answers(&store).await), (400, 400));
}

/// A source whose subscriptions deliver nothing until a test permits it.
struct Late<E> {
    inner: E,
    begin: Arc<Notify>,
}

#[async_trait]
impl<E: EventSource> EventSource for Late<E> {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let begin = Arc::clone(&self.begin);
        let deliveries = self.inner.subscribe(from).await?;
        Ok(deliveries.wrap(|deliveries| {
            let begun = async move {
                begin.notified().await;
                deliveries
            };
            begun.into_stream().flatten()
        }))
    }

    fn is_complete(&self) -> bool {
        self.inner.is_complete()
    }
}

#[tokio::test]
async fn triggers_that_the_sure_source_missed_are_answered_though_the_quick_one_delivers_first() {
    let folder = Folder::new();
    let store = forgetful(&folder).await;
    drop(
        store
            .events_of("tools")
            .subscribe(StartAt::Now)
            .await
            .unwrap(),
    );
    for number in 0..100 {
        request(&store, number).await;
    }
    let begin = Arc::new(Notify::new());
    let sure = Late {
        inner: store.events_of("tools"),
        begin: Arc::clone(&begin),
    };
    let runtime = Runtime::builder(FallbackSource::new(store.events(), sure))
        .executor(echo(&store))
        .build()
        .unwrap();
    let scenario = async {
        // The quick source is subscribed to some time after the sure source.
        let asked = AtomicUsize::new(100);
        eventually(async || {
            request(&store, asked.fetch_add(1, Ordering::SeqCst)).await;
            answers(&store).await > 0
        })
        .await;
        begin.notify_one();
        until_answered(&store, asked.load(Ordering::SeqCst)).await;
    };

    let report = runtime.run_until(scenario).await.unwrap();

    assert!(report.missed > 0, "{report:?}");
}

#[tokio::test]
async fn requests_before_and_after_a_restart_are_answered_once() {
    let folder = Folder::new();
    for start in 0..3 {
        let store = quick(&folder.file()).open().await.unwrap();
        // From its first subscription on, the consumer receives all events.
        drop(
            store
                .events_of("tools")
                .subscribe(StartAt::Now)
                .await
                .unwrap(),
        );
        for number in 0..10 {
            request(&store, 10 * start + number).await;
        }
        let asking = async {
            for number in 0..10 {
                request(&store, 100 + 10 * start + number).await;
            }
        };
        futures::future::join(work(&store, 20 + 20 * start), asking).await;
        store.close().await;
    }

    let store = quick(&folder.file()).open().await.unwrap();
    let rows = store.runs(&RunFilter::all()).await.unwrap();

    assert_eq!(
        store.recent("tool.response.v1", 1_000).await.unwrap().len(),
        60
    );
    assert_eq!(rows.len(), 60);
    assert!(
        rows.iter().all(|row| row.state == RunState::Done),
        "{rows:?}"
    );
}
