//! Triggers that another program inserts with SQL in its own transactions.

use futures::StreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::source::StartAt;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, EventKind,
    EventSource, ExecutionContext, NewBreadcrumb, Response, Runtime, Subscription, Subscriptions,
    UniversalExecutor, async_trait,
};

/// Number of the program's transactions. Every third transaction is rolled back.
const TRANSACTIONS: usize = 60;

/// Number of triggers that are written through the store at the same time.
const LOAD: usize = 300;

const PATIENCE: Duration = Duration::from_secs(60);

/// A program with a table of orders in the store's database, on a separate connection.
pub(crate) trait Program {
    /// Inserts an order and a row of `ux_inbox`, then commits or rolls back.
    async fn order(&mut self, number: usize, trigger: &Value, commits: bool);

    /// Inserts a row of `ux_inbox`.
    async fn insert(&mut self, id: Option<BreadcrumbId>, breadcrumb: &str);

    /// Returns the numbers of all orders.
    async fn orders(&mut self) -> BTreeSet<usize>;

    /// Returns the refused rows with their reasons, oldest first.
    async fn refused(&mut self) -> Vec<(String, String)>;

    /// Returns the number of all rows of `ux_inbox`.
    async fn rows(&mut self) -> usize;
}

/// An executor that confirms orders.
struct Confirmer {
    subscriptions: Subscriptions,
    store: Arc<dyn BreadcrumbStore>,
}

#[async_trait]
impl UniversalExecutor for Confirmer {
    fn id(&self) -> &str {
        "confirmer"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, order: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(order.context["number"].clone())
    }

    async fn respond(&self, _: &Breadcrumb, number: Value) -> Result<Response, BoxError> {
        let confirmed = NewBreadcrumb::new("confirmed.v1").context(json!({"number": number}));
        Ok(Response::create(confirmed))
    }
}

/// Builds a runtime that confirms each order once.
pub(crate) fn runtime(
    store: &Arc<dyn BreadcrumbStore>,
    events: impl EventSource + 'static,
) -> Runtime {
    let confirmer = Confirmer {
        subscriptions: Subscriptions::new([Subscription::trigger("order.v1")]).unwrap(),
        store: Arc::clone(store),
    };
    let runtime = Runtime::builder(events).start_at(StartAt::Beginning);
    runtime.executor(confirmer).build().unwrap()
}

/// While a runtime answers other triggers, a program commits some orders with their triggers and rolls others back. Each committed
/// order is confirmed exactly once, and no rolled-back order is confirmed.
pub(crate) async fn an_order_and_its_trigger_are_committed_or_rolled_back_together<E>(
    store: Arc<dyn BreadcrumbStore>,
    events: impl Fn() -> E,
    program: &mut impl Program,
) where
    E: EventSource + 'static,
{
    let mut committed = events().subscribe(StartAt::Beginning).await.unwrap();
    let orders = async {
        for number in 0..TRANSACTIONS {
            let trigger = json!({"schema_name": "order.v1", "title": "An order", "context": {"number": number}});
            program.order(number, &trigger, number % 3 != 0).await;
        }
    };
    let load = async {
        for number in TRANSACTIONS..TRANSACTIONS + LOAD {
            let order = NewBreadcrumb::new("order.v1").context(json!({"number": number}));
            store.create(order).await.unwrap();
        }
    };
    let expected = LOAD + TRANSACTIONS - TRANSACTIONS.div_ceil(3);
    let mut confirmed = Vec::new();
    let confirmations = async {
        while confirmed.len() < expected {
            let event = committed.next().await.unwrap().unwrap().event;
            if event.schema_name.as_deref() == Some("confirmed.v1") {
                let found = store.get(event.breadcrumb_id).await.unwrap();
                confirmed.push(usize::try_from(found.context["number"].as_u64().unwrap()).unwrap());
            }
        }
    };
    let work = async {
        futures::join!(orders, load, confirmations);
    };
    let runtime = runtime(&store, events());
    let run = runtime.run_until(work);
    timeout(PATIENCE, run).await.unwrap().unwrap();

    let answers = store.recent("confirmed.v1", 1_000).await.unwrap();
    assert_eq!(answers.len(), expected);
    let orders = program.orders().await;
    let ordered: BTreeSet<usize> = confirmed
        .iter()
        .copied()
        .filter(|number| *number < TRANSACTIONS)
        .collect();
    assert_eq!(ordered, orders);
    assert_eq!(orders.len(), expected - LOAD);
    assert_eq!(program.rows().await, 0);
}

