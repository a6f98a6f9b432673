//! Answers, control orders and timeouts that reach a flow while one of its steps runs.

use super::*;
use async_trait::async_trait;
use futures::StreamExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};
use universal_executor::source::{Deliveries, SourceError};
use universal_executor::{Delivery, EventSource};

/// A timeout that no passing test reaches. The tool `slow` takes longer.
const LONG: Duration = Duration::from_secs(300);

/// Longer than the interval in which a flow polls the store for answers and orders.
const POLLED: Duration = Duration::from_secs(15);

/// Returns the tool `slow`, which reports its input at its start and ends once it has a permit.
fn slow(gate: &Arc<Semaphore>) -> (JsonTool, mpsc::Receiver<Value>) {
    let (starts, started) = mpsc::channel(8);
    let gate = Arc::clone(gate);
    let tool = json_tool("slow", "For tests.", json!({}), move |input, _| {
        let gate = Arc::clone(&gate);
        starts.try_send(input).unwrap();
        async move {
            gate.acquire().await?.forget();
            Ok(json!("done"))
        }
    });
    (tool.timeout(2 * LONG), started)
}

/// Waits until the store has at least `many` breadcrumbs of a schema, and returns them.
async fn written(store: &MemoryStore, schema: &str, many: usize) -> Vec<Arc<Breadcrumb>> {
    let wait = async {
        let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
        loop {
            let found = store.recent(schema, 10).await.unwrap();
            if found.len() >= many {
                return found;
            }
            drop(events.next().await.unwrap().unwrap());
        }
    };
    timeout(LONG, wait).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_approval_expires_in_time_while_another_step_runs() {
    let gate = Arc::new(Semaphore::new(0));
    let (slow, mut started) = slow(&gate);
    let (pay, paid) = tool("pay", |_, input| Ok(input));
    let pay = pay.needs_approval(Approval::always().expires_in(60 * SECOND));
    let notes = json!([{"emit": {"schema_name": "expired.v1"}}]);
    let steps = json!([{"parallel": [
        {"steps": [{"try": [{"tool": "pay"}], "on_failure": notes}]},
        {"steps": [{"tool": "slow"}]},
    ]}]);
    let definition = flow(&json!({"tools": {"pay": {}, "slow": {}}}), steps);
    let world = World::new(&definition, registry([pay, slow]), no_model());
    let running = Runtime::builder(world.store.events()).executor(world.executor.clone());
    let running = running.start().await.unwrap();
    let asked = Instant::now();
    world.request(json!({})).await;
    started.recv().await.unwrap();

    written(&world.store, "expired.v1", 1).await;

    let took = asked.elapsed();
    assert!((60 * SECOND..62 * SECOND).contains(&took), "{took:?}");
    // The other step still runs.
    assert_eq!(world.store.latest(RESULT).await.unwrap(), None);
    gate.add_permits(1);
    let results = written(&world.store, RESULT, 1).await;
    assert_eq!(results[0].context["status"], "success", "{results:?}");
    assert_eq!(paid.load(Ordering::SeqCst), 0);
    running.stop().await.unwrap();
}

/// A store's events for one of two workers that share them. An event with the tag `half:1` goes to the second worker, and any
/// other event to the first worker.
struct Half {
    store: MemoryStore,
    is_second: bool,
}

#[async_trait]
impl EventSource for Half {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let is_second = self.is_second;
        let is_delivered_here = move |delivered: &Result<Delivery, SourceError>| {
            let is_here = match delivered {
                Ok(delivery) => delivery.event.tags.contains(&"half:1".to_owned()) == is_second,
                Err(_) => true,
            };
            std::future::ready(is_here)
        };
        let deliveries = self.store.events().subscribe(from).await?;
        Ok(deliveries.wrap(|deliveries| deliveries.filter(is_delivered_here)))
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// Returns a flow that waits for the payment of its order and writes a note, while the tool `slow` runs.
fn paid_order() -> Value {
    let is_of_order = json!([{"path": "$.order", "op": "eq", "value": "${input.order}"}]);
    let steps = json!([{"parallel": [
        {"steps": [
            {"wait_for": {"schema_name": "paid.v1", "context_match": is_of_order}},
            {"emit": {"schema_name": "seen.v1", "context": {"order": "${input.order}"}}},
        ]},
        {"steps": [{"tool": "slow", "input": {"order": "${input.order}"}}]},
    ]}]);
    flow(&json!({"tools": {"slow": {}}}), steps)
}

#[tokio::test(start_paused = true)]
async fn two_workers_that_share_a_source_both_see_the_answers_to_their_running_flows() {
    let (store, gate) = (MemoryStore::default(), Arc::new(Semaphore::new(0)));
    let mut workers = Vec::new();
    for is_second in [false, true] {
        let (slow, started) = slow(&gate);
        let services = Services::new().tool(slow).unwrap();
        let source = Half {
            store: store.clone(),
            is_second,
        };
        let worker = Runtime::builder(source)
            .concurrency(1)
            .executor(executor(&paid_order(), &services, Arc::new(store.clone())))
            .start();
        workers.push((worker.await.unwrap(), started));
    }
    for order in [0, 1] {
        let request = json!({"workflow": ID, "input": {"order": order}});
        let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
        let request = request.tag(format!("half:{order}"));
        store.create(request).await.unwrap();
    }
    let mut orders = Vec::new();
    for (_, started) in &mut workers {
        let input = timeout(LONG, started.recv()).await.unwrap().unwrap();
        orders.push(input["order"].clone());
    }

    let asked = Instant::now();
    // Each payment's event goes to the worker whose flow does not wait for it.
    for (order, half) in orders.iter().zip(["half:1", "half:0"]) {
        let paid = NewBreadcrumb::new("paid.v1").tag(half);
        let paid = paid.context(json!({"order": order}));
        store.create(paid).await.unwrap();
    }
    let seen = written(&store, "seen.v1", 2).await;

    assert!(asked.elapsed() < POLLED, "{:?}", asked.elapsed());
    assert_eq!(store.latest(RESULT).await.unwrap(), None);
    let seen = seen.iter().map(|seen| seen.context["order"].clone());
    let mut seen: Vec<_> = seen.collect();
    seen.sort_by_key(Value::to_string);
    assert_eq!(seen, [0, 1]);
    gate.add_permits(2);
    for result in written(&store, RESULT, 2).await {
        assert_eq!(result.context["status"], "success", "{result:?}");
    }
    for (worker, _) in workers {
        worker.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_flow_is_cancelled_by_an_order_while_its_worker_drains() {
    let (slow, mut started) = slow(&Arc::new(Semaphore::new(0)));
    let definition = flow(&json!({"tools": {"slow": {}}}), json!([{"tool": "slow"}]));
    let world = World::new(&definition, registry([slow]), no_model());
    let runtime = Runtime::builder(world.store.events())
        .start_at(StartAt::Beginning)
        .executor(world.executor.clone())
        .drain_timeout(LONG)
        .build()
        .unwrap();
    let request = world.request(json!({})).await;

    let orders = async {
        // The paused clock moves once the step runs and the drain has started.
        tokio::time::sleep(SECOND).await;
        let problems = runtime.health().problems;
        assert!(
            problems.contains(&"the runtime is stopping".to_owned()),
            "{problems:?}"
        );
        world.orders(Control::Cancel, &request).await;
        Instant::now()
    };
    let starts = async {
        started.recv().await.unwrap();
    };
    let (report, ordered) = tokio::join!(runtime.run_until(starts), orders);

    assert!(ordered.elapsed() < POLLED, "{:?}", ordered.elapsed());
    assert_eq!(world.result().await["status"], "cancelled");
    assert_eq!(report.unwrap().responded, 1);
}
