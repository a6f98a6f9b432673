//! Definitions that are added, changed and deleted, and the effect on their executors.

use crate::runtime_definitions::given::{
    Silent, agent, agents, hash_of, made_with, parrot, redefine, runtime, said, services,
    until_running, until_said,
};
use crate::support::{Call, Do, Probe, Shim, all, eventually, put, runs, unavailable};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::source::StartAt;
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch, Runtime, Services,
    UniversalExecutor,
};

#[tokio::test(start_paused = true)]
async fn definitions_there_before_the_start_are_loaded_before_any_event_is_handled() {
    let store = MemoryStore::default();
    put(&store, "message.v1", json!({})).await;
    let defined = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "one"),
    )
    .await;
    let runtime = Runtime::builder(store.events())
        .definitions(agents(&store))
        .start_at(StartAt::Beginning)
        .build()
        .unwrap();

    runtime.run_until(until_said(&store, 1)).await.unwrap();

    let response = &all(&store, "agent.response.v1").await[0];
    assert_eq!(made_with(response), hash_of(&defined));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_at_the_start_loses_no_event_to_its_definitions() {
    let store = MemoryStore::default();
    put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "one"),
    )
    .await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let shim = Shim::new(&store, move |call| match call {
        Call::Search(_) if counted.fetch_add(1, Ordering::SeqCst) < 5 => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let runtime = runtime(&store, agents(&shim));
    let scenario = async {
        put(&store, "message.v1", json!({})).await;
        assert!(
            asked.load(Ordering::SeqCst) < 5,
            "the definition must be loaded in time"
        );
        until_said(&store, 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_created_while_it_runs_is_loaded() {
    let store = MemoryStore::default();
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        put(
            &store,
            StoredDefinitions::AGENT,
            agent("a", "message.v1", "one"),
        )
        .await;
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn an_updated_definition_answers_with_its_new_subscriptions_and_its_new_prompt() {
    let store = MemoryStore::default();
    let one = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "old.v1", "one"),
    )
    .await;
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        put(&store, "old.v1", json!({})).await;
        until_said(&store, 1).await;
        let two = redefine(&store, &one, agent("a", "new.v1", "two")).await;
        put(&store, "old.v1", json!({})).await;
        put(&store, "new.v1", json!({})).await;
        until_said(&store, 2).await;
        two
    };
    let mut two = None;

    let done = async { two = Some(scenario.await) };
    runtime.run_until(done).await.unwrap();

    assert_eq!(said(&store).await, ["one", "two"]);
    let responses = all(&store, "agent.response.v1").await;
    let hashes: Vec<String> = responses.iter().map(|found| made_with(found)).collect();
    assert_eq!(hashes, [hash_of(&two.unwrap()), hash_of(&one)]);
    assert_eq!(
        runs(&store).await.len(),
        2,
        "no run must be enqueued for old.v1"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_right_after_an_update_is_matched_against_the_new_definition() {
    let store = MemoryStore::default();
    let mut defined = put(&store, StoredDefinitions::AGENT, agent("a", "m0.v1", "0")).await;
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        for n in 1..=20 {
            let schema = format!("m{n}.v1");
            defined = redefine(&store, &defined, agent("a", &schema, &n.to_string())).await;
            put(&store, &schema, json!({})).await;
            until_said(&store, n).await;
        }
    };

    runtime.run_until(scenario).await.unwrap();

    let expected: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    assert_eq!(said(&store).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_answers_no_more() {
    let store = MemoryStore::default();
    let kept = put(
        &store,
        StoredDefinitions::AGENT,
        agent("kept", "message.v1", "kept"),
    )
    .await;
    let gone = put(
        &store,
        StoredDefinitions::AGENT,
        agent("gone", "message.v1", "gone"),
    )
    .await;
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        store.delete(gone.id).await.unwrap();
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
        until_running(&runtime, &["kept"]).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["kept"]);
    assert_eq!(runs(&store).await.len(), 1);
    assert_eq!(kept.version, 1);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_names_another_agent_removes_the_one_it_named_before() {
    let store = MemoryStore::default();
    let before = put(
        &store,
        StoredDefinitions::AGENT,
        agent("before", "message.v1", "one"),
    )
    .await;
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        until_running(&runtime, &["before"]).await;
        redefine(&store, &before, agent("after", "message.v1", "two")).await;
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
        until_running(&runtime, &["after"]).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["two"]);
    assert_eq!(runs(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_definition_gives_a_registered_tool_its_subscriptions() {
    let store = MemoryStore::default();
    let echo = json_tool("echo", "Says it again.", json!({}), |input, _| async move {
        Ok(input)
    });
    let services = Services::new().tool(echo).unwrap();
    let definitions = StoredDefinitions::new(&store, &services).tools(["echo"]);
    let runtime = runtime(&store, definitions);
    let subscriptions = json!([{"schema_name": "question.v1", "role": "trigger"}]);
    let scenario = async {
        let tool = json!({"name": "echo", "subscriptions": subscriptions});
        put(&store, StoredDefinitions::TOOL, tool).await;
        put(&store, "question.v1", json!({"input": "hi"})).await;
        eventually(async || !all(&store, ToolExecutor::RESPONSE).await.is_empty()).await;
    };

    runtime.run_until(scenario).await.unwrap();

    let response = &all(&store, ToolExecutor::RESPONSE).await[0];
    assert_eq!(response.context["output"], json!("hi"));
}

#[tokio::test(start_paused = true)]
async fn a_maker_makes_executors_of_workflow_definitions() {
    let store = MemoryStore::default();
    let home = store.clone();
    let definitions =
        agents(&store).maker(StoredDefinitions::WORKFLOW, move |definition, given| {
            assert_eq!(given.tenant(), home.tenant());
            let id = definition.context.text("name").ok_or("no name")?;
            let workflow: Arc<dyn UniversalExecutor> = Probe::on("message.v1", id, &home).shared();
            Ok(workflow)
        });
    let runtime = runtime(&store, definitions);
    let scenario = async {
        put(&store, StoredDefinitions::WORKFLOW, json!({"name": "flow"})).await;
        until_running(&runtime, &["flow"]).await;
        put(&store, "message.v1", json!({})).await;
        eventually(async || !all(&store, "answer.v1").await.is_empty()).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(all(&store, "answer.v1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_maker_replaces_the_built_in_maker_of_its_schema() {
    let store = MemoryStore::default();
    let home = store.clone();
    let definitions = agents(&store).maker(StoredDefinitions::AGENT, move |_, _| {
        let made: Arc<dyn UniversalExecutor> = Probe::on("message.v1", "made", &home).shared();
        Ok(made)
    });
    put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "one"),
    )
    .await;
    let runtime = runtime(&store, definitions);

    runtime
        .run_until(until_running(&runtime, &["made"]))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_definitions_with_every_wanted_tag_count() {
    let store = MemoryStore::default();
    let defined = async |id: &str, tags: &[&str]| {
        let definition = NewBreadcrumb::new(StoredDefinitions::AGENT)
            .tags(tags.iter().copied())
            .context(agent(id, "message.v1", id));
        store.create(definition).await.unwrap()
    };
    defined("neither", &[]).await;
    defined("one", &["live"]).await;
    let both = defined("both", &["live", "eu"]).await;
    let runtime = runtime(&store, agents(&store).tagged("live").tagged("eu"));
    let scenario = async {
        until_running(&runtime, &["both"]).await;
        let late = defined("late", &["eu"]).await;
        defined("later", &["x", "eu", "live"]).await;
        until_running(&runtime, &["both", "later"]).await;
        let untagged = store.update(both.id, 1, Patch::new().tags(["live"])).await;
        assert_eq!(untagged.unwrap().version, 2);
        until_running(&runtime, &["later"]).await;
        let tagged = store
            .update(late.id, 1, Patch::new().tags(["live", "eu"]))
            .await;
        assert_eq!(tagged.unwrap().version, 2);
        until_running(&runtime, &["late", "later"]).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert!(all(&store, StoredDefinitions::REJECTED).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_definition_announced_while_the_store_is_away_is_applied_later() {
    let store = MemoryStore::default();
    let defined = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "one"),
    )
    .await;
    let away = Arc::new(AtomicBool::new(false));
    let (is_away, id) = (Arc::clone(&away), defined.id);
    let shim = Shim::new(&store, move |call| match call {
        Call::Get(asked) if asked == id && is_away.load(Ordering::SeqCst) => {
            Do::Fail(unavailable())
        }
        _ => Do::Pass,
    });
    let runtime = runtime(&store, agents(&shim));
    let scenario = async {
        until_running(&runtime, &["a"]).await;
        away.store(true, Ordering::SeqCst);
        redefine(&store, &defined, agent("b", "message.v1", "two")).await;
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
        away.store(false, Ordering::SeqCst);
        until_running(&runtime, &["b"]).await;
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 2).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn definitions_changed_or_deleted_without_events_are_found() {
    let store = MemoryStore::default();
    let first = put(&store, StoredDefinitions::AGENT, agent("first", "m.v1", "")).await;
    let gone = put(&store, StoredDefinitions::AGENT, agent("gone", "m.v1", "")).await;
    let runtime = Runtime::builder(Silent)
        .definitions(agents(&store))
        .build()
        .unwrap();
    let scenario = async {
        until_running(&runtime, &["first", "gone"]).await;
        redefine(&store, &first, agent("renamed", "m.v1", "")).await;
        put(
            &store,
            StoredDefinitions::AGENT,
            agent("second", "m.v1", ""),
        )
        .await;
        store.delete(gone.id).await.unwrap();
        until_running(&runtime, &["renamed", "second"]).await;
    };

    runtime.run_until(scenario).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn changes_between_two_runs_of_a_runtime_apply_at_the_second_run() {
    let store = MemoryStore::default();
    let defined = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "one"),
    )
    .await;
    let gone = put(
        &store,
        StoredDefinitions::AGENT,
        agent("gone", "other.v1", ""),
    )
    .await;
    let runtime = runtime(&store, agents(&store));
    runtime
        .run_until(until_running(&runtime, &["a", "gone"]))
        .await
        .unwrap();
    redefine(&store, &defined, agent("a", "message.v1", "two")).await;
    store.delete(gone.id).await.unwrap();
    let scenario = async {
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["two"]);
    assert_eq!(crate::runtime_definitions::given::running(&runtime), ["a"]);
}

/// Reading all definitions takes some time. Announcements in the meantime are newer than the definitions that it read.
#[tokio::test(start_paused = true)]
async fn a_slow_look_at_all_definitions_undoes_nothing_that_was_announced_meanwhile() {
    let store = MemoryStore::default();
    let gone = put(
        &store,
        StoredDefinitions::AGENT,
        agent("gone", "message.v1", "gone"),
    )
    .await;
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    let shim = Shim::new(&store, move |call| match call {
        Call::Search(query) if query.selector.schema_name() == Some(StoredDefinitions::AGENT) => {
            match counted.fetch_add(1, Ordering::SeqCst) {
                1 => Do::Late(Duration::from_secs(2)),
                _ => Do::Pass,
            }
        }
        _ => Do::Pass,
    });
    let runtime = Runtime::builder(store.events())
        .definitions(agents(&shim))
        .reconcile_every(Duration::from_secs(60))
        .build()
        .unwrap();
    let scenario = async {
        eventually(async || looks.load(Ordering::SeqCst) == 2).await;
        store.delete(gone.id).await.unwrap();
        put(
            &store,
            StoredDefinitions::AGENT,
            agent("new", "message.v1", "new"),
        )
        .await;
        until_running(&runtime, &["new"]).await;
        tokio::time::advance(Duration::from_secs(5)).await;
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
        assert_eq!(
            looks.load(Ordering::SeqCst),
            2,
            "the definitions must be read a second time"
        );
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["new"]);
    assert_eq!(
        crate::runtime_definitions::given::running(&runtime),
        ["new"]
    );
}

#[tokio::test(start_paused = true)]
async fn definitions_of_other_tenants_are_not_seen() {
    let store = MemoryStore::default();
    let other = store.in_tenant("other");
    put(
        &other,
        StoredDefinitions::AGENT,
        agent("before", "m.v1", ""),
    )
    .await;
    let runtime = runtime(&store, agents(&store));
    let scenario = async {
        put(&other, StoredDefinitions::AGENT, agent("other", "m.v1", "")).await;
        put(&store, StoredDefinitions::AGENT, agent("own", "m.v1", "")).await;
        until_running(&runtime, &["own"]).await;
        tokio::time::advance(Duration::from_secs(120)).await;
        put(
            &store,
            StoredDefinitions::AGENT,
            agent("second", "m.v1", ""),
        )
        .await;
        until_running(&runtime, &["own", "second"]).await;
    };

    runtime.run_until(scenario).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn definitions_work_on_a_store_without_a_ledger() {
    let store = MemoryStore::default();
    let shim = Shim::without_ledger(&store);
    let runtime = runtime(&store, agents(&shim));
    let scenario = async {
        let one = put(
            &store,
            StoredDefinitions::AGENT,
            agent("a", "old.v1", "one"),
        )
        .await;
        put(&store, "old.v1", json!({})).await;
        until_said(&store, 1).await;
        let two = redefine(&store, &one, agent("a", "new.v1", "two")).await;
        put(&store, "old.v1", json!({})).await;
        put(&store, "new.v1", json!({})).await;
        until_said(&store, 2).await;
        let bad = redefine(&store, &two, json!({"agent_id": "a"})).await;
        crate::runtime_definitions::given::until_rejected(&store, 1).await;
        put(&store, "new.v1", json!({})).await;
        until_said(&store, 3).await;
        store.delete(bad.id).await.unwrap();
        until_running(&runtime, &[]).await;
        put(
            &store,
            StoredDefinitions::AGENT,
            agent("a", "old.v1", "three"),
        )
        .await;
        put(&store, "new.v1", json!({})).await;
        put(&store, "old.v1", json!({})).await;
        until_said(&store, 4).await;
    };

    let report = runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["one", "two", "two", "three"]);
    assert_eq!(report.without_ledger, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_comes_back_gets_the_name_of_the_deleted_one() {
    let store = MemoryStore::default();
    let services = services().model("m", parrot());
    let definitions = StoredDefinitions::new(&store, &services).agents();
    let runtime = runtime(&store, definitions);
    let scenario = async {
        for n in 1..=5 {
            let says = format!("life {n}");
            let defined = put(
                &store,
                StoredDefinitions::AGENT,
                agent("a", "message.v1", &says),
            )
            .await;
            put(&store, "message.v1", json!({})).await;
            until_said(&store, n).await;
            store.delete(defined.id).await.unwrap();
        }
        until_running(&runtime, &[]).await;
    };

    runtime.run_until(scenario).await.unwrap();

    let expected: Vec<String> = (1..=5).map(|n| format!("life {n}")).collect();
    assert_eq!(said(&store).await, expected);
    assert!(all(&store, StoredDefinitions::REJECTED).await.is_empty());
}
