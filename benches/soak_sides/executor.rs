//! Executor of the soak test, which fetches context and answers some documents with breadcrumbs that expire.

use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::watch;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, ExecutionContext, NewBreadcrumb, Response, Subscription,
    Subscriptions, UniversalExecutor, async_trait,
};

const DOCUMENT: &str = "document.v1";
const ANSWER: &str = "answer.v1";

/// Returns a document.
pub(crate) fn document(context: Value) -> NewBreadcrumb {
    NewBreadcrumb::new(DOCUMENT).context(context)
}

/// Returns a document that marks the progress of the executor.
pub(crate) fn mark(number: usize) -> NewBreadcrumb {
    document(json!({"mark": number}))
}

pub(crate) struct Reads<S> {
    store: S,
    subscriptions: Subscriptions,
    marks: watch::Sender<usize>,
}

impl<S> Reads<S> {
    /// Creates the executor. `marks` receives the greatest handled mark.
    pub(crate) fn new(store: S, marks: watch::Sender<usize>) -> Self {
        let newest = Subscription::context(DOCUMENT).key("newest").recent(3);
        let all = [Subscription::trigger(DOCUMENT), newest];
        Self {
            store,
            subscriptions: Subscriptions::new(all).unwrap(),
            marks,
        }
    }
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Reads<S> {
    fn id(&self) -> &str {
        "reads"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(trigger.context.get("mark").cloned().unwrap_or_default())
    }

    async fn respond(&self, trigger: &Breadcrumb, mark: Value) -> Result<Response, BoxError> {
        /// Time until an answer expires.
        const LIFE: Duration = Duration::from_secs(2);
        let Some(mark) = mark.as_u64() else {
            return Ok(Response::none());
        };
        let mark = usize::try_from(mark)?;
        self.marks.send_modify(|last| *last = mark.max(*last));
        let answer = NewBreadcrumb::new(ANSWER).context(json!({"mark": mark}));
        Ok(Response::create(answer.ttl(trigger.updated_at + LIFE)))
    }
}
