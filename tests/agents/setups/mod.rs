//! Agents behave the same with every provider and every location of their tools: a model in this process, behind breadcrumbs or behind
//! an API, or a separate program.

mod conversation;
mod handoffs;
mod runs;
mod same;
mod setup;

use crate::support::{all, eventually};
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::store::{RunFilter, RunState};
use universal_executor::{
    Breadcrumb, BreadcrumbStore as _, BreadcrumbStoreExt as _, MemoryStore, NewBreadcrumb, Runtime,
    UniversalExecutor,
};

/// A file in which the programs of one test leave notes. It is deleted on drop.
struct Notes(std::path::PathBuf);

impl Notes {
    fn new(test: &str) -> Self {
        let name = format!("{test}-{}.jsonl", std::process::id());
        Self(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Returns the notes of each program, oldest first.
    fn read(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn runtime(
    store: &MemoryStore,
    executors: impl IntoIterator<Item = Arc<dyn UniversalExecutor>>,
) -> Runtime {
    let builder = Runtime::builder(store.events());
    let executors = executors.into_iter();
    let builder = executors.fold(builder, |builder, executor| builder.executor(executor));
    builder.build().unwrap()
}

/// Waits until a breadcrumb of a schema by a creator exists.
async fn first(store: &MemoryStore, schema: &str, by: &str) -> Arc<Breadcrumb> {
    let found = async || {
        let found = all(store, schema).await.into_iter();
        found
            .rev()
            .find(|found| found.created_by.as_deref() == Some(by))
    };
    eventually(|| async { found().await.is_some() }).await;
    found().await.unwrap()
}

/// Waits until this number of runs is suspended.
async fn are_suspended(store: &MemoryStore, number: usize) {
    let filter = RunFilter::all().state(RunState::Suspended);
    let ledger = store.ledger().unwrap();
    eventually(|| async { ledger.runs(&filter).await.unwrap().len() == number }).await;
}

/// Writes a person's approval.
async fn approve(store: &MemoryStore, asked: &Breadcrumb) {
    let id = asked.context.text("requestId").unwrap();
    let said = NewBreadcrumb::new("human.response.v1")
        .tag(format!("request:{id}"))
        .created_by("ann")
        .context(json!({"request_id": id, "approved": true}));
    store.create(said).await.unwrap();
}
