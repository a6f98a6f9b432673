//! Heap allocations of one event on the memory store: one trigger and three sources, from the event to the committed
//! response.
//!
//! The bench measures `process_event`, and a `Runtime` from the commit of the trigger to the commit of the response. The counts of
//! one build hardly differ between runs and machines, so a changed count indicates a changed program.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

#[path = "support/figures.rs"]
mod figures;
#[path = "support/quick.rs"]
mod quick;

use allocation_counter::AllocationInfo;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext,
    MemoryStore, NewBreadcrumb, Outcome, Response, Runtime, Subscription, Subscriptions,
    UniversalExecutor, async_trait,
};

const EVENTS: usize = 2_000;
const TRIGGER: &str = "tool.request.v1";
const SOURCES: [&str; 3] = ["page.v1", "note.v1", "catalog.v1"];

fn main() {
    let events = if quick::is_quick() { 20 } else { EVENTS };
    let only = std::env::args().find(|word| ["process_event", "runtime"].contains(&word.as_str()));
    let measures = |side: &str| only.as_deref().is_none_or(|only| only == side);
    println!("heap allocations of one event with three sources, {events} events");
    if measures("process_event") {
        print("process_event", by_hand(events), events);
    }
    if measures("runtime") {
        print("runtime", by_runtime(events), events);
    }
}

fn print(side: &str, info: AllocationInfo, events: usize) {
    let each = |total: u64| total as f64 / events as f64;
    let (count, bytes) = (each(info.count_total), each(info.bytes_total));
    println!("  {side:<16} {count:>8.1} allocations {bytes:>10.0} bytes");
    figures::figure(&format!("{side}/allocations"), count, "allocations");
    figures::figure(&format!("{side}/bytes"), bytes, "bytes");
}

fn by_hand(events: usize) -> AllocationInfo {
    let tokio = Builder::new_current_thread().enable_time().build().unwrap();
    let tool = tokio.block_on(Tool::new());
    let run = |events| {
        let triggers: Vec<Event> = tokio.block_on(async {
            let triggers = tool.post(events).await;
            triggers.iter().map(|one| Event::created(one)).collect()
        });
        allocation_counter::measure(|| {
            for event in &triggers {
                let outcome = tokio.block_on(tool.process_event(event)).unwrap();
                assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
            }
        })
    };
    run(events);
    run(events)
}

fn by_runtime(events: usize) -> AllocationInfo {
    let tokio = Builder::new_current_thread().enable_time().build().unwrap();
    let tool = Arc::new(tokio.block_on(Tool::new()));
    let runtime = Runtime::builder(tool.store.events())
        .executor(Arc::clone(&tool))
        .build()
        .unwrap();
    let run = |events| {
        let work = async {
            tool.left.store(events, Ordering::Relaxed);
            tool.post(events).await;
            tool.finished.notified().await;
        };
        let report = tokio.block_on(runtime.run_until(work)).unwrap();
        assert_eq!(report.responded as usize, events, "{report:?}");
    };
    run(events);
    allocation_counter::measure(|| run(events))
}

/// An executor that responds with the number of its sources.
struct Tool {
    store: MemoryStore,
    subscriptions: Subscriptions,
    /// The number of responses until `finished`.
    left: AtomicUsize,
    finished: Notify,
}

impl Tool {
    async fn new() -> Self {
        let store = MemoryStore::default();
        for source in SOURCES {
            let context = json!({"text": "something to work with", "number": 1});
            store
                .create(NewBreadcrumb::new(source).context(context))
                .await
                .unwrap();
        }
        let trigger = Subscription::trigger(TRIGGER).matching("$.tool", "eq", "echo");
        let sources = SOURCES.map(Subscription::context);
        Self {
            store,
            subscriptions: Subscriptions::new([trigger].into_iter().chain(sources)).unwrap(),
            left: AtomicUsize::new(0),
            finished: Notify::new(),
        }
    }

    async fn post(&self, triggers: usize) -> Vec<Arc<Breadcrumb>> {
        let mut posted = Vec::with_capacity(triggers);
        for number in 0..triggers {
            let context = json!({"tool": "echo", "input": number});
            let trigger = NewBreadcrumb::new(TRIGGER).context(context);
            posted.push(self.store.create(trigger).await.unwrap());
        }
        posted
    }
}

#[async_trait]
impl UniversalExecutor for Tool {
    fn id(&self) -> &str {
        "echo"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"sources": context.sources().len()}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.finished.notify_one();
        }
        Ok(Response::create(
            NewBreadcrumb::new("tool.response.v1").context(output),
        ))
    }
}
