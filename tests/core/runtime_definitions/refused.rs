//! A definition that cannot become an executor leaves the running executor in place, and is rejected once with a reason.

use crate::runtime_definitions::given::{
    agent, agents, parrot, reason, redefine, rejections, running, runtime, said, services,
    until_rejected, until_running, until_said,
};
use crate::support::{Call, Do, Probe, Shim, all, eventually, put, runs, unavailable};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::runtime::RuntimeError;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::store::{RunState, Write};
use universal_executor::tool::{Tool, ToolExecutor, json_tool};
use universal_executor::{BreadcrumbStoreExt, MemoryStore, Runtime, Services, UniversalExecutor};

/// A time in which a runtime reads all definitions several times.
const A_WHILE: Duration = Duration::from_secs(300);

/// Creates a runtime that reads all definitions every minute.
fn looking(store: &MemoryStore, definitions: StoredDefinitions) -> Runtime {
    Runtime::builder(store.events())
        .definitions(definitions)
        .build()
        .unwrap()
}

fn tool(name: &'static str) -> impl Tool + 'static {
    json_tool(name, "Says it again.", json!({}), |input, _| async move {
        Ok(input)
    })
}

fn on_message(mut definition: Value) -> Value {
    definition["subscriptions"] = json!([{"schema_name": "message.v1", "role": "trigger"}]);
    definition
}

#[test]
fn a_maker_of_a_schema_that_does_not_mark_a_definition_is_refused() {
    let store = MemoryStore::default();
    let built = |schema: &str| {
        let definitions = agents(&store).maker(schema, |_, _| Err("made nothing".into()));
        let runtime = Runtime::builder(store.events()).definitions(definitions);
        runtime.build().map(drop)
    };

    let refused = built("playbook.v1").unwrap_err();

    assert!(
        matches!(&refused, RuntimeError::NotADefinition { schema } if schema == "playbook.v1"),
        "{refused}"
    );
    for schema in ["playbook.def.v1", "tool.v2", StoredDefinitions::AGENT] {
        assert!(built(schema).is_ok(), "{schema}");
    }
}

/// Updates a valid definition to an invalid one. Returns the reason of the only rejection, after the old executor has answered a message
/// with the response schema.
async fn refused(
    store: &MemoryStore,
    runtime: Runtime,
    schema: &str,
    good: Value,
    bad: Value,
) -> String {
    let responses = async || {
        let agents = all(store, "agent.response.v1").await.len();
        let tools = all(store, ToolExecutor::RESPONSE).await.len();
        agents + tools + all(store, "answer.v1").await.len()
    };
    let mut refused = None;
    let scenario = async {
        let good = put(store, schema, good).await;
        eventually(async || !runtime.executors().is_empty()).await;
        let before = running(&runtime);
        let bad = redefine(store, &good, bad).await;
        until_rejected(store, 1).await;
        put(store, "message.v1", json!({"input": "hi"})).await;
        eventually(async || responses().await == 1).await;
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(running(&runtime), before);
        refused = Some(bad);
    };
    runtime.run_until(scenario).await.unwrap();
    let (bad, rejections) = (refused.unwrap(), rejections(store).await);
    assert_eq!(rejections.len(), 1);
    let said = &rejections[0].context;
    assert_eq!(said["definition_id"], json!(bad.id));
    assert_eq!(said["definition_version"], json!(2));
    assert_eq!(said["schema_name"], json!(schema));
    assert!(
        rejections[0]
            .tags
            .contains(&format!("definition:{}", bad.id))
    );
    reason(&rejections[0]).to_owned()
}

#[tokio::test(start_paused = true)]
async fn bad_subscriptions_are_refused() {
    let store = MemoryStore::default();
    let runtime = looking(&store, agents(&store));
    let bad =
        json!({"agent_id": "a", "subscriptions": [{"schema_name": "m.v1", "role": "tirgger"}]});

    let good = agent("a", "message.v1", "one");
    let reason = refused(&store, runtime, StoredDefinitions::AGENT, good, bad).await;

    assert!(
        reason.contains("tirgger") && reason.contains("trigger"),
        "{reason}"
    );
    assert_eq!(said(&store).await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_not_registered_is_refused() {
    let store = MemoryStore::default();
    let services = Services::new().tool(tool("echo")).unwrap();
    let definitions = StoredDefinitions::new(&store, &services).tools(["echo"]);
    let runtime = looking(&store, definitions);

    let (good, bad) = (json!({"name": "echo"}), json!({"name": "shell"}));
    let (good, bad) = (on_message(good), on_message(bad));
    let reason = refused(&store, runtime, StoredDefinitions::TOOL, good, bad).await;

    assert_eq!(
        reason,
        "no tool.v1 definition can run tool \"shell\"; add the name with StoredDefinitions::tools; listed there: echo"
    );
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_not_registered_is_refused() {
    let store = MemoryStore::default();
    let services = services().model("small", parrot());
    let definitions = StoredDefinitions::new(&store, &services).agents();
    let runtime = looking(&store, definitions);
    let mut bad = agent("a", "message.v1", "two");
    bad["model"] = json!("huge");

    let good = agent("a", "message.v1", "one");
    let reason = refused(&store, runtime, StoredDefinitions::AGENT, good, bad).await;

    assert_eq!(
        reason,
        "model \"huge\" is not registered; add it with Services::model; registered: small"
    );
    assert_eq!(said(&store).await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_model_is_refused_if_there_is_no_default_model() {
    let store = MemoryStore::default();
    let services = Services::new().model("small", parrot());
    let definitions = StoredDefinitions::new(&store, &services).agents();
    let runtime = looking(&store, definitions);
    let mut good = agent("a", "message.v1", "one");
    good["model"] = json!("small");

    let bad = agent("a", "message.v1", "two");
    let reason = refused(&store, runtime, StoredDefinitions::AGENT, good, bad).await;

    assert!(reason.contains("no default model"), "{reason}");
    assert_eq!(said(&store).await, ["one"]);
}

/// Returns definitions whose workflows become probes, unless a definition asks for a failure.
fn workflows(store: &MemoryStore) -> StoredDefinitions {
    let home = store.clone();
    agents(store).maker(StoredDefinitions::WORKFLOW, move |definition, _| {
        match definition.context.text("does") {
            Some("fail") => return Err("the third step leads nowhere".into()),
            how => assert!(how != Some("panic"), "the maker panics"),
        }
        let workflow: Arc<dyn UniversalExecutor> = Probe::on("message.v1", "flow", &home).shared();
        Ok(workflow)
    })
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_its_maker_rejects_is_refused() {
    let store = MemoryStore::default();
    let runtime = looking(&store, workflows(&store));

    let bad = json!({"does": "fail"});
    let reason = refused(&store, runtime, StoredDefinitions::WORKFLOW, json!({}), bad).await;

    assert_eq!(reason, "the third step leads nowhere");
}

#[tokio::test(start_paused = true)]
async fn a_maker_that_panics_is_survived() {
    let store = MemoryStore::default();
    let runtime = looking(&store, workflows(&store));

    let bad = json!({"does": "panic"});
    let reason = refused(&store, runtime, StoredDefinitions::WORKFLOW, json!({}), bad).await;

    assert!(reason.contains("panicked"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn the_name_of_an_executor_in_code_is_not_given_to_a_definition() {
    let store = MemoryStore::default();
    let code = Probe::on("other.v1", "code", &store).shared();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::clone(&code))
        .definitions(agents(&store))
        .build()
        .unwrap();
    let mut ids = Vec::new();
    let scenario = async {
        let good = put(
            &store,
            StoredDefinitions::AGENT,
            agent("a", "message.v1", "one"),
        )
        .await;
        until_running(&runtime, &["a", "code"]).await;
        redefine(&store, &good, agent("code", "message.v1", "two")).await;
        until_rejected(&store, 1).await;
        put(&store, "message.v1", json!({})).await;
        put(&store, "other.v1", json!({})).await;
        until_said(&store, 1).await;
        eventually(async || code.executed() == 1).await;
        tokio::time::sleep(A_WHILE).await;
        ids = running(&runtime);
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(
        (said(&store).await, ids),
        (
            vec!["one".to_owned()],
            vec!["a".to_owned(), "code".to_owned()]
        )
    );
    let rejections = rejections(&store).await;
    assert_eq!(rejections.len(), 1);
    assert_eq!(
        reason(&rejections[0]),
        "two executors have the ID \"code\"; give one of them another ID"
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_wants_a_taken_name_gets_it_when_that_is_free() {
    let store = MemoryStore::default();
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        let first = put(
            &store,
            StoredDefinitions::AGENT,
            agent("a", "message.v1", "first"),
        )
        .await;
        put(
            &store,
            StoredDefinitions::AGENT,
            agent("a", "message.v1", "second"),
        )
        .await;
        until_rejected(&store, 1).await;
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
        store.delete(first.id).await.unwrap();
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 2).await;
        tokio::time::sleep(A_WHILE).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["first", "second"]);
    assert_eq!(rejections(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_released_name_goes_to_the_definition_that_waits_for_it() {
    let store = MemoryStore::default();
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        let first = put(
            &store,
            StoredDefinitions::AGENT,
            agent("a", "message.v1", "first"),
        )
        .await;
        let second = put(
            &store,
            StoredDefinitions::AGENT,
            agent("b", "other.v1", "second"),
        )
        .await;
        let second = redefine(&store, &second, agent("a", "message.v1", "second")).await;
        until_rejected(&store, 1).await;
        assert_eq!(second.version, 2);
        redefine(&store, &first, agent("c", "other.v1", "first")).await;
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
        until_running(&runtime, &["a", "c"]).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["second"]);
    assert_eq!(rejections(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_refused_once_by_two_runtimes_on_one_store_and_after_a_restart() {
    let store = MemoryStore::default();
    let bad = put(&store, StoredDefinitions::AGENT, json!({"agent_id": "a"})).await;
    // Each runtime has a separate handle on the data, like a separate process.
    let [one, two, three] = [(); 3].map(|()| looking(&store, agents(&store)));
    let scenario = async {
        until_rejected(&store, 1).await;
        redefine(&store, &bad, json!({"agent_id": 7})).await;
        until_rejected(&store, 2).await;
        tokio::time::sleep(A_WHILE).await;
    };
    let both = async {
        tokio::select! {
            ended = one.run_until(std::future::pending()) => drop(ended),
            ended = two.run_until(scenario) => drop(ended),
        }
    };
    both.await;

    three.run_until(tokio::time::sleep(A_WHILE)).await.unwrap();

    let versions = rejections(&store).await;
    let versions = versions
        .iter()
        .map(|found| &found.context["definition_version"]);
    assert_eq!(versions.collect::<Vec<_>>(), [&json!(1), &json!(2)]);
    let states: Vec<RunState> = runs(&store).await.iter().map(|run| run.state).collect();
    assert_eq!(states, [RunState::Done, RunState::Done]);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_that_cannot_be_written_is_written_later() {
    let store = MemoryStore::default();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let shim = Shim::new(&store, move |call| {
        match call {
        Call::Commit(commit)
            if commit.writes.iter().any(|write| matches!(write, Write::Create(new) if new.schema_name.as_deref() == Some(StoredDefinitions::REJECTED)))
                && counted.fetch_add(1, Ordering::SeqCst) < 2 =>
        {
            Do::Fail(unavailable())
        }
        _ => Do::Pass,
    }
    });
    let runtime = looking(&store, agents(&shim));
    let scenario = async {
        put(&store, StoredDefinitions::AGENT, json!({"agent_id": "a"})).await;
        until_rejected(&store, 1).await;
        tokio::time::sleep(A_WHILE).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(tries.load(Ordering::SeqCst), 3);
    assert_eq!(rejections(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_definition_is_loaded_after_it_is_fixed() {
    let store = MemoryStore::default();
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        let bad = put(&store, StoredDefinitions::AGENT, json!({"agent_id": "a"})).await;
        until_rejected(&store, 1).await;
        redefine(&store, &bad, agent("a", "message.v1", "mended")).await;
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["mended"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_that_the_registry_does_not_name() {
    let store = MemoryStore::default();
    let services = Services::new().model("small", parrot());
    let services = services.tool(tool("echo")).unwrap();
    // Agents may call the tool, but no definition may serve it.
    let services = services.tool(tool("shell")).unwrap();
    let definitions = StoredDefinitions::new(&store, &services);
    let definitions = definitions.agents().tools(["echo"]);
    let mut unknown_model = agent("a", "message.v1", "one");
    unknown_model["model"] = json!("huge");
    put(&store, StoredDefinitions::AGENT, unknown_model).await;
    put(
        &store,
        StoredDefinitions::TOOL,
        on_message(json!({"name": "shell"})),
    )
    .await;
    put(
        &store,
        StoredDefinitions::WORKFLOW,
        on_message(json!({"name": "flow"})),
    )
    .await;
    let runtime = looking(&store, definitions);
    let mut ids = None;
    let scenario = async {
        until_rejected(&store, 2).await;
        put(
            &store,
            StoredDefinitions::WORKFLOW,
            on_message(json!({"name": "flow"})),
        )
        .await;
        put(&store, "message.v1", json!({})).await;
        tokio::time::sleep(A_WHILE).await;
        ids = Some(running(&runtime));
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(ids, Some(Vec::new()));
    assert!(
        runs(&store)
            .await
            .iter()
            .all(|run| run.run.executor.as_ref() == "definitions")
    );
    assert_eq!(
        rejections(&store).await.len(),
        2,
        "a schema without a maker must cause no rejection"
    );
}
