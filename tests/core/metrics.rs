//! The metrics of a runtime, as a Prometheus exporter shows them.

use crate::support::{Probe, Shim, all, event_of, eventually, put};
use futures::stream::{self, StreamExt as _};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use universal_executor::runtime::metrics::{
    BEHIND, BREAKER_OPEN, DUE, EVENTS, FOUND, IN_FLIGHT, LAG_SECONDS, MATCHES, MISSED,
    OLDEST_DUE_SECONDS, QUEUE, RUN_SECONDS, RUNS, WAITS,
};
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::metrics::{SOURCE_SECONDS, STORE_SECONDS};
use universal_executor::store::{Fault, Faulty, Instrumented, Moment};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Delivery, Event, EventSource, MemoryStore,
    NewBreadcrumb, Runtime, Selector, async_trait, permanent,
};

const ALL: [&str; 14] = [
    BEHIND,
    BREAKER_OPEN,
    DUE,
    OLDEST_DUE_SECONDS,
    EVENTS,
    MISSED,
    FOUND,
    MATCHES,
    RUNS,
    RUN_SECONDS,
    LAG_SECONDS,
    IN_FLIGHT,
    QUEUE,
    WAITS,
];

/// Records all metrics of this thread from now on.
fn recorder() -> (PrometheusHandle, metrics::LocalRecorderGuard<'static>) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    // The recorder lives for the rest of the process.
    let recorder: &'static _ = Box::leak(Box::new(recorder));
    (handle, metrics::set_default_local_recorder(recorder))
}

/// Returns the value of one series, which is named as in the exporter's output.
fn value(metrics: &PrometheusHandle, series: &str) -> Option<f64> {
    let text = metrics.render();
    let mut lines = text.lines();
    let line = lines.find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

/// A source that delivers one event, reports seven lost events, and stays silent.
struct Lossy(Event);

#[async_trait]
impl EventSource for Lossy {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let delivery = Delivery::new(self.0.clone());
        let lagged = SourceError::Lagged {
            missed: 7,
            after: None,
        };
        let said = stream::iter([Ok(delivery), Err(lagged)]);
        Ok(Deliveries::new(said.chain(stream::pending())))
    }

    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(3))
    }
}

/// The expected series of the scenario below.
const SERIES: [(&str, f64); 16] = [
    ("ux_breaker_open{executor=\"well\"}", 0.0),
    ("ux_events_behind", 3.0),
    ("ux_runs_due{executor=\"well\"}", 0.0),
    ("ux_oldest_due_seconds{executor=\"well\"}", 0.0),
    ("ux_events_total", 1.0),
    ("ux_events_missed_total", 7.0),
    ("ux_events_found_by_sweep_total", 1.0),
    ("ux_matches_total{executor=\"well\"}", 2.0),
    ("ux_matches_total{executor=\"badly\"}", 2.0),
    (
        "ux_runs_total{executor=\"well\",outcome=\"responded\"}",
        2.0,
    ),
    ("ux_runs_total{executor=\"badly\",outcome=\"failed\"}", 2.0),
    ("ux_run_seconds_count{executor=\"well\"}", 2.0),
    ("ux_run_seconds_count{executor=\"badly\"}", 2.0),
    ("ux_lag_seconds_count{executor=\"well\"}", 2.0),
    ("ux_runs_in_flight", 0.0),
    ("ux_queue_depth{store=\"0\"}", 0.0),
];

