//! A runtime that answers questions on any store, and a direct commit of one answer.

use super::TEXT;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use universal_executor::source::StartAt;
use universal_executor::store::{Commit, Lease, RunEnd, Write};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, EventSource, ExecutionContext, NewBreadcrumb, Response,
    Runtime, Subscription, Subscriptions, UniversalExecutor,
};

pub(crate) fn question() -> NewBreadcrumb {
    NewBreadcrumb::new("question.v1")
        .tag("session:1")
        .context(json!({"text": TEXT}))
}

/// A runtime with one executor.
pub(crate) struct Answering {
    runtime: Runtime,
    done: Arc<Done>,
}

/// Count of the responses, with a target.
#[derive(Default)]
pub(crate) struct Done {
    count: AtomicUsize,
    target: AtomicUsize,
    /// The last target that was reached.
    reached: watch::Sender<usize>,
}

impl Done {
    /// Raises the target to `more` responses above the current count.
    pub(crate) fn aim(&self, more: usize) {
        let target = self.count.load(Ordering::Relaxed) + more;
        self.target.store(target, Ordering::Relaxed);
    }

    fn one_more(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.target.load(Ordering::Relaxed) {
            self.reached.send_replace(count);
        }
    }

    async fn reached(&self) {
        let target = self.target.load(Ordering::Relaxed);
        let mut reached = self.reached.subscribe();
        drop(reached.wait_for(|reached| *reached == target).await);
    }
}

impl Answering {
    /// Creates a runtime that reads the events of a store from `start_at`, and answers `at_once` triggers at a time.
    pub(crate) fn new<S: BreadcrumbStore + Clone + 'static>(
        store: &S,
        events: impl EventSource + 'static,
        at_once: Option<usize>,
        start_at: StartAt,
        done: &Arc<Done>,
    ) -> Self {
        let answerer = Answerer {
            store: store.clone(),
            subscriptions: Subscriptions::new([Subscription::trigger("question.v1")]).unwrap(),
            done: Arc::clone(done),
        };
        let mut runtime = Runtime::builder(events)
            .executor(answerer)
            .start_at(start_at);
        if let Some(at_once) = at_once {
            runtime = runtime.max_inflight(at_once).concurrency(at_once);
        }
        Self {
            runtime: runtime.build().unwrap(),
            done: Arc::clone(done),
        }
    }

    /// Answers triggers until the target is reached. Returns the number of responses of this runtime, and the time. All its
    /// responses are committed then.
    pub(crate) async fn answer(&self) -> (usize, Duration) {
        let begun = Instant::now();
        let report = self.runtime.run_until(self.done.reached()).await.unwrap();
        (report.responded as usize, begun.elapsed())
    }
}

struct Answerer<S> {
    store: S,
    subscriptions: Subscriptions,
    done: Arc<Done>,
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Answerer<S> {
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
        self.done.one_more();
        Ok(Response::create(
            NewBreadcrumb::new("answer.v1").context(output),
        ))
    }
}

/// Commits an answer for a claimed run.
pub(crate) async fn answer_one(store: &impl BreadcrumbStore, lease: Lease) {
    let answer = NewBreadcrumb::new("answer.v1")
        .tag("session:1")
        .context(json!({"text": TEXT}));
    let commit = Commit {
        writes: vec![Write::Create(answer)],
        end: Some((lease, RunEnd::Done)),
    };
    store.commit(commit).await.unwrap();
}