/// Invalid rows stay in the table with a reason. The rows after them become breadcrumbs in the order of the table, with the IDs of
/// their rows.
pub(crate) async fn rows_that_cannot_be_taken_in_are_refused<E: EventSource>(
    store: Arc<dyn BreadcrumbStore>,
    events: E,
    program: &mut impl Program,
) {
    let known = store
        .create(NewBreadcrumb::new("known.v1"))
        .await
        .unwrap()
        .id;
    let chosen = BreadcrumbId::unique();
    program.insert(None, r#"{"schema": "order.v1"}"#).await;
    program
        .insert(Some(known), r#"{"schema_name": "order.v1"}"#)
        .await;
    program
        .insert(
            None,
            r#"{"schema_name": "order.v1", "context": {"n": 1, "big": 1e400}}"#,
        )
        .await;
    program
        .insert(
            Some(chosen),
            r#"{"schema_name": "order.v1", "context": {"b": 1,
        "a": 2}}"#,
        )
        .await;
    for number in 0..100 {
        program
            .insert(
                None,
                &json!({"schema_name": "next.v1", "context": {"n": number}}).to_string(),
            )
            .await;
    }

    let mut delivered = events.subscribe(StartAt::Beginning).await.unwrap();
    let mut order = Vec::new();
    let wait = async {
        while order.len() < 102 {
            order.push(delivered.next().await.unwrap().unwrap().event);
        }
    };
    timeout(PATIENCE, wait).await.unwrap();

    assert_eq!(order[1].breadcrumb_id, chosen);
    let context = store.get(chosen).await.unwrap().context.clone();
    assert_eq!(context.to_string().replace(' ', ""), r#"{"b":1,"a":2}"#);
    let numbers: Vec<u64> = order[2..]
        .iter()
        .map(|event| event.context.as_ref().unwrap()["n"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    let refused = program.refused().await;
    assert_eq!(refused.len(), 3, "{refused:?}");
    let reasons = ["unknown field \"schema\"", "exists", "number out of range"];
    for ((_, reason), expected) in refused.iter().zip(reasons) {
        assert!(reason.contains(expected), "{reason}");
    }
    assert_eq!(program.rows().await, 3);
}

/// A store with room for five breadcrumbs leaves further rows in the table until it has room again.
pub(crate) async fn rows_wait_for_room<E: EventSource>(
    store: Arc<dyn BreadcrumbStore>,
    events: E,
    program: &mut impl Program,
) {
    for number in 0..7 {
        let row = json!({"schema_name": "next.v1", "context": {"n": number}});
        program.insert(None, &row.to_string()).await;
    }
    let mut delivered = events.subscribe(StartAt::Beginning).await.unwrap();
    let mut created = async |count: usize| {
        let mut created = Vec::new();
        while created.len() < count {
            let event = delivered.next().await.unwrap().unwrap().event;
            if event.kind == EventKind::Created {
                created.push(event.breadcrumb_id);
            }
        }
        created
    };

    let first = timeout(PATIENCE, created(5)).await.unwrap();
    let waiting = program.rows().await;
    for id in &first[..2] {
        store.delete(*id).await.unwrap();
    }
    timeout(PATIENCE, created(2)).await.unwrap();

    assert_eq!(waiting, 2);
    assert_eq!(program.rows().await, 0);
    assert!(program.refused().await.is_empty());
}
