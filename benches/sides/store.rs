//! The sides of this crate: the runtime, and the store by hand.

use super::{TEXT, fill};
use async_trait::async_trait;
use futures::future::join_all;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use universal_executor::source::StartAt;
use universal_executor::store::{
    Claim, Commit, Durability, ExecutorLimits, NewRun, RunEnd, RunFilter, RunLedger, RunRef,
    SqliteLimits, Write,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, ExecutionContext, NewBreadcrumb,
    Response, Runtime, SqliteStore, Subscription, Subscriptions, UniversalExecutor,
};

pub(crate) async fn open(file: &Path, durability: Durability) -> SqliteStore {
    let store = SqliteStore::builder(file).durability(durability);
    store.open().await.unwrap()
}

/// Answers the triggers in a file through a runtime, so many at a time.
pub(crate) async fn answer(
    file: &Path,
    durability: Durability,
    n: usize,
    at_once: Option<usize>,
) -> Duration {
    let store = open(file, durability).await;
    let answering = Answering::new(&store, at_once, StartAt::Beginning);
    let took = answering.answer(n).await;
    drop(answering);
    store.close().await;
    took
}

/// A runtime with one executor.
pub(crate) struct Answering {
    runtime: Runtime,
    done: Arc<Done>,
}

/// How many responses were made, and how many are to be.
#[derive(Default)]
struct Done {
    count: AtomicUsize,
    target: AtomicUsize,
    reached: Notify,
}

impl Answering {
    pub(crate) fn new(store: &SqliteStore, at_once: Option<usize>, start_at: StartAt) -> Self {
        let done = Arc::<Done>::default();
        let answerer = Answerer {
            store: store.clone(),
            subscriptions: Subscriptions::new([Subscription::trigger("question.v1")]).unwrap(),
            done: Arc::clone(&done),
        };
        let mut runtime = Runtime::builder(store.events())
            .executor(answerer)
            .start_at(start_at);
        if let Some(at_once) = at_once {
            runtime = runtime.max_inflight(at_once).concurrency(at_once);
        }
        Self {
            runtime: runtime.build().unwrap(),
            done,
        }
    }

    /// Answers so many triggers, which are there. When the runtime has ended all responses are committed.
    pub(crate) async fn answer(&self, n: usize) -> Duration {
        let target = self.done.count.load(Ordering::Relaxed) + n;
        self.done.target.store(target, Ordering::Relaxed);
        let begun = Instant::now();
        let report = self.runtime.run_until(self.done.reached.notified());
        let report = report.await.unwrap();
        let took = begun.elapsed();
        assert_eq!(report.responded as usize, n, "{report:?}");
        took
    }
}

struct Answerer {
    store: SqliteStore,
    subscriptions: Subscriptions,
    done: Arc<Done>,
}

#[async_trait]
impl UniversalExecutor for Answerer {
    fn id(&self) -> &str {
        "answerer"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"text": TEXT}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let count = self.done.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.done.target.load(Ordering::Relaxed) {
            self.done.reached.notify_one();
        }
        Ok(Response::create(
            NewBreadcrumb::new("answer.v1").context(output),
        ))
    }
}

/// Creates breadcrumbs, by so many writers side by side.
pub(crate) async fn create(
    file: &Path,
    durability: Durability,
    n: usize,
    writers: usize,
) -> Duration {
    let store = open(file, durability).await;
    let begun = Instant::now();
    let writers = (0..writers).map(async |_| {
        for _ in 0..n / writers {
            store.create(fill::question()).await.unwrap();
        }
    });
    join_all(writers).await;
    let took = begun.elapsed();
    store.close().await;
    took
}

/// Claims the runs of all triggers in a file and answers them, so many at a time.
pub(crate) async fn finish(
    file: &Path,
    durability: Durability,
    triggers: &[[u8; 16]],
    at_once: usize,
) -> Duration {
    let store = open(file, durability).await;
    let runs = triggers.iter().map(|id| {
        let id = uuid::Uuid::from_bytes(*id).into();
        NewRun::from(RunRef::new("answerer", id, 1))
    });
    store.enqueue(runs.collect()).await.unwrap();
    let begun = Instant::now();
    for _ in 0..triggers.len() / at_once {
        let limits = [ExecutorLimits::new("answerer", at_once)];
        assert_eq!(store.claim_next(at_once, &limits).await.unwrap(), at_once);
        let parked = store.runs(&RunFilter::parked()).await.unwrap();
        join_all(parked.iter().map(|row| answer_one(&store, &row.run))).await;
    }
    let took = begun.elapsed();
    store.close().await;
    took
}

async fn answer_one(store: &SqliteStore, run: &RunRef) {
    if let Claim::Granted { lease, .. } = store.claim(run, None).await.unwrap() {
        let answer = NewBreadcrumb::new("answer.v1")
            .tag("session:1")
            .context(json!({"text": TEXT}));
        let commit = Commit {
            writes: vec![Write::Create(answer)],
            end: Some((lease, RunEnd::Done)),
        };
        store.commit(commit).await.unwrap();
    }
}

/// Opens a file as a store that keeps so many runs that are over and as many events.
pub(crate) async fn open_limited(file: &Path, most: usize) -> SqliteStore {
    let mut limits = SqliteLimits::default();
    (limits.finished_runs, limits.events) = (most, most);
    let store = SqliteStore::builder(file)
        .durability(Durability::Normal)
        .limits(limits);
    store.open().await.unwrap()
}
