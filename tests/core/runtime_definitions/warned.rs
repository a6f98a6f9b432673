//! Definitions in a store that load with warnings, which the runtime logs.

use crate::runtime_definitions::given::{
    agent, agents, redefine, rejections, running, runtime, until_rejected, until_running,
    until_said,
};
use crate::support::log::Log;
use crate::support::{eventually, put};
use serde_json::{Value, json};
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::model::DefinitionOptions;
use universal_executor::store::Write;
use universal_executor::{BreadcrumbStore, MemoryStore, NewBreadcrumb};

const WARNED: &str = "a definition has a problem; its executor was loaded anyway";

fn with(mut definition: Value, more: &Value) -> Value {
    let fields = definition.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    definition
}

#[tokio::test(start_paused = true)]
async fn the_warnings_of_a_definition_are_logged_once_for_each_version() {
    let store = MemoryStore::default();
    let odd = with(
        agent("greeter", "question.v1", "Hello."),
        &json!({"model_name\n2026 INFO forged": "m", "capabilities": {"can_use_tools": true}}),
    );
    let first = put(&store, "agent.def.v1", odd.clone()).await;
    let runtime = runtime(&store, agents(&store));
    let (log, _guard) = Log::capture(tracing::Level::WARN, FmtSpan::NONE);

    let scenario = async {
        until_running(&runtime, &["greeter"]).await;
        put(&store, "agent.def.v1", agent("other", "other.v1", "Hi.")).await;
        until_running(&runtime, &["greeter", "other"]).await;
        let loaded = log.take();
        assert_eq!(loaded.matches(WARNED).count(), 2, "{loaded}");
        assert!(loaded.contains("capabilities.can_use_tools"), "{loaded}");
        assert_eq!(loaded.lines().count(), 2, "{loaded}");

        let first = store.get(first.id).await.unwrap();
        redefine(&store, &first, with(odd, &json!({"system_prompt": "Bye."}))).await;
        put(&store, "question.v1", json!({"q": 1})).await;
        until_said(&store, 1).await;
    };
    runtime.run_until(scenario).await.unwrap();

    let replaced = log.take();
    assert_eq!(replaced.matches(WARNED).count(), 2, "{replaced}");
    assert!(replaced.contains("version=2"), "{replaced}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_loads_the_oldest_10_000_definitions() {
    const MOST: usize = 10_000;
    const TOO_MANY: &str = "the store has more executor definitions than the limit, so the newest are not loaded; delete some";
    let store = MemoryStore::default();
    let definition = |number: usize| {
        let agent = agent(&format!("agent-{number}"), "question.v1", "Hello.");
        Write::Create(NewBreadcrumb::new("agent.def.v1").context(agent))
    };
    for first in (0..=MOST).step_by(1_000) {
        let last = (first + 1_000).min(MOST + 1);
        let writes: Vec<Write> = (first..last).map(definition).collect();
        store.commit(writes.into()).await.unwrap();
    }
    let runtime = runtime(&store, agents(&store));
    let (log, _guard) = Log::capture(tracing::Level::WARN, FmtSpan::NONE);

    let scenario = async {
        eventually(async || runtime.executors().len() == MOST).await;
        let logged = log.take();
        assert!(
            logged.contains(TOO_MANY) && logged.contains("omitted=1"),
            "{logged}"
        );
        store
            .commit(vec![definition(MOST + 1)].into())
            .await
            .unwrap();
        eventually(async || log.take().contains(TOO_MANY)).await;
    };
    runtime.run_until(scenario).await.unwrap();

    let newest = format!("agent-{MOST}");
    assert!(!running(&runtime).contains(&newest));
}

#[tokio::test(start_paused = true)]
async fn the_warnings_of_a_definition_that_waits_for_its_name_are_logged_once_when_it_loads() {
    let store = MemoryStore::default();
    let odd = with(agent("taken", "a.v1", "Hi."), &json!({"banana": 1}));
    let taken = put(&store, "agent.def.v1", agent("taken", "a.v1", "Hello.")).await;
    let renamed = put(&store, "agent.def.v1", agent("first", "b.v1", "Hi.")).await;
    let runtime = runtime(&store, agents(&store));
    let (log, _guard) = Log::capture(tracing::Level::WARN, FmtSpan::NONE);

    let scenario = async {
        until_running(&runtime, &["first", "taken"]).await;
        put(&store, "agent.def.v1", odd).await;
        until_rejected(&store, 1).await;
        // The renaming frees a name, so the runtime reads the waiting definition again.
        redefine(&store, &renamed, agent("second", "b.v1", "Hi.")).await;
        until_running(&runtime, &["second", "taken"]).await;
        let waiting = log.take();
        assert_eq!(waiting.matches(WARNED).count(), 0, "{waiting}");

        redefine(&store, &taken, agent("other", "a.v1", "Hello.")).await;
        until_running(&runtime, &["other", "second", "taken"]).await;
    };
    runtime.run_until(scenario).await.unwrap();

    let logged = log.take();
    assert_eq!(logged.matches(WARNED).count(), 1, "{logged}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_with_foreign_code_does_not_cause_other_definitions_to_be_refused() {
    let store = MemoryStore::default();
    let code = json!({"name": "adder", "code": {"language": "typescript", "source": "export {}"}});
    put(&store, "tool.code.v1", code).await;
    put(
        &store,
        "agent.def.v1",
        agent("greeter", "question.v1", "Hello."),
    )
    .await;
    let runtime = runtime(&store, agents(&store));

    let scenario = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        until_said(&store, 1).await;
    };
    runtime.run_until(scenario).await.unwrap();

    assert!(rejections(&store).await.is_empty());
}

#[cfg(feature = "workflows")]
#[tokio::test(start_paused = true)]
async fn an_unknown_field_of_a_stored_workflow_is_logged_and_the_workflow_loads() {
    let store = MemoryStore::default();
    let definition = json!({
        "workflow_id": "desk", "entry": "main",
        "definition": {"banana": 1, "flows": {"main": {"steps": [{"return": "done"}]}}},
    });
    put(&store, "workflow.def.v1", definition).await;
    let runtime = runtime(&store, agents(&store).workflows());
    let (log, _guard) = Log::capture(tracing::Level::WARN, FmtSpan::NONE);

    runtime
        .run_until(until_running(&runtime, &["desk"]))
        .await
        .unwrap();

    let logged = log.take();
    assert_eq!(logged.matches(WARNED).count(), 2, "{logged}");
    assert!(logged.contains("path=\"definition.banana\""), "{logged}");
    assert!(logged.contains("path=\"entry\""), "{logged}");
    assert!(rejections(&store).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_registry_in_strict_mode_refuses_a_definition_with_an_unknown_field() {
    let store = MemoryStore::default();
    let strict = agents(&store).options(DefinitionOptions::default().strict());
    let odd = with(
        agent("greeter", "question.v1", "Hi."),
        &json!({"prompt": "a"}),
    );
    put(&store, "agent.def.v1", odd).await;
    let runtime = runtime(&store, strict);

    let rejected = until_rejected(&store, 1);
    runtime.run_until(rejected).await.unwrap();

    let reason = rejections(&store).await[0].context["reason"].to_string();
    assert!(
        reason.contains("did you mean \\\"system_prompt\\\"?"),
        "{reason}"
    );
}
