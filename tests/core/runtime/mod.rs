//! Tasks of a runtime besides event processing: it answers waits, wakes suspended runs, and finds breadcrumbs without an event in the
//! store.

mod events;
mod hints;
mod on_store;
mod overlap;
mod sweep;
mod waits;
mod wakes;

use crate::support::{Probe, all, eventually, runs};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use universal_executor::store::RunState;
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, EventSource, MemoryStore, NewBreadcrumb,
    Response, Runtime, UniversalExecutor, Wake, suspend,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Creates a runtime that checks the store only at its start and a day later, so that a check finds nothing by chance.
fn runtime<const N: usize>(source: impl EventSource, executors: [&Arc<Probe>; N]) -> Runtime {
    Runtime::builder(source)
        .executors(executors.map(|executor| Arc::clone(executor) as Arc<dyn UniversalExecutor>))
        .reconcile_every(DAY)
        .build()
        .unwrap()
}

/// Creates an executor without triggers, whose store serves waits.
fn bystander(store: &(impl BreadcrumbStore + Clone)) -> Arc<Probe> {
    Probe::on("never.v1", "bystander", store).shared()
}

/// Creates an executor that suspends each question until a wake condition, and then answers with the data that it resumed with.
fn asks_back(
    id: &str,
    store: &(impl BreadcrumbStore + Clone),
    wake: impl Fn(&Breadcrumb) -> Wake + Send + Sync + 'static,
) -> Probe {
    Probe::on("question.v1", id, store).executing(move |context| {
        let wake = wake(context.trigger());
        async move {
            let n = context.trigger().context.get("n").cloned();
            match context.resumed() {
                None => Err(suspend(wake, json!({ "n": n })).writing(Response::none())),
                Some(resumed) => Ok(json!({
                    "n": n,
                    "state": resumed.state,
                    "with": resumed.with.as_ref().map(|with| with.id.to_string()),
                })),
            }
        }
    })
}

async fn put_tagged(store: &MemoryStore, schema: &str, tag: &str) -> Arc<Breadcrumb> {
    let new = NewBreadcrumb::new(schema).tag(tag).context(json!({}));
    store.create(new).await.unwrap()
}

async fn count(store: &MemoryStore, schema: &str) -> usize {
    all(store, schema).await.len()
}

/// Returns a number in the context of a breadcrumb.
fn number(breadcrumb: &Breadcrumb, field: &str) -> u64 {
    let value = breadcrumb.context.get(field);
    value.and_then(Value::as_u64).unwrap()
}

/// Waits until at least `n` breadcrumbs of a schema exist.
async fn until(store: &MemoryStore, schema: &str, n: usize) {
    eventually(async || count(store, schema).await >= n).await;
}

/// Waits until at least `n` runs are suspended.
async fn until_suspended(store: &MemoryStore, n: usize) {
    eventually(async || in_state(store, RunState::Suspended).await >= n).await;
}

async fn in_state(store: &MemoryStore, state: RunState) -> usize {
    let rows = runs(store).await;
    rows.iter().filter(|row| row.state == state).count()
}

/// Returns the only breadcrumb of a schema.
async fn only(store: &MemoryStore, schema: &str) -> Arc<Breadcrumb> {
    let mut found = all(store, schema).await;
    assert_eq!(found.len(), 1, "{schema}");
    found.remove(0)
}
