//! Running flows: the effects of steps, requests to others, repetition after a restart, and events.

mod agents;
mod approvals;
mod asked;
mod entries;
mod executors;
mod graphs;
mod hints;
mod limits;
mod losses;
mod people;
mod planted;
mod restarts;
mod retries;
mod running;
mod security;
mod steps;
mod total;
mod transcripts;
mod waits;

use serde_json::{Value, json};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use universal_executor::agent::{
    ChatMessage, ChatRequest, ChatResponse, ModelError, ScriptedModel, Speaker, ToolCall,
};
use universal_executor::executor::ExecutorError;
use universal_executor::source::StartAt;
use universal_executor::store::{Fault, Faulty, Moment};
use universal_executor::tool::{Approval, JsonTool, ToolRegistry, json_tool};
use universal_executor::workflow::{Assembly, Control, FlowEventKind, Workflow};
use universal_executor::workload::{WorkloadEvent, WorkloadEventKind, WorkloadExecutor};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt as _, Event, ExecutionContext,
    MemoryStore, NewBreadcrumb, Outcome, Runtime, Services, UniversalExecutor as _,
};

const SECOND: Duration = Duration::from_secs(1);
const ID: &str = "work";

/// Schema of the answer to a request.
const RESULT: &str = WorkloadExecutor::REQUEST_RESULT;

/// A workflow with tools and a model on a fresh store, and the events of its runs.
struct World {
    store: MemoryStore,
    /// Notified after each call through a [`watched`] store.
    changed: Arc<Notify>,
    model: Arc<ScriptedModel>,
    executor: Arc<WorkloadExecutor>,
    events: Arc<Mutex<Vec<WorkloadEvent>>>,
}

impl World {
    fn new(definition: &Value, tools: ToolRegistry, model: ScriptedModel) -> Self {
        let model = Arc::new(model);
        let services = Services::new()
            .tools(tools)
            .default_model(Arc::clone(&model));
        Self::with_services(definition, &services, model)
    }

    fn with_services(definition: &Value, services: &Services, model: Arc<ScriptedModel>) -> Self {
        let (store, changed) = (MemoryStore::default(), Arc::default());
        let events: Arc<Mutex<Vec<WorkloadEvent>>> = Arc::default();
        let heard = Arc::clone(&events);
        let executor = executor(definition, services, watched(&store, &changed));
        let executor = executor.with_events(move |event| heard.lock().unwrap().push(event));
        Self {
            executor: Arc::new(executor),
            store,
            changed,
            model,
            events,
        }
    }

    /// Replaces the definition.
    fn with_definition(self, definition: &Value) -> Self {
        let store = watched(&self.store, &self.changed);
        Self {
            executor: Arc::new(executor(definition, &Services::new(), store)),
            ..self
        }
    }

    /// Writes a request for a run.
    async fn request(&self, input: Value) -> Arc<Breadcrumb> {
        let request = json!({"workflow": ID, "input": input});
        let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
        self.store.create(request.tag("request:q-1")).await.unwrap()
    }

    /// Writes a control order for the run of a request.
    async fn orders(&self, control: Control, request: &Breadcrumb) {
        self.store.create(control.of(request.id)).await.unwrap();
    }

    /// Writes a person's answer to the question with a ticket.
    async fn answers(&self, ticket: &str, answer: Value, by: &str) {
        let response = NewBreadcrumb::new("human.response.v1")
            .tag(format!("request:{ticket}"))
            .created_by(by)
            .context(json!({"request_id": ticket, "answer": answer}));
        self.store.create(response).await.unwrap();
    }

    /// Returns the result of a run that waits for no one.
    async fn result_of(&self, input: Value) -> Value {
        let request = self.request(input).await;
        let outcome = self.executor.process_event(&Event::created(&request)).await;
        assert!(
            matches!(outcome, Ok(Outcome::Responded { .. })),
            "{outcome:?}"
        );
        self.result().await
    }

    async fn result(&self) -> Value {
        let results = self.store.recent(RESULT, 10).await.unwrap();
        assert_eq!(results.len(), 1, "{results:?}");
        results[0].context.clone().into_value()
    }

    /// Runs a new runtime until `many` breadcrumbs of a schema exist and no run is running. Returns the newest breadcrumb.
    async fn works_until(&self, schema: &str, many: usize) -> Arc<Breadcrumb> {
        let runtime = Runtime::builder(self.store.events())
            .start_at(StartAt::Beginning)
            .executor(self.executor.clone())
            .build()
            .unwrap();
        let found = async {
            loop {
                let mut changed = pin!(self.changed.notified());
                changed.as_mut().enable();
                let found = self.store.recent(schema, 10).await.unwrap();
                if found.len() >= many && is_idle(&self.store).await {
                    return;
                }
                changed.await;
            }
        };
        let worked = tokio::time::timeout(60 * SECOND, runtime.run_until(found)).await;
        assert!(worked.is_ok(), "the runtime made no progress in time");
        self.store.latest(schema).await.unwrap().unwrap()
    }

