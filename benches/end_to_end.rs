//! Time from a committed trigger to its committed response on the memory store. Each run has one trigger and three sources. The
//! bench compares the runtime with direct calls of `process_event` for every event of the same source.
//!
//! The direct calls have no queue, no retries, no leases for other workers and no concurrency. The difference is the cost of these
//! features. With 1,000 executors, each trigger matches one executor, which `SubscriptionIndex` finds.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

mod support;

use futures::StreamExt as _;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use universal_executor::source::StartAt;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, EventSource as _, ExecutionContext,
    MemoryStore, NewBreadcrumb, Response, Route, Runtime, Subscription, SubscriptionIndex,
    Subscriptions, UniversalExecutor, async_trait,
};

const ROUNDS: usize = 8;
const EVENTS: usize = 2_000;
const TRIGGER: &str = "tool.request.v1";
const SOURCES: [&str; 3] = ["page.v1", "note.v1", "catalog.v1"];

fn main() {
    let events = if support::is_quick() { 20 } else { EVENTS };
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut by_hand_1 = tokio.block_on(Side::new(1));
    let mut runtime_1 = tokio.block_on(Side::new(1));
    let mut by_hand_1000 = tokio.block_on(Side::new(1_000));
    let mut runtime_1000 = tokio.block_on(Side::new(1_000));

    let times = support::compare(
        &format!("{events} triggers to their responses"),
        ROUNDS,
        1,
        &mut [
            ("by hand, 1 executor", &mut || {
                tokio.block_on(by_hand_1.by_hand(events));
            }),
            ("runtime, 1 executor", &mut || {
                tokio.block_on(runtime_1.by_runtime(events));
            }),
            ("by hand, 1,000 executors", &mut || {
                tokio.block_on(by_hand_1000.by_hand(events));
            }),
            ("runtime, 1,000 executors", &mut || {
                tokio.block_on(runtime_1000.by_runtime(events));
            }),
        ],
    );
    let each = |time: f64| time / events as f64 / 1_000.0;
    if let [hand_1, runtime_1, hand_1000, runtime_1000] = times[..] {
        for (executors, hand, runtime) in [
            ("1 executor", hand_1, runtime_1),
            ("1,000 executors", hand_1000, runtime_1000),
        ] {
            println!(
                "  {executors}: {:.0} responses a second; {:.2} us each, {:.2} us above by hand ({:.2}x)",
                1e6 / each(runtime),
                each(runtime),
                each(runtime - hand),
                runtime / hand,
            );
        }
    }
}

/// A set of executors with a separate store.
struct Side {
    store: MemoryStore,
    executors: Vec<Arc<Echo>>,
    index: SubscriptionIndex,
    done: Arc<Done>,
    runtime: Runtime,
}

/// Count of the responses, with a target.
#[derive(Default)]
struct Done {
    count: AtomicUsize,
    target: AtomicUsize,
    reached: Notify,
}

impl Side {
    async fn new(executors: usize) -> Self {
        let store = MemoryStore::default();
        for source in SOURCES {
            let context = json!({"text": "something to work with", "number": 1});
            store
                .create(NewBreadcrumb::new(source).context(context))
                .await
                .unwrap();
        }
        let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
        let done = Arc::<Done>::default();
        let executors: Vec<Arc<Echo>> = (0..executors)
            .map(|number| Arc::new(Echo::new(number, &shared, &done)))
            .collect();
        let mut index = SubscriptionIndex::new();
        for executor in &executors {
            index.insert(executor.id(), executor.subscriptions());
        }
        let runtime = Runtime::builder(store.events())
            .executors(executors.iter().map(|echo| Arc::clone(echo) as Arc<_>))
            .build()
            .unwrap();
        Self {
            store,
            executors,
            index,
            done,
            runtime,
        }
    }

    async fn by_hand(&mut self, events: usize) {
        let by_id: HashMap<&str, &Arc<Echo>> = self
            .executors
            .iter()
            .map(|echo| (echo.id(), echo))
            .collect();
        let mut source = self.store.events().subscribe(StartAt::Now).await.unwrap();
        self.ask(events).await;
        let mut answered = 0;
        while answered < events {
            let delivery = source.next().await.unwrap().unwrap();
            for (id, route) in self.index.matching(&delivery.event) {
                if let Route::Trigger { .. } = route {
                    let executor = by_id.get(&*id).unwrap();
                    executor.process_event(&delivery.event).await.unwrap();
                    answered += 1;
                }
            }
            delivery.ack().await.unwrap();
        }
    }

    async fn by_runtime(&mut self, events: usize) {
        let target = self.done.count.load(Ordering::Relaxed) + events;
        self.done.target.store(target, Ordering::Relaxed);
        let work = async {
            self.ask(events).await;
            self.done.reached.notified().await;
        };
        let report = self.runtime.run_until(work).await.unwrap();
        assert_eq!(report.responded as usize, events, "{report:?}");
    }

    async fn ask(&self, events: usize) {
        for number in 0..events {
            let tool = format!("tool-{}", number % self.executors.len());
            let request =
                NewBreadcrumb::new(TRIGGER).context(json!({"tool": tool, "input": number}));
            self.store.create(request).await.unwrap();
        }
    }
}

struct Echo {
    id: String,
    store: Arc<dyn BreadcrumbStore>,
    subscriptions: Subscriptions,
    done: Arc<Done>,
}

impl Echo {
    fn new(number: usize, store: &Arc<dyn BreadcrumbStore>, done: &Arc<Done>) -> Self {
        let id = format!("tool-{number}");
        let trigger = Subscription::trigger(TRIGGER).matching("$.tool", "eq", id.as_str());
        let sources = SOURCES.map(Subscription::context);
        Self {
            id,
            store: Arc::clone(store),
            subscriptions: Subscriptions::new([trigger].into_iter().chain(sources)).unwrap(),
            done: Arc::clone(done),
        }
    }
}

#[async_trait]
impl UniversalExecutor for Echo {
    fn id(&self) -> &str {
        &self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"sources": context.sources().len()}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let count = self.done.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.done.target.load(Ordering::Relaxed) {
            self.done.reached.notify_one();
        }
        Ok(Response::create(
            NewBreadcrumb::new("tool.response.v1").context(output),
        ))
    }
}
