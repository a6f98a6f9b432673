//! An executor that answers questions, and helpers for questions and answers.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use universal_executor::runtime::RuntimeBuilder;
use universal_executor::source::{NatsRelay, NatsServer, StartAt};
use universal_executor::store::Query;
#[cfg(feature = "postgres")]
use universal_executor::store::Write;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt as _, Event, EventSource,
    ExecutionContext, MemoryStore, NewBreadcrumb, Response, Runtime, Selector, Subscription,
    Subscriptions, UniversalExecutor, async_trait,
};

/// An executor that answers every question with the question's number.
pub(crate) struct Answers<S> {
    pub(crate) store: S,
    subscriptions: Subscriptions,
}

impl<S: BreadcrumbStore> Answers<S> {
    pub(crate) fn on(store: S) -> Self {
        Self::to(store, Subscription::trigger("question.v1"))
    }

    pub(crate) fn to(store: S, trigger: Subscription) -> Self {
        Self {
            store,
            subscriptions: Subscriptions::new([trigger]).unwrap(),
        }
    }
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Answers<S> {
    fn id(&self) -> &str {
        "answers"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"to": trigger.context.get("n")}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new("answer.v1").context(output),
        ))
    }
}

/// Creates a runtime that answers the questions that a source announces, from the first one on.
pub(crate) fn runtime<S: BreadcrumbStore + Clone>(
    source: impl EventSource,
    store: &S,
) -> RuntimeBuilder {
    Runtime::builder(source)
        .start_at(StartAt::Beginning)
        .sweep_every(Duration::from_millis(200))
        .executor(Answers::on(store.clone()))
}

/// Writes a question to a store. Returns its event.
pub(crate) async fn ask(store: &impl BreadcrumbStore, n: u64) -> Event {
    let question = NewBreadcrumb::new("question.v1").context(json!({"n": n}));
    Event::created(&store.create(question).await.unwrap())
}

/// Writes many questions to a store in one commit.
#[cfg(feature = "postgres")]
pub(crate) async fn ask_all(store: &impl BreadcrumbStore, numbers: std::ops::Range<u64>) {
    let question = |n| NewBreadcrumb::new("question.v1").context(json!({"n": n}));
    let questions = numbers.map(|n| Write::Create(question(n)));
    let commit = questions.collect::<Vec<_>>().into();
    store.commit(commit).await.unwrap();
}

/// Returns the number of answers per question.
pub(crate) async fn answers(store: &impl BreadcrumbStore) -> BTreeMap<u64, usize> {
    let query = Query::new(Selector::schema("answer.v1")).limit(10_000);
    let mut answers = BTreeMap::new();
    for answer in store.search(&query).await.unwrap() {
        let n = answer.context.get("to").and_then(Value::as_u64).unwrap();
        *answers.entry(n).or_default() += 1;
    }
    answers
}

/// Waits until at least this number of questions has answers.
pub(crate) async fn answered(store: &impl BreadcrumbStore, questions: usize) {
    eventually(async || answers(store).await.len() >= questions).await;
}

/// Waits up to one minute until a condition holds.
pub(crate) async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let waits = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waits).await;
    waited.unwrap();
}

/// A relay that publishes a memory store's commits until it is dropped.
pub(crate) struct Relayed(tokio::task::JoinHandle<()>);

impl Relayed {
    pub(crate) async fn begin(
        server: impl Into<NatsServer>,
        tenant: &str,
        store: &MemoryStore,
    ) -> Self {
        Self::of(server, tenant, store.events()).await
    }

    pub(crate) async fn of(
        server: impl Into<NatsServer>,
        tenant: &str,
        events: impl EventSource,
    ) -> Self {
        let relay = NatsRelay::connect(server, tenant).await.unwrap();
        Self(tokio::spawn(
            async move { relay.run(events).await.unwrap() },
        ))
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.0.abort();
    }
}
