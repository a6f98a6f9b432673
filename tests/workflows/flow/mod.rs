//! Flows that run: what their steps do, who is asked, what a restart repeats, and what is told meanwhile.

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

/// The schema of the answer to a request.
const RESULT: &str = WorkloadExecutor::REQUEST_RESULT;

/// A workflow over some tools and a model, on a store of its own, and what was told of its runs.
struct World {
    store: MemoryStore,
    /// Told of all that is done by way of a [`watched`] store.
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

    /// The same world after its definition was replaced.
    fn with_definition(self, definition: &Value) -> Self {
        let store = watched(&self.store, &self.changed);
        Self {
            executor: Arc::new(executor(definition, &Services::new(), store)),
            ..self
        }
    }

    /// Somebody asks for a run.
    async fn asks(&self, input: Value) -> Arc<Breadcrumb> {
        let request = json!({"workflow": ID, "input": input});
        let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
        self.store.create(request.tag("request:q-1")).await.unwrap()
    }

    /// Writes an order to the run of a request.
    async fn orders(&self, control: Control, request: &Breadcrumb) {
        self.store.create(control.of(request.id)).await.unwrap();
    }

    /// Writes what a person answers to the question of a ticket.
    async fn answers(&self, ticket: &str, answer: Value, by: &str) {
        let response = NewBreadcrumb::new("human.response.v1")
            .tag(format!("request:{ticket}"))
            .created_by(by)
            .context(json!({"request_id": ticket, "answer": answer}));
        self.store.create(response).await.unwrap();
    }

    /// What a run comes to that waits for nobody.
    async fn comes_to(&self, input: Value) -> Value {
        let request = self.asks(input).await;
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

    /// Lets a new process work until there are so many breadcrumbs of a schema, and gives the newest.
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
        assert!(worked.is_ok(), "nothing is done any more");
        self.store.latest(schema).await.unwrap().unwrap()
    }

    fn told(&self) -> Vec<WorkloadEvent> {
        self.events.lock().unwrap().clone()
    }

    /// What was told of the flow itself.
    fn flow_told(&self) -> Vec<(String, FlowEventKind)> {
        let told = self.told().into_iter();
        told.filter_map(|event| match event.kind {
            WorkloadEventKind::Step(kind) => Some((event.path.to_string(), kind)),
            _ => None,
        })
        .collect()
    }
}

/// A handle on a store that says what was done.
fn watched(store: &MemoryStore, changed: &Arc<Notify>) -> Arc<dyn BreadcrumbStore> {
    let changed = Arc::clone(changed);
    Arc::new(Faulty::new(store.clone(), move |_, moment| {
        if moment == Moment::After {
            changed.notify_waiters();
        }
        Fault::None
    }))
}

/// Whether no run is at work: each is over or waits.
async fn is_idle(store: &MemoryStore) -> bool {
    use universal_executor::RunLedger as _;
    use universal_executor::store::{RunFilter, RunState};
    let runs = store.runs(&RunFilter::all()).await.unwrap();
    let rests = |state: RunState| state.is_over() || state == RunState::Suspended;
    !runs.is_empty() && runs.iter().all(|run| rests(run.state))
}

/// What a run comes to whose last worker is gone, each further one going on with it where the one before has left it.
async fn goes_on(executor: &WorkloadExecutor, event: &Event) -> Result<Outcome, ExecutorError> {
    tokio::time::advance(120 * SECOND).await;
    for _ in 0..100 {
        let outcome = executor.process_event(event).await?;
        if !matches!(outcome, Outcome::Suspended { until: Some(_), .. }) {
            return Ok(outcome);
        }
    }
    panic!("the run does not end");
}

/// Returns the result of a run that waits for nobody, and how often another task of the thread had its turn meanwhile.
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
        let result = world.comes_to(json!({})).await;
        is_done.set(true);
        result
    };
    tokio::join!(work, turns)
}

/// An executor that requests trigger.
#[expect(clippy::needless_pass_by_value, reason = "callers make the store here")]
fn executor(
    definition: &Value,
    services: &Services,
    store: Arc<dyn BreadcrumbStore>,
) -> WorkloadExecutor {
    let workflow = Workflow::from_json(definition).unwrap();
    WorkloadExecutor::of_workflow(ID, workflow, services, &store).unwrap()
}

/// A definition with one flow.
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

/// A tool that is given the number of the call, and counts.
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

/// All that a model was shown.
fn shown(request: &ChatRequest) -> String {
    let texts = request.messages.iter().map(ChatMessage::text);
    texts.collect::<Vec<_>>().join("\n")
}
