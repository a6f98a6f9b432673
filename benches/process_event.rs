//! Cost of one event on the memory store: one trigger and three sources among 10,000 breadcrumbs of 350 bytes.
//!
//! There are three sides: the same reads and writes as direct calls of the store, `process_event`, and `process_event` with a deep
//! copy of every fetched context. The last one shows the savings of sharing JSON between store and executor.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot be set up has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

mod support;

use serde_json::{Value, json};
use std::hint::black_box;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use universal_executor::store::{
    Capabilities, Claim, Claimed, Commit, Committed, Query, RunEnd, RunRef, Scored, StoreError,
    StoreId, VectorQuery, Write,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Event,
    ExecutionContext, Json, MemoryStore, NewBreadcrumb, Outcome, Response, RunLedger, Selector,
    Subscription, Subscriptions, UniversalExecutor, async_trait,
};

const ROUNDS: usize = 12;
const ITERATIONS: u32 = 400;
const BREADCRUMBS: usize = 10_000;
const SCHEMAS: [&str; 3] = ["browser.page.context.v1", "note.v1", "tool.catalog.v1"];
const TRIGGER: &str = "user.message.v1";

fn main() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let store = MemoryStore::default();
    runtime.block_on(fill(&store));
    let shared = Probe {
        id: "shared",
        store: store.clone(),
        subscriptions: subscriptions(),
    };
    let copying = Probe {
        id: "copying",
        store: Copying(store.clone()),
        subscriptions: subscriptions(),
    };
    let by_hand = ByHand {
        store: store.clone(),
        queries: queries(),
    };
    let mut triggers = [(); 3].map(|()| runtime.block_on(triggers(&store)).into_iter());
    let [hand_triggers, shared_triggers, copying_triggers] = &mut triggers;

    let times = support::compare(
        "one event with three sources",
        ROUNDS,
        ITERATIONS,
        &mut [
            ("by hand", &mut || {
                let event = hand_triggers.next().unwrap();
                runtime.block_on(by_hand.process(&event)).unwrap();
            }),
            ("process_event", &mut || {
                process(&runtime, &shared, &shared_triggers.next().unwrap())
            }),
            ("process_event, contexts cloned", &mut || {
                process(&runtime, &copying, &copying_triggers.next().unwrap());
            }),
        ],
    );
    if let [by_hand, shared, copying] = times[..] {
        println!("  above by hand: {:.2} us", (shared - by_hand) / 1_000.0);
        println!("  cloned against shared: {:.2}x", copying / shared);
    }
}

fn process(runtime: &Runtime, executor: &dyn UniversalExecutor, event: &Event) {
    let outcome = runtime.block_on(executor.process_event(event)).unwrap();
    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
}

/// Creates 10,000 breadcrumbs of three schemas, with contexts of about 350 bytes.
async fn fill(store: &MemoryStore) {
    for number in 0..BREADCRUMBS {
        let schema = SCHEMAS
            .get(number % SCHEMAS.len())
            .copied()
            .unwrap_or(TRIGGER);
        let context = json!({
            "number": number, "url": "https://example.org/a/page/with/a/path", "title": "A page with a title",
            "links": ["/one", "/two", "/three", "/four"], "seen": true, "score": 0.75,
            "author": {"name": "Ann Example", "mail": "ann@example.org", "tags": ["a", "b"]},
            "text": "Some words that a page or a note might have, long enough to be worth sharing.",
        });
        store
            .create(NewBreadcrumb::new(schema).tag("session:1").context(context))
            .await
            .unwrap();
    }
}

/// Creates one trigger for each iteration of a side.
async fn triggers(store: &MemoryStore) -> Vec<Event> {
    let mut events = Vec::new();
    for number in 0..(ROUNDS + 1) * ITERATIONS as usize {
        let message = NewBreadcrumb::new(TRIGGER)
            .tag("session:1")
            .context(json!({"message": number}));
        events.push(Event::created(&store.create(message).await.unwrap()));
    }
    events
}

fn subscriptions() -> Subscriptions {
    Subscriptions::new([
        Subscription::trigger(TRIGGER),
        Subscription::context("browser.page.context.v1").key("page"),
        Subscription::context("note.v1").key("notes").recent(20),
        Subscription::context("tool.catalog.v1").key("tools"),
    ])
    .unwrap()
}

fn queries() -> [Query; 3] {
    [
        ("browser.page.context.v1", 1),
        ("note.v1", 20),
        ("tool.catalog.v1", 1),
    ]
    .map(|(schema, limit)| Query::new(Selector::schema(schema)).limit(limit))
}

/// Direct calls of the same `get`, `search`, `claim` and `commit`.
struct ByHand {
    store: MemoryStore,
    queries: [Query; 3],
}

impl ByHand {
    async fn process(&self, event: &Event) -> Result<(), StoreError> {
        let run = RunRef::of("by-hand", event);
        let Claim::Granted(Claimed { lease, .. }) = self.store.claim(&run, None).await? else {
            return Ok(());
        };
        black_box(self.store.get(event.breadcrumb_id).await?);
        for query in &self.queries {
            black_box(self.store.search(query).await?);
        }
        let answer = NewBreadcrumb::new("answer.v1")
            .tag("session:1")
            .context(json!({"message": "seen"}));
        let commit = Commit {
            writes: vec![Write::Create(answer)],
            end: Some((lease, RunEnd::Done)),
        };
        black_box(self.store.commit(commit).await?);
        Ok(())
    }
}

/// An executor that does almost nothing, so that the bench measures the code around it.
struct Probe<S> {
    id: &'static str,
    store: S,
    subscriptions: Subscriptions,
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Probe<S> {
    fn id(&self) -> &str {
        self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        black_box((
            context.get("page"),
            context.many("notes"),
            context.get("tools"),
        ));
        Ok(json!({"message": "seen"}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new("answer.v1").context(output),
        ))
    }
}

/// A store that returns deep copies of breadcrumbs.
#[derive(Debug)]
struct Copying(MemoryStore);

#[async_trait]
impl BreadcrumbStore for Copying {
    fn tenant(&self) -> &str {
        self.0.tenant()
    }

    fn identity(&self) -> StoreId {
        self.0.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.0.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        let found = self.0.search(query).await?;
        let copies = found.iter().map(|item| {
            let mut copy = Breadcrumb::clone(item);
            copy.context = Json::from(Value::clone(&item.context));
            Arc::new(copy)
        });
        Ok(copies.collect())
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.0.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.0.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        self.0.ledger()
    }
}
