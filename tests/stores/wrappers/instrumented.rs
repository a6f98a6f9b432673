//! A store and a source that report each call: the content of the reports, and data that they never contain.

use crate::support::log::Log;
use crate::support::{Do, Shim, put, unavailable};
use crate::wrappers::calls::{able, call, of_stores};
use futures::stream::{self};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::source::{Deliveries, Receipt, SourceError, StartAt};
use universal_executor::store::{
    Fault, Faulty, Instrumented, Moment, Operation, Query, StoreError, VectorQuery,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Delivery, Event, EventSource, MemoryStore,
    NewBreadcrumb, Patch, Selector, async_trait,
};

const MINUTE: Duration = Duration::from_secs(60);
const SECRET: &str = "sk-planted-secret";

/// Captures all log lines of this thread.
fn capture() -> (Log, DefaultGuard) {
    Log::capture(tracing::Level::TRACE, FmtSpan::NONE)
}

/// Returns the operation, the outcome and the `retryable` field of each call in the log, and clears the log.
fn calls(log: &Log) -> Vec<[String; 3]> {
    let text = log.take();
    let told = text.lines().filter(|line| line.contains(" call ended"));
    told.map(|line| ["operation", "outcome", "retryable"].map(|name| field(line, name)))
        .collect()
}

/// Returns the value of a field in a log line.
fn field(line: &str, name: &str) -> String {
    let (_, said) = line.split_once(&format!(" {name}=")).unwrap();
    let said = said.split(' ').next().unwrap();
    said.trim_matches('"').to_owned()
}

fn told<const N: usize>(calls: [[&str; 3]; N]) -> Vec<[String; 3]> {
    calls.map(|call| call.map(str::to_owned)).to_vec()
}

