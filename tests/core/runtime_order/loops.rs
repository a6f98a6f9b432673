//! Executors that trigger each other in a loop stop.

use crate::runtime_order::harness::{count, from_beginning, in_state, until_ended};
use crate::support::{Probe, all, put};
use serde_json::json;
use std::sync::Arc;
use universal_executor::store::RunState;
use universal_executor::{
    BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch, Profile, Response,
};

/// Creates an executor that answers one schema with other schemas. Each answer claims that it has no predecessor.
fn step(store: &MemoryStore, from: &str, to: &[&str]) -> Probe {
    let forged = json!({"creator": {"id": "somebody", "hops": 0, "correlation_id": "other"}});
    let next = to.iter().fold(Response::none(), |response, schema| {
        response.and_create(NewBreadcrumb::new(*schema).context(forged.clone()))
    });
    Probe::on(from, &format!("from-{from}"), store).writing(next)
}

#[tokio::test(start_paused = true)]
async fn a_circle_of_three_stops_after_sixteen_runs_with_one_dead_letter() {
    let store = MemoryStore::default();
    let circle = [("a.v1", "b.v1"), ("b.v1", "c.v1"), ("c.v1", "a.v1")];
    let steps = circle.map(|(from, to)| step(&store, from, &[to]).shared());
    let runtime = steps.iter().fold(from_beginning(&store), |runtime, step| {
        runtime.executor(Arc::clone(step))
    });
    let start = put(&store, "a.v1", json!({})).await;

    let runtime = runtime.build().unwrap();
    let report = runtime.run_until(until_ended(&store, 17)).await.unwrap();

    assert_eq!((report.responded, report.failed), (16, 1));
    let letter = all(&store, "executor.failed.v1").await.remove(0);
    assert_eq!(letter.context["class"], "hop_limit");
    let creator = &letter.context["creator"];
    assert_eq!(creator["correlation_id"], start.id.to_string());
    let executed: usize = steps.iter().map(|step| step.executed()).sum();
    assert_eq!(
        (executed, count(&store, "executor.failed.v1").await),
        (16, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_executor_is_not_triggered_by_its_own_writes() {
    let store = MemoryStore::default();
    let own = step(&store, "a.v1", &["a.v1"]).shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&own))
        .build()
        .unwrap();
    put(&store, "a.v1", json!({})).await;

    let report = runtime.run_until(until_ended(&store, 2)).await.unwrap();

    assert_eq!((own.executed(), count(&store, "a.v1").await), (1, 2));
    assert_eq!((report.responded, report.skipped, report.failed), (1, 1, 0));
    let skipped = in_state(&store, RunState::Skipped).await;
    assert_eq!(skipped[0].reason.as_deref(), Some("own"));
}

#[tokio::test(start_paused = true)]
async fn an_executor_is_triggered_when_another_client_changes_its_breadcrumb() {
    let store = MemoryStore::default();
    let own = step(&store, "a.v1", &["a.v1"]).shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&own))
        .build()
        .unwrap();
    let first = put(&store, "a.v1", json!({})).await;
    let changed = async {
        until_ended(&store, 2).await;
        let mut written = all(&store, "a.v1").await;
        written.retain(|breadcrumb| breadcrumb.id != first.id);
        let patch = Patch::new().context(json!({"by": "somebody else"}));
        store.update(written[0].id, 1, patch).await.unwrap();
        until_ended(&store, 4).await;
    };

    runtime.run_until(changed).await.unwrap();

    assert_eq!(own.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn executors_that_answer_each_other_twice_over_are_bounded_by_the_hops() {
    let store = MemoryStore::default();
    let short = || Profile::default().hop_limit(8);
    let runtime = from_beginning(&store)
        .executor(step(&store, "a.v1", &["b.v1", "b.v1"]).profile(short()))
        .executor(step(&store, "b.v1", &["a.v1", "a.v1"]).profile(short()))
        .build()
        .unwrap();
    put(&store, "a.v1", json!({})).await;

    let report = runtime.run_until(until_ended(&store, 511)).await.unwrap();

    // 1 + 2 + 4 + .. + 128 runs answer, and the 256 runs after them fail at the hop limit.
    assert_eq!((report.responded, report.failed), (255, 256));
    assert_eq!(count(&store, "executor.failed.v1").await, 256);
}
