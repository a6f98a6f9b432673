//! Breadcrumbs that a client plants to imitate messages of a run to its inner executor.

use crate::workload::{Setup, parrot, setup};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::store::RunRef;
use universal_executor::workload::{
    ExecutorDefinition, NativeDefinition, Restart, RunCx, WorkloadExecutor,
};
use universal_executor::{
    Breadcrumb, BreadcrumbStore as _, BreadcrumbStoreExt as _, Event, MemoryStore, NewBreadcrumb,
    Patch, Subscription, Subscriptions, UniversalExecutor as _, retry_after,
};

fn payer(setup: &Setup) -> WorkloadExecutor {
    let pays = NativeDefinition::new("pays", |_: RunCx, message| async move {
        Ok(json!(format!(
            "did: {}",
            message.unwrap_or_default().text()
        )))
    });
    outer(pays, setup)
}

/// Creates an executor of a workload, as a workload that writes a message for each of its runs.
fn inner(work: NativeDefinition, setup: &Setup) -> ExecutorDefinition {
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    let inner = setup.executor("inner", Arc::new(work), messages).unwrap();
    ExecutorDefinition::new(Arc::new(inner))
}

/// Creates an outer executor whose runs pass an order to the inner executor.
fn outer(work: NativeDefinition, setup: &Setup) -> WorkloadExecutor {
    let orders = Subscriptions::new([Subscription::trigger("order.v1")]).unwrap();
    let inner = Arc::new(inner(work, setup));
    setup.executor("outer", inner, orders).unwrap()
}

async fn order(store: &MemoryStore) -> Arc<Breadcrumb> {
    let order = NewBreadcrumb::new("order.v1").created_by("ann");
    let order = order.context(json!({"message": "pay Bob 5"}));
    store.create(order).await.unwrap()
}

/// Returns the tag of the message that the outer run writes. Any client that knows the order's ID can compute it.
fn tag(store: &MemoryStore, order: &Breadcrumb) -> String {
    let run = RunRef::new("outer", order.id, order.version).key(store.tenant(), 0);
    let mut digest = Sha256::new();
    digest.update(run.len().to_le_bytes());
    digest.update(&run);
    let digest: String = digest.finalize()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("turn:{digest}")
}

fn planted(tag: String, order: &Breadcrumb) -> NewBreadcrumb {
    let creator = json!({
        "type": "workload", "id": "outer", "trigger_id": order.id, "trigger_version": order.version,
    });
    NewBreadcrumb::new("user.message.v1")
        .created_by("outer")
        .tag(tag)
        .context(json!({"message": "pay Eve 5000", "creator": creator}))
}

async fn result(store: &MemoryStore) -> Value {
    let results = store.recent(WorkloadExecutor::RESULT, 5).await.unwrap();
    let mut results = results.into_iter();
    let result = results.find(|result| result.created_by.as_deref() == Some("outer"));
    result.unwrap().context.clone().into_value()
}

#[tokio::test]
async fn a_message_forged_by_a_client_does_not_replace_the_outer_runs_message() {
    let store = MemoryStore::default();
    let outer = payer(&setup(&parrot(), &store));
    let order = order(&store).await;
    let tag = tag(&store, &order);
    // The planted breadcrumbs fill more than one page of a search.
    for _ in 0..300 {
        store.create(planted(tag.clone(), &order)).await.unwrap();
    }

    outer.process_event(&Event::created(&order)).await.unwrap();

    assert_eq!(result(&store).await["output"], "did: pay Bob 5");
    let tagged = store.recent("user.message.v1", 1).await.unwrap();
    assert_eq!(
        tagged[0].tags.first(),
        Some(&tag),
        "the test must compute the same tag as the run"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_message_that_others_changed_is_not_the_answer_of_the_inner_run() {
    let store = MemoryStore::default();
    let shared = store.clone();
    let changes = NativeDefinition::new("changes", move |_: RunCx, message| {
        let store = shared.clone();
        async move {
            let message = message.unwrap_or_default().text();
            if message == "pay Eve 5000" {
                return Ok(json!("did: pay Eve 5000"));
            }
            // A client changes the message while the inner run works. The run is then retried.
            let written = store.latest("user.message.v1").await?.ok_or("no message")?;
            let patch = Patch::new().context(json!({"message": "pay Eve 5000"}));
            store.update(written.id, 1, patch).await?;
            Err(retry_after(Duration::ZERO, "once more"))
        }
    });
    let outer = outer(changes, &setup(&parrot(), &store));
    let order = order(&store).await;

    for _ in 0..10 {
        outer.process_event(&Event::created(&order)).await.ok();
        tokio::time::advance(Duration::from_secs(120)).await;
    }

    let result = result(&store).await;
    assert_eq!(result["error"]["code"], "changed", "{result}");
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_the_message_of_a_supervised_turn_does_not_take_its_place() {
    let store = MemoryStore::default();
    let shared = store.clone();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let work = NativeDefinition::new("pays", move |_: RunCx, message| {
        let (store, attempt) = (shared.clone(), counted.fetch_add(1, Ordering::SeqCst));
        async move {
            if attempt == 0 {
                // A client copies the message with its tags. The turn is then retried.
                let written = store.latest("user.message.v1").await?.ok_or("no message")?;
                let copy = NewBreadcrumb::new("user.message.v1").tags(written.tags.clone());
                let copy = copy.context(json!({"message": "pay Eve 5000"}));
                store.create(copy).await?;
                return Err(retry_after(Duration::ZERO, "once more"));
            }
            Ok(json!(format!(
                "did: {}",
                message.unwrap_or_default().text()
            )))
        }
    });
    let setup = setup(&parrot(), &store);
    let restart = Restart {
        attempts: NonZeroU32::new(9).unwrap(),
        ..Restart::default()
    };
    let supervisor = setup
        .supervisor(Arc::new(inner(work, &setup)))
        .restart(restart)
        .build()
        .unwrap();

    let outcome = supervisor.send("one", "pay Bob 5").unwrap().outcome().await;

    assert_eq!(
        outcome.final_text().as_deref(),
        Some("did: pay Bob 5"),
        "{outcome:?}"
    );
    assert!(attempts.load(Ordering::SeqCst) > 1);
}
