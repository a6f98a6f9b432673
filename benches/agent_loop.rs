//! Overhead of an agent run without its model and tools. A run of two turns with eight parallel tool calls in between is compared
//! with concurrent calls of the same functions.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot be set up has nothing to measure, and reports on standard output"
)]

mod support;

use futures::future::join_all;
use serde_json::{Value, json};
use std::hint::black_box;
use std::sync::Arc;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatModel, ChatRequest, ChatResponse, ModelError, Speaker,
    ToolCall,
};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::{
    BoxError, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor, async_trait,
};

const ROUNDS: usize = 20;
const ITERATIONS: u32 = 50;
const CALLS: usize = 8;

async fn add(input: Value) -> Result<Value, BoxError> {
    let number = |name| input.get(name).and_then(Value::as_i64).unwrap_or_default();
    let sum = number("a") + number("b");
    tokio::task::yield_now().await;
    Ok(json!({"sum": sum}))
}

fn input(call: usize) -> Value {
    json!({"a": call, "b": 1})
}

/// A model that requests this number of tool calls, and answers after it receives their results. It has no state, so its cost
/// is the same in each round.
struct Asking {
    calls: usize,
}

#[async_trait]
impl ChatModel for Asking {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let last = request.messages.last();
        let is_told = last.is_some_and(|last| last.speaker == Speaker::Tool);
        if is_told || self.calls == 0 {
            return Ok(ChatResponse::new("done"));
        }
        let call = |call| ToolCall::new(format!("{call}"), "add", input(call));
        Ok(ChatResponse::calling((0..self.calls).map(call).collect()))
    }
}

fn agent(store: &MemoryStore, calls: usize) -> AgentExecutor {
    let definition = json!({
        "agent_id": "adder", "tools": ["add"],
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    let tool = json_tool("add", "Adds.", json!({"type": "object"}), |input, _| {
        add(input)
    });
    let registry = ToolRegistry::default().with(tool.idempotent()).unwrap();
    let definition = AgentDefinition::from_json(&definition).unwrap();
    let (model, store) = (Arc::new(Asking { calls }), Arc::new(store.clone()));
    AgentExecutor::with_tools(definition, model, store, &registry).unwrap()
}

async fn run(store: &MemoryStore, agent: &AgentExecutor) {
    let question = NewBreadcrumb::new("question.v1").context(json!({"q": 1}));
    let question = store.create(question).await.unwrap();
    let outcome = agent.process_event(&Event::created(&question)).await;
    black_box(outcome.unwrap());
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let store = MemoryStore::default();
    let (none, some) = (agent(&store, 0), agent(&store, CALLS));
    let mut directly = || {
        let calls = (0..CALLS).map(|call| add(input(call)));
        black_box(runtime.block_on(join_all(calls)));
    };
    let mut without = || runtime.block_on(run(&store, &none));
    let mut with = || runtime.block_on(run(&store, &some));

    let times = support::compare(
        "eight tool calls of one answer",
        ROUNDS,
        ITERATIONS,
        &mut [
            ("the functions, called directly", &mut directly),
            ("a run of one turn, no calls", &mut without),
            ("a run of two turns, eight calls", &mut with),
        ],
    );

    if let [directly, without, with] = times[..] {
        let calls = CALLS as f64;
        println!(
            "  {:.1} us per tool call, including the second turn; {:.1} us of it in the function",
            (with - without) / calls / 1_000.0,
            directly / calls / 1_000.0
        );
    }
}
