//! Overhead of a turn without its work, and the memory of 10,000 idle sessions of one supervisor. The session logs are in a memory
//! store, so the printed memory includes them.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot be set up has nothing to measure, and reports on standard output"
)]

mod support;

use futures::StreamExt as _;
use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use universal_executor::model::Timestamp;
use universal_executor::workload::{
    Definition, NativeDefinition, RunCx, Supervisor, WorkloadMessage,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb, Services,
};

const SESSIONS: usize = 10_000;
const ROUNDS: usize = 20;
const ITERATIONS: u32 = 200;

fn echo() -> NativeDefinition {
    NativeDefinition::new("echo", |_, message: Option<WorkloadMessage>| async move {
        Ok(message.unwrap_or_default().content)
    })
}

fn new_supervisor() -> Supervisor {
    let builder = Supervisor::builder(Arc::new(echo()), &Services::new(), &MemoryStore::default());
    builder.build().unwrap()
}

/// Returns the resident memory of this process in bytes, or `None` if the system does not report it.
fn resident() -> Option<usize> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = pages.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4_096)
}

async fn alone(services: &Services, store: &Arc<dyn BreadcrumbStore>) {
    let message = NewBreadcrumb::new("user.message.v1");
    let message = message.first_version(BreadcrumbId::NIL, Timestamp::from_micros(0));
    let cx = RunCx::new("run", ExecutionContext::for_trigger(message));
    let mut workload = echo().instantiate(services, store).unwrap();
    black_box(workload.run(cx, Some("hi".into())).count().await);
    workload.close().await.unwrap();
}

async fn in_session(supervisor: &Supervisor, session: &str) {
    black_box(supervisor.send(session, "hi").unwrap().outcome().await);
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let services = Services::new();
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let supervisor = runtime.block_on(async { new_supervisor() });
    let mut number = 0_u32;
    support::compare(
        "one turn",
        ROUNDS,
        ITERATIONS,
        &mut [
            ("a workload alone", &mut || {
                runtime.block_on(alone(&services, &store))
            }),
            ("in a session of its own", &mut || {
                number += 1;
                runtime.block_on(in_session(&supervisor, &format!("session-{number}")));
            }),
        ],
    );

    let sessions = if support::is_quick() { 100 } else { SESSIONS };
    let supervisor = runtime.block_on(async { new_supervisor() });
    let before = resident();
    runtime.block_on(async {
        for number in 0..sessions {
            in_session(&supervisor, &format!("session-{number}")).await;
        }
    });
    assert_eq!(supervisor.health().active, 0);
    match (before, resident()) {
        (Some(before), Some(after)) => {
            let each = after.saturating_sub(before) / sessions;
            println!(
                "{sessions} idle sessions of one turn: {each} bytes each, logs and index included"
            );
        }
        (_, _) => {
            println!("{sessions} idle sessions: this system does not say what memory they take")
        }
    }
}