#[tokio::test]
async fn each_store_call_is_logged_once() {
    let (log, _guard) = capture();
    for operation in of_stores() {
        let inside = MemoryStore::default();
        let store = Instrumented::new("watched", able(&inside));

        call(&store, &inside, operation).await.unwrap();

        assert_eq!(calls(&log), told([[operation.name(), "ok", "false"]]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_logged_call_contains_store_name_tenant_operation_and_duration() {
    let (log, _guard) = capture();
    let slow = Faulty::new(
        MemoryStore::default().in_tenant("acme"),
        |_, moment| match moment {
            Moment::Before => Fault::Delay(MINUTE),
            Moment::After => Fault::None,
        },
    );
    let store = Instrumented::new("sessions", slow);

    store.create(NewBreadcrumb::new("note.v1")).await.unwrap();

    let text = log.text();
    let line = text
        .lines()
        .find(|line| line.contains("a store call ended"));
    let line = line.unwrap_or_else(|| panic!("the expected log line is missing in {text:?}"));
    assert!(line.contains("DEBUG"), "{line}");
    for (name, value) in [
        ("name", "sessions"),
        ("tenant", "acme"),
        ("operation", "commit"),
    ] {
        assert_eq!(field(line, name), value);
    }
    assert!(field(line, "took").starts_with("60"), "{line}");
}

#[tokio::test]
async fn an_error_is_logged_with_its_code_and_if_it_can_be_retried() {
    let (log, _guard) = capture();
    let inside = MemoryStore::default();
    let note = put(&inside, "note.v1", json!({})).await;
    let store = Instrumented::new("watched", inside.clone());
    let down = store.beside(Shim::new(&inside, |_| Do::Fail(unavailable())));

    let answers = [
        store.get(BreadcrumbId::NIL).await.map(drop),
        store.update(note.id, 7, Patch::new()).await.map(drop),
        down.get(note.id).await.map(drop),
    ];

    assert!(matches!(
        answers,
        [
            Err(StoreError::NotFound { .. }),
            Err(StoreError::Conflict { .. }),
            Err(StoreError::Unavailable { .. }),
        ]
    ));
    let expected = [
        ["get", "not_found", "false"],
        ["commit", "conflict", "true"],
        ["get", "unavailable", "true"],
    ];
    assert_eq!(calls(&log), told(expected));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_is_logged_as_dropped() {
    let (log, _guard) = capture();
    let hangs = Faulty::new(MemoryStore::default(), |_, _| Fault::Hang);
    let store = Instrumented::new("watched", hangs);

    let answer = timeout(MINUTE, store.get(BreadcrumbId::NIL)).await;

    assert!(answer.is_err());
    assert_eq!(calls(&log), told([["get", "dropped", "false"]]));
}

#[tokio::test]
async fn logs_contain_no_content_of_writes_queries_or_errors() {
    let (log, _guard) = capture();
    let inside = MemoryStore::default();
    let store = Instrumented::new("watched", inside.clone());
    let down = store.beside(Shim::new(&inside, |_| {
        Do::Fail(StoreError::Unavailable {
            store: "shim",
            retry_after: Duration::ZERO,
            source: SECRET.into(),
        })
    }));
    let source = store.beside(inside.events());
    let mut events = source.subscribe(StartAt::Now).await.unwrap();
    let secret = NewBreadcrumb::new(SECRET)
        .title(SECRET)
        .tag(SECRET)
        .context(json!({ SECRET: SECRET }));
    let query = Query::new(Selector::schema(SECRET).any_tags([SECRET]));

    let written = store.create(secret).await.unwrap();
    let delivery = events.next().await.unwrap().unwrap();
    delivery.ack().await.unwrap();
    let found = store.search(&query).await.unwrap();
    let near = VectorQuery::new(query, SECRET);
    let answers = [
        store.vector_search(&near).await.map(drop),
        down.get(written.id).await.map(drop),
    ];

    assert_eq!(found.len(), 1);
    assert!(answers.iter().all(Result::is_err));
    let text = log.text();
    assert!(!text.contains(SECRET), "{text}");
    assert_eq!(calls(&log).len(), 7);
}

#[tokio::test]
async fn an_instrumented_store_preserves_tenant_capabilities_and_ledger() {
    let inside = MemoryStore::default().in_tenant("acme");
    let with = Instrumented::new("watched", inside.clone());
    let without = with.beside(Shim::without_ledger(&inside));

    assert_eq!(with.tenant(), "acme");
    assert_eq!(with.capabilities(), inside.capabilities());
    assert!(with.ledger().is_some() && without.ledger().is_none());
}

/// A source that delivers one event, reports two lost events, and ends.
struct Short(Event);

struct Deaf;

#[async_trait]
impl Receipt for Deaf {
    async fn ack(&self) -> Result<(), SourceError> {
        Err(SourceError::Unavailable {
            retry_after: MINUTE,
            source: SECRET.into(),
        })
    }

    async fn nack(&self, _: Duration) -> Result<(), SourceError> {
        Err(SourceError::NoRedelivery { reason: SECRET })
    }
}

#[async_trait]
impl EventSource for Short {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        if from == StartAt::Beginning {
            return Err(SourceError::Unavailable {
                retry_after: MINUTE,
                source: SECRET.into(),
            });
        }
        let delivery = Delivery::new(self.0.clone()).with_receipt(Arc::new(Deaf));
        let lagged = SourceError::Lagged {
            missed: 2,
            after: None,
        };
        Ok(Deliveries::new(stream::iter([Ok(delivery), Err(lagged)])))
    }
}

#[tokio::test]
async fn each_call_of_a_source_is_logged_with_its_outcome() {
    let (log, _guard) = capture();
    let note = put(&MemoryStore::default(), "note.v1", json!({})).await;
    let source = Instrumented::new("short", Short(Event::created(&note)));

    let refused = source.subscribe(StartAt::Beginning).await;
    let mut events = source.subscribe(StartAt::Now).await.unwrap();
    let delivery = events.next().await.unwrap().unwrap();
    let (ack, nack) = (delivery.ack().await, delivery.nack(MINUTE).await);
    let lagged = events.next().await.unwrap();
    let end = events.next().await;

    assert!(refused.is_err() && ack.is_err() && nack.is_err());
    assert!(lagged.is_err() && end.is_none());
    let text = log.text();
    assert!(!text.contains(SECRET) && !text.contains("tenant"), "{text}");
    let expected = [
        ["subscribe", "unavailable", "true"],
        ["subscribe", "ok", "false"],
        ["next", "ok", "false"],
        ["ack", "unavailable", "true"],
        ["nack", "no_redelivery", "false"],
        ["next", "lagged", "true"],
        ["next", "ended", "false"],
    ];
    assert_eq!(calls(&log), told(expected));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_took_as_long_as_it_was_waited_for() {
    let (log, _guard) = capture();
    let store = MemoryStore::default();
    let source = Instrumented::new("watched", store.events());
    let mut events = source.subscribe(StartAt::Now).await.unwrap();

    // The first event is available without waiting. The wait for the second one is split over two polls.
    put(&store, "note.v1", json!({})).await;
    sleep(10 * MINUTE).await;
    events.next().await.unwrap().unwrap();
    let early = events.next().now_or_never();
    sleep(MINUTE).await;
    put(&store, "note.v1", json!({})).await;
    events.next().await.unwrap().unwrap();

    assert!(early.is_none());
    let text = log.text();
    let lines = text.lines().filter(|line| line.contains("next"));
    let took: Vec<String> = lines.map(|line| field(line, "took")).collect();
    assert_eq!(took.len(), 2);
    assert!(
        !took[0].starts_with('6') && took[1].starts_with("60"),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_source_that_is_complete_is_so_when_it_is_observed() {
    let store = MemoryStore::default();
    let note = put(&store, "note.v1", json!({})).await;
    let short = Instrumented::new("short", Short(Event::created(&note)));

    assert!(short.beside(store.events()).is_complete());
    assert!(!short.is_complete());
}

#[test]
fn every_operation_has_a_unique_name() {
    let names: std::collections::HashSet<_> = Operation::ALL.map(Operation::name).into();

    assert_eq!(names.len(), Operation::ALL.len());
}