    fn recorded_events(&self) -> Vec<WorkloadEvent> {
        self.events.lock().unwrap().clone()
    }

    /// Returns the step events of the flow.
    fn flow_events(&self) -> Vec<(String, FlowEventKind)> {
        let events = self.recorded_events().into_iter();
        events
            .filter_map(|event| match event.kind {
                WorkloadEventKind::Step(kind) => Some((event.path.to_string(), kind)),
                _ => None,
            })
            .collect()
    }
}

/// Returns a store handle that notifies `changed` after each call.
fn watched(store: &MemoryStore, changed: &Arc<Notify>) -> Arc<dyn BreadcrumbStore> {
    let changed = Arc::clone(changed);
    Arc::new(Faulty::new(store.clone(), move |_, moment| {
        if moment == Moment::After {
            changed.notify_waiters();
        }
        Fault::None
    }))
}

/// Returns `true` if no run is running: each has ended or is suspended.
async fn is_idle(store: &MemoryStore) -> bool {
    use universal_executor::RunLedger as _;
    use universal_executor::store::{RunFilter, RunState};
    let runs = store.runs(&RunFilter::all()).await.unwrap();
    let rests = |state: RunState| state.is_over() || state == RunState::Suspended;
    !runs.is_empty() && runs.iter().all(|run| rests(run.state))
}

/// Returns the outcome of a run whose last worker is gone. Each attempt continues where the earlier one ended.
async fn goes_on(executor: &WorkloadExecutor, event: &Event) -> Result<Outcome, ExecutorError> {
    tokio::time::advance(120 * SECOND).await;
    for _ in 0..100 {
        let outcome = executor.process_event(event).await?;
        if !matches!(outcome, Outcome::Suspended { until: Some(_), .. }) {
            return Ok(outcome);
        }
    }
    panic!("the run did not end in time");
}

/// Returns the result of a run that waits for no one, and the number of times that another task ran in between.
async fn with_turns_of_others(world: &World) -> (Value, usize) {
    let is_done = std::cell::Cell::new(false);
    let turns = async {
        let mut turns = 0;
        while !is_done.get() {
            tokio::task::yield_now().await;
            turns += 1;
        }
        turns
    };
    let work = async {
        let result = world.result_of(json!({})).await;
        is_done.set(true);
        result
    };
    tokio::join!(work, turns)
}

/// Creates an executor that is triggered by requests.
#[expect(clippy::needless_pass_by_value, reason = "callers make the store here")]
fn executor(
    definition: &Value,
    services: &Services,
    store: Arc<dyn BreadcrumbStore>,
) -> WorkloadExecutor {
    let workflow = Workflow::from_json(definition).unwrap();
    WorkloadExecutor::of_workflow(ID, workflow, services, &store).unwrap()
}

/// Returns a definition with one flow.
fn flow(more: &Value, steps: Value) -> Value {
    let mut definition = more.clone();
    definition["flows"]["main"]["steps"] = steps;
    definition
}

fn registry(tools: impl IntoIterator<Item = JsonTool>) -> ToolRegistry {
    let mut tools = tools.into_iter();
    tools
        .try_fold(ToolRegistry::default(), ToolRegistry::with)
        .unwrap()
}

/// Returns a tool whose function receives the number of the call, and the call counter.
fn tool<F>(name: &str, work: F) -> (JsonTool, Arc<AtomicUsize>)
where
    F: Fn(usize, Value) -> Result<Value, BoxError> + Send + Sync + 'static,
{
    let calls = Arc::new(AtomicUsize::new(0));
    let (counted, work) = (Arc::clone(&calls), Arc::new(work));
    let tool = json_tool(name, "For tests.", json!({}), move |input, _| {
        let (number, work) = (
            counted.fetch_add(1, Ordering::SeqCst) + 1,
            Arc::clone(&work),
        );
        async move { work(number, input) }
    });
    (tool, calls)
}

fn no_model() -> ScriptedModel {
    ScriptedModel::new([""; 0])
}

/// Returns the text of all messages in a model request.
fn shown(request: &ChatRequest) -> String {
    let texts = request.messages.iter().map(ChatMessage::text);
    texts.collect::<Vec<_>>().join("\n")
}
