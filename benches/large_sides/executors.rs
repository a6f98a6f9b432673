//! Executors that suspend their runs, and executors that answer immediately.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, ExecutionContext, NewBreadcrumb, Response, Selector,
    Subscription, Subscriptions, UniversalExecutor, Wake, async_trait, suspend,
};

const QUESTION: &str = "question.v1";
const REPLY: &str = "reply.v1";
const ANSWER: &str = "answer.v1";
const NOTE: &str = "note.v1";

/// Returns the trigger of a run that waits for the reply with the same number.
pub(crate) fn question(number: usize) -> NewBreadcrumb {
    NewBreadcrumb::new(QUESTION).context(json!({"n": number}))
}

/// Returns the reply with a number.
pub(crate) fn reply(number: usize) -> NewBreadcrumb {
    NewBreadcrumb::new(REPLY)
        .tag(tag(number))
        .context(json!({"order": {"id": number.to_string()}}))
}

/// Returns a trigger that is answered immediately.
pub(crate) fn note() -> NewBreadcrumb {
    NewBreadcrumb::new(NOTE)
}

fn tag(number: usize) -> String {
    format!("reply:{number}")
}

/// A counter with a wait until it reaches a number.
#[derive(Default)]
pub(crate) struct Counter {
    count: AtomicUsize,
    grown: Notify,
}

impl Counter {
    fn add_one(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.grown.notify_waiters();
    }

    pub(crate) async fn reach(&self, wanted: usize) {
        loop {
            let grown = self.grown.notified();
            if self.count.load(Ordering::Relaxed) >= wanted {
                return;
            }
            grown.await;
        }
    }
}

/// An executor that suspends each question until its reply.
pub(crate) struct Asks<S> {
    store: S,
    subscriptions: Subscriptions,
    suspended: Arc<Counter>,
    answered: Arc<Counter>,
}

impl<S> Asks<S> {
    pub(crate) fn new(store: S, suspended: &Arc<Counter>, answered: &Arc<Counter>) -> Self {
        Self {
            store,
            subscriptions: Subscriptions::new([Subscription::trigger(QUESTION)]).unwrap(),
            suspended: Arc::clone(suspended),
            answered: Arc::clone(answered),
        }
    }
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Asks<S> {
    fn id(&self) -> &str {
        "asks"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        let number = trigger.context.get("n").ok_or("no number")?;
        if context.resumed().is_some() {
            return Ok(number.clone());
        }
        let number = number.as_u64().ok_or("no number")?;
        let number = usize::try_from(number)?;
        let selector = Selector::schema(REPLY);
        let selector = match number % 2 {
            0 => selector.all_tags([tag(number)]),
            _ => selector.matching("$.order.id", "eq", number.to_string()),
        };
        self.suspended.add_one();
        Err(suspend(Wake::on(selector), json!({"n": number})).writing(Response::none()))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.answered.add_one();
        Ok(Response::create(
            NewBreadcrumb::new(ANSWER).context(json!({"n": output})),
        ))
    }
}

/// An executor that answers each note.
pub(crate) struct Notes<S> {
    store: S,
    subscriptions: Subscriptions,
    noted: Arc<Counter>,
}

impl<S> Notes<S> {
    pub(crate) fn new(store: S, noted: &Arc<Counter>) -> Self {
        Self {
            store,
            subscriptions: Subscriptions::new([Subscription::trigger(NOTE)]).unwrap(),
            noted: Arc::clone(noted),
        }
    }
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Notes<S> {
    fn id(&self) -> &str {
        "notes"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({}))
    }

    async fn respond(&self, _: &Breadcrumb, _: Value) -> Result<Response, BoxError> {
        self.noted.add_one();
        Ok(Response::none())
    }
}
