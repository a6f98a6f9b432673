//! Executors from definitions, and the triggers that were committed during their downtime.

use crate::runtime_definitions::given::{Silent, agent, agents, said, until_running, until_said};
use crate::support::{Probe, all, eventually, put};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::{BreadcrumbStoreExt as _, MemoryStore, Runtime};

const SECOND: Duration = Duration::from_secs(1);

/// Creates a runtime without events that sweeps the store every ten seconds.
fn sweeping(store: &MemoryStore, answers: &Arc<Probe>) -> Runtime {
    Runtime::builder(Silent)
        .executor(Arc::clone(answers))
        .definitions(agents(store))
        .reconcile_every(10 * SECOND)
        .build()
        .unwrap()
}

fn answers(store: &MemoryStore) -> Arc<Probe> {
    Probe::on("message.v1", "answers", store).shared()
}

async fn answered(store: &MemoryStore, n: usize) {
    eventually(async || all(store, "answer.v1").await.len() >= n).await;
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_was_removed_and_returns_continues_at_its_position() {
    let store = MemoryStore::default();
    let answers = answers(&store);
    let runtime = sweeping(&store, &answers);
    let scenario = async {
        let definition = put(
            &store,
            StoredDefinitions::AGENT,
            agent("a", "message.v1", "hi"),
        )
        .await;
        until_running(&runtime, &["a", "answers"]).await;
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
        sleep(60 * SECOND).await;
        store.delete(definition.id).await.unwrap();
        until_running(&runtime, &["answers"]).await;
        for n in 2..=5 {
            put(&store, "message.v1", json!({})).await;
            answered(&store, n).await;
            sleep(200 * SECOND).await;
        }
        assert_eq!(said(&store).await.len(), 1);
        put(
            &store,
            StoredDefinitions::AGENT,
            agent("a", "message.v1", "hi"),
        )
        .await;
        until_said(&store, 5).await;
        sleep(60 * SECOND).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await.len(), 5);
    assert_eq!(answers.executed(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_new_definition_does_not_answer_the_triggers_of_a_downtime_before_it() {
    let store = MemoryStore::default();
    let answers = answers(&store);
    let first = async {
        put(&store, "message.v1", json!({})).await;
        answered(&store, 1).await;
        sleep(60 * SECOND).await;
    };
    sweeping(&store, &answers).run_until(first).await.unwrap();
    for _ in 0..5 {
        put(&store, "message.v1", json!({})).await;
        tokio::time::advance(3_600 * SECOND).await;
    }
    put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "hi"),
    )
    .await;
    let second = async {
        answered(&store, 6).await;
        sleep(60 * SECOND).await;
        assert_eq!(said(&store).await.len(), 0);
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
        answered(&store, 7).await;
    };

    sweeping(&store, &answers).run_until(second).await.unwrap();

    assert_eq!((said(&store).await.len(), answers.executed()), (1, 7));
}
