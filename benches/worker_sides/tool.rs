//! Executor that responds to each trigger with one breadcrumb, like a tool.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, ExecutionContext, NewBreadcrumb, Response, Subscription,
    Subscriptions, UniversalExecutor, async_trait,
};

const REQUEST: &str = "tool.request.v1";
const RESPONSE: &str = "tool.response.v1";
const TEXT: &str = "input of a tool call, at the usual length of a question in one sentence";

/// Returns a trigger.
pub(crate) fn request() -> NewBreadcrumb {
    NewBreadcrumb::new(REQUEST).context(json!({"tool": "echo", "input": TEXT}))
}

/// Number of answers by all workers together.
pub(crate) struct Progress {
    triggers: usize,
    answered: AtomicUsize,
    is_complete: watch::Sender<bool>,
}

impl Progress {
    pub(crate) fn new(triggers: usize) -> Self {
        Self {
            triggers,
            answered: AtomicUsize::new(0),
            is_complete: watch::Sender::new(false),
        }
    }

    fn add_one(&self) {
        if self.answered.fetch_add(1, Ordering::Relaxed) + 1 == self.triggers {
            self.is_complete.send_replace(true);
        }
    }

    /// Waits until the last answer is ready. The commit of the answer may still be in flight, but a stopping runtime waits for it.
    pub(crate) async fn complete(&self) {
        let mut receiver = self.is_complete.subscribe();
        receiver.wait_for(|is_complete| *is_complete).await.unwrap();
    }
}

pub(crate) struct Tool<S> {
    store: S,
    subscriptions: Subscriptions,
    progress: Arc<Progress>,
}

impl<S> Tool<S> {
    pub(crate) fn new(store: S, progress: &Arc<Progress>) -> Self {
        Self {
            store,
            subscriptions: Subscriptions::new([Subscription::trigger(REQUEST)]).unwrap(),
            progress: Arc::clone(progress),
        }
    }
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Tool<S> {
    fn id(&self) -> &str {
        "echo"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"output": TEXT}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.progress.add_one();
        Ok(Response::create(
            NewBreadcrumb::new(RESPONSE).context(output),
        ))
    }
}