#[tokio::test(start_paused = true)]
async fn every_metric_of_the_table_is_there_with_its_labels_after_a_few_runs() {
    let (metrics, _guard) = recorder();
    let store = MemoryStore::default();
    let message = put(&store, "message.v1", json!({})).await;
    tokio::time::advance(Duration::from_secs(3)).await;
    let well = Probe::on("message.v1", "well", &store);
    let badly = Probe::on("message.v1", "badly", &store).failing(|| permanent("no"));
    let runtime = Runtime::builder(Lossy(event_of(&message)))
        .executor(well)
        .executor(badly)
        .build()
        .unwrap();
    let mut during = None;
    let scenario = async {
        eventually(async || all(&store, "executor.failed.v1").await.len() == 1).await;
        // The source delivers no event for this breadcrumb.
        put(&store, "message.v1", json!({})).await;
        let wait = runtime.wait_for(Selector::schema("none.v1"), Duration::from_secs(7_000));
        eventually(async || value(&metrics, "ux_waits_open{store=\"0\"}") == Some(1.0)).await;
        drop(wait);
        eventually(async || all(&store, "executor.failed.v1").await.len() == 2).await;
        eventually(async || all(&store, "answer.v1").await.len() == 2).await;
        eventually(async || value(&metrics, IN_FLIGHT) == Some(0.0)).await;
        during = Some(metrics.render());
    };

    let report = runtime.run_until(scenario).await.unwrap();

    let rendered = during.unwrap();
    for name in ALL {
        assert!(
            rendered.contains(&format!("# TYPE {name} ")),
            "no {name} in {rendered}"
        );
    }
    for (series, expected) in SERIES {
        assert_eq!(
            value(&metrics, series),
            Some(expected),
            "{series} in {rendered}"
        );
    }
    assert!(
        value(&metrics, "ux_lag_seconds_sum{executor=\"well\"}") >= Some(3.0),
        "{rendered}"
    );
    assert_eq!(
        (report.events, report.missed, report.found_by_sweep),
        (1, 7, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn runs_in_flight_are_counted_while_they_run_and_their_time_after() {
    let (metrics, _guard) = recorder();
    let store = MemoryStore::default();
    let slow = Probe::on("message.v1", "slow", &store).executing(|_| async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        Ok(json!({}))
    });
    let runtime = Runtime::builder(store.events())
        .executor(slow)
        .build()
        .unwrap();
    let scenario = async {
        for _ in 0..3 {
            put(&store, "message.v1", json!({})).await;
        }
        eventually(async || value(&metrics, IN_FLIGHT) == Some(3.0)).await;
        eventually(async || value(&metrics, IN_FLIGHT) == Some(0.0)).await;
    };

    runtime.run_until(scenario).await.unwrap();

    let seconds = value(&metrics, "ux_run_seconds_sum{executor=\"slow\"}");
    assert!(
        seconds.is_some_and(|seconds| (27.0..28.0).contains(&seconds)),
        "{seconds:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_by_outcome() {
    let (metrics, _guard) = recorder();
    let store = MemoryStore::default();
    let again = Probe::on("message.v1", "again", &store).executing(|context| async move {
        match context.attempt() {
            1 => Err("reset".into()),
            _ => Ok(json!({})),
        }
    });
    let hanging = Probe::on("message.v1", "hanging", &store).hanging();
    let runtime = Runtime::builder(store.events())
        .executor(again)
        .executor(hanging)
        .build()
        .unwrap();
    let scenario = async {
        put(&store, "message.v1", json!({})).await;
        eventually(async || all(&store, "answer.v1").await.len() == 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    for (executor, outcome) in [
        ("again", "postponed"),
        ("again", "responded"),
        ("hanging", "dropped"),
    ] {
        let series = format!("ux_runs_total{{executor=\"{executor}\",outcome=\"{outcome}\"}}");
        assert_eq!(
            value(&metrics, &series),
            Some(1.0),
            "{series} in {}",
            metrics.render()
        );
    }
    assert_eq!(value(&metrics, IN_FLIGHT), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn attempts_without_a_ledger_are_counted_by_outcome() {
    let (metrics, _guard) = recorder();
    let store = MemoryStore::default();
    let probe = Probe::on("message.v1", "direct", &Shim::without_ledger(&store));
    let runtime = Runtime::builder(store.events())
        .executor(probe)
        .build()
        .unwrap();
    let scenario = async {
        put(&store, "message.v1", json!({})).await;
        eventually(async || all(&store, "answer.v1").await.len() == 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    let series = "ux_runs_total{executor=\"direct\",outcome=\"responded\"}";
    assert_eq!(value(&metrics, series), Some(1.0));
    assert_eq!(value(&metrics, IN_FLIGHT), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_store_and_of_a_source_are_measured_by_operation_and_outcome() {
    let (metrics, _guard) = recorder();
    let slow = Faulty::new(MemoryStore::default(), |_, moment| match moment {
        Moment::Before => Fault::Delay(Duration::from_secs(2)),
        Moment::After => Fault::None,
    });
    let store = Instrumented::new("slow", slow);
    let message = put(store.inner().inner(), "message.v1", json!({})).await;
    let source = store.beside(Lossy(event_of(&message)));

    store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    let absent = store.get(BreadcrumbId::NIL).await;
    let mut events = source.subscribe(StartAt::Now).await.unwrap();
    let delivered = [events.next().await, events.next().await];

    assert!(absent.is_err() && delivered.iter().all(Option::is_some));
    for (name, operation, outcome, times) in [
        (STORE_SECONDS, "commit", "ok", 2.0),
        (STORE_SECONDS, "get", "not_found", 1.0),
        (SOURCE_SECONDS, "subscribe", "ok", 1.0),
        (SOURCE_SECONDS, "next", "ok", 1.0),
        (SOURCE_SECONDS, "next", "lagged", 1.0),
    ] {
        let labels = format!("{{operation=\"{operation}\",outcome=\"{outcome}\"}}");
        let counted = value(&metrics, &format!("{name}_count{labels}"));
        assert_eq!(counted, Some(times), "{name}{labels}");
    }
    let labels = "{operation=\"commit\",outcome=\"ok\"}";
    let seconds = value(&metrics, &format!("{STORE_SECONDS}_sum{labels}"));
    assert!(seconds >= Some(4.0) && seconds < Some(5.0), "{seconds:?}");
}

/// Reads the documentation's table as text: name, kind and labels of each row.
#[test]
fn the_documentation_table_matches_the_constants() {
    let source = include_str!("../../src/runtime/metrics.rs");
    let rows: Vec<Vec<&str>> = source
        .lines()
        .filter_map(|line| line.strip_prefix("//! | [`"))
        .map(|row| row.split('|').map(str::trim).collect())
        .collect();
    let constants: Vec<(&str, &str)> = source
        .lines()
        .filter_map(|line| line.strip_prefix("pub const "))
        .filter_map(|line| line.strip_suffix("\";")?.split_once(": &str = \""))
        .collect();

    let in_table: BTreeSet<&str> = rows
        .iter()
        .map(|row| row[0].trim_end_matches("`]"))
        .collect();
    let in_code: BTreeSet<&str> = constants.iter().map(|(constant, _)| *constant).collect();
    assert_eq!(in_table, in_code);
    let values: BTreeSet<&str> = constants.iter().map(|(_, value)| *value).collect();
    assert_eq!(values, BTreeSet::from(ALL), "this test knows them all");
    for (constant, value) in constants {
        let row = rows
            .iter()
            .find(|row| row[0].trim_end_matches("`]") == constant);
        let (kind, labels) = row.map(|row| (row[1], row[2])).unwrap();
        let expected = match value.rsplit('_').next().unwrap() {
            "total" => "counter",
            "seconds" if constant != "OLDEST_DUE_SECONDS" => "histogram",
            _ => "gauge",
        };
        assert_eq!(kind, expected, "{constant}");
        assert!(
            ["", "`executor`", "`executor`, `outcome`", "`store`"].contains(&labels),
            "{constant}: {labels}"
        );
    }
}
