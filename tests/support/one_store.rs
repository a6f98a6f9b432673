//! Executors with separate handles on one store: the runtime enqueues and claims their runs together.

use futures::StreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::source::StartAt;
use universal_executor::store::{Fault, Faulty, Moment, Operation};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, EventSource, ExecutionContext,
    NewBreadcrumb, Response, Runtime, Subscription, Subscriptions, UniversalExecutor, async_trait,
};

/// Number of executors.
const EXECUTORS: usize = 16;

/// Number of triggers. Each trigger starts a run of every executor.
const NOTES: usize = 3;

const PATIENCE: Duration = Duration::from_secs(60);

/// An executor that answers notes.
struct Answerer<S> {
    id: String,
    subscriptions: Subscriptions,
    store: S,
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Answerer<S> {
    fn id(&self) -> &str {
        &self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"by": self.id}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let answer = NewBreadcrumb::new("answer.v1").context(output);
        Ok(Response::create(answer))
    }
}

/// Checks that executors whose handles come from `handle` cost the store as few calls as executors that share one handle.
pub(crate) async fn executors_cost_as_much_as_on_one_handle<S: BreadcrumbStore, E: EventSource>(
    store: &S,
    events: impl Fn() -> E,
    handle: impl AsyncFn() -> S,
) {
    let calls = Arc::new(Mutex::new(BTreeMap::<&str, usize>::new()));
    let counted = Arc::clone(&calls);
    let counting = Faulty::new((), move |operation: Operation, moment| {
        if moment == Moment::Before {
            *counted.lock().unwrap().entry(operation.name()).or_default() += 1;
        }
        Fault::None
    });
    let mut runtime = Runtime::builder(events()).start_at(StartAt::Beginning);
    for n in 0..EXECUTORS {
        runtime = runtime.executor(Answerer {
            id: format!("answerer-{n}"),
            subscriptions: Subscriptions::new([Subscription::trigger("note.v1")]).unwrap(),
            store: Arc::new(counting.beside(handle().await)),
        });
    }
    let runtime = runtime.build().unwrap();
    let mut committed = events().subscribe(StartAt::Beginning).await.unwrap();
    let answered = async {
        for n in 0..NOTES {
            let note = NewBreadcrumb::new("note.v1").context(json!({"n": n}));
            store.create(note).await.unwrap();
            let mut answers = 0;
            while answers < EXECUTORS {
                let delivery = committed.next().await.unwrap().unwrap();
                let is_answer = delivery.event.schema_name.as_deref() == Some("answer.v1");
                answers += usize::from(is_answer);
            }
        }
    };

    let run = timeout(PATIENCE, runtime.run_until(answered)).await;

    run.unwrap().unwrap();
    let calls = calls.lock().unwrap();
    let count = |operation: Operation| calls.get(operation.name()).copied().unwrap_or(0);
    let runs = NOTES * EXECUTORS;
    assert_eq!(count(Operation::Commit), runs, "{calls:?}");
    assert!(count(Operation::Enqueue) <= NOTES * 2, "{calls:?}");
    assert!(count(Operation::ClaimNext) < runs / 2, "{calls:?}");
    let per_run = [
        Operation::Commit,
        Operation::Claim,
        Operation::Get,
        Operation::Search,
    ];
    let all: usize = calls.values().sum();
    let others = all - per_run.into_iter().map(count).sum::<usize>();
    assert!(
        others < runs,
        "{others} calls besides those of the runs: {calls:?}"
    );
}
