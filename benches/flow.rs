//! Overhead of a flow step without its work. Flows of tools that do nothing run on a memory store and a SQLite store, which save
//! each step before the next one starts. They are compared with a flow without steps, and with the interpreter alone.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot be set up has nothing to measure, and reports on standard output"
)]

mod support;

use serde_json::{Value, json};
use std::hint::black_box;
use std::sync::Arc;
use universal_executor::store::Durability;
use universal_executor::tool::json_tool;
use universal_executor::workflow::{FlowRun, StepOutcome, Workflow};
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Services, SqliteStore,
    UniversalExecutor,
};

const ROUNDS: usize = 20;
const ITERATIONS: u32 = 20;
const STEPS: usize = 50;

fn workflow(steps: usize) -> Workflow {
    let steps = (0..steps).map(|_| json!({"tool": "nothing"}));
    let steps: Vec<Value> = steps.chain([json!({"return": 1})]).collect();
    let definition = json!({"tools": {"nothing": {}}, "flows": {"main": {"steps": steps}}});
    Workflow::from_json(&definition).unwrap()
}

fn executor(store: &(impl BreadcrumbStore + Clone + 'static), steps: usize) -> WorkloadExecutor {
    let nothing = json_tool("nothing", "Does nothing.", json!({}), |_, _| async {
        Ok(Value::Null)
    });
    let services = Services::new().tool(nothing.idempotent()).unwrap();
    WorkloadExecutor::of_workflow("bench", workflow(steps), &services, store).unwrap()
}

async fn run(executor: &WorkloadExecutor) {
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST);
    let request = request.context(json!({"workflow": "bench", "input": {"n": 1}}));
    let request = executor.store().create(request).await.unwrap();
    let outcome = executor.process_event(&Event::created(&request)).await;
    black_box(outcome.unwrap());
}

/// Runs the interpreter alone, and reports a result of each step immediately.
fn interpret(workflow: &Arc<Workflow>) {
    let (mut run, mut next) =
        FlowRun::begin(Arc::clone(workflow), "main", "run", json!({})).unwrap();
    while let Some(ready) = next.ready.pop() {
        next = run.tell(
            &ready.path,
            ready.attempt,
            StepOutcome::success(Value::Null),
        );
    }
    assert!(black_box(next.finished).is_some());
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let path =
        std::env::temp_dir().join(format!("universal-executor-flow-{}.db", std::process::id()));
    let file = SqliteStore::builder(&path)
        .durability(Durability::Normal)
        .open();
    let file = runtime.block_on(file).unwrap();
    let memory = MemoryStore::default;
    let (none, in_memory) = (executor(&memory(), 0), executor(&memory(), STEPS));
    let (none_in_file, in_file) = (executor(&file, 0), executor(&file, STEPS));
    let pure = Arc::new(workflow(STEPS));

    let times = support::compare(
        "a flow of fifty steps that do nothing",
        ROUNDS,
        ITERATIONS,
        &mut [
            ("no steps, in memory", &mut || runtime.block_on(run(&none))),
            ("interpreted, not driven", &mut || interpret(&pure)),
            ("in memory", &mut || runtime.block_on(run(&in_memory))),
            ("no steps, in a file", &mut || {
                runtime.block_on(run(&none_in_file))
            }),
            ("in a file", &mut || runtime.block_on(run(&in_file))),
        ],
    );

    if let [none, pure, in_memory, none_in_file, in_file] = times[..] {
        let each = |time: f64| time / STEPS as f64 / 1_000.0;
        println!(
            "  each step: {:.1} us interpreted, {:.1} us driven and saved in memory, {:.1} us in a file",
            each(pure),
            each(in_memory - none),
            each(in_file - none_in_file)
        );
    }
    // The file is closed when its last handle is dropped.
    drop((none_in_file, in_file));
    runtime.block_on(file.close());
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(suffix);
        drop(std::fs::remove_file(file));
    }
}
