//! The files of `examples/workloads/` and the flow of `examples/flow.rs`: each one loads, and runs with a model that repeats its
//! input.

use crate::workload::{Setup, asked, output};
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use universal_executor::agent::guardrail::{Decision, on_input};
use universal_executor::agent::{ChatResponse, ScriptedModel};
use universal_executor::model::Timestamp;
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::workflow::Workflow;
use universal_executor::workload::{
    Definition, FlowDefinition, RunCx, WorkloadEventKind, WorkloadManager, WorkloadMessage,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStoreExt as _, ExecutionContext, MemoryStore, NewBreadcrumb, Services,
};

fn manager() -> WorkloadManager {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/workloads");
    WorkloadManager::builder().root(folder).build().unwrap()
}

fn setup(store: &MemoryStore) -> Setup {
    let search = json_tool("search", "Finds pages.", json!({}), |input, _| async move {
        Ok(json!({"pages": [input["query"], "second"]}))
    });
    let broken = json_tool("broken", "Never works.", json!({}), |_, _| async {
        Err::<Value, _>(universal_executor::permanent("out of order"))
    });
    let publish = json_tool("publish", "Publishes.", json!({}), |input, _| async move {
        Ok(json!(format!(
            "published: {}",
            input["text"].as_str().unwrap()
        )))
    });
    let tools = [search, broken, publish].into_iter();
    let tools = tools.fold(ToolRegistry::default(), |tools, tool| {
        tools.with(tool).unwrap()
    });
    let model = ScriptedModel::answering(|_, request| {
        let is_json = request.response_schema.is_some();
        let text = asked(request);
        Ok(ChatResponse::new(if is_json {
            r#"{"score": 9}"#.to_owned()
        } else {
            format!("<{text}>")
        }))
    });
    let model = Arc::new(model);
    let services = Services::new()
        .tools(tools)
        .model("local", Arc::clone(&model))
        .guardrail(on_input("no-secrets", |_| Decision::Allow))
        .default_model(model);
    Setup::new(services, Arc::new(store.clone()))
}

/// Returns the output of a definition for a message, or `None` if it still waits after four runs. Its questions are answered with "yes".
async fn come_to(definition: &dyn Definition, content: Value) -> Option<Value> {
    let store = MemoryStore::default();
    let setup = setup(&store);
    let trigger = NewBreadcrumb::new("user.message.v1")
        .first_version(BreadcrumbId::NIL, Timestamp::from_micros(0));
    let mut context = ExecutionContext::for_trigger(trigger.clone());
    for _ in 0..4 {
        let mut workload = definition
            .instantiate(&setup.services, &setup.store)
            .unwrap();
        let message = WorkloadMessage::new(content.clone());
        let events = workload.run(RunCx::new("run-1", context), Some(message));
        let events: Vec<_> = events.collect().await;
        workload.close().await.unwrap();
        crate::workload::grammar::check_end(&events);
        let WorkloadEventKind::Suspended { state, .. } = &events.last().unwrap().kind else {
            return Some(output(&events));
        };
        answer(&store).await;
        context = ExecutionContext::for_trigger(trigger.clone()).with_resumed(state.clone(), None);
    }
    None
}

/// Answers the newest question with "yes" and reports a payment.
async fn answer(store: &MemoryStore) {
    let paid = NewBreadcrumb::new("payment.v1")
        .tags(["order", "cash"])
        .context(json!({"amount": 3}));
    store.create(paid).await.unwrap();
    if let Some(question) = store.latest("human.request.v1").await.unwrap() {
        let id = question.context.text("requestId").unwrap();
        let answer = json!({"request_id": id, "answer": "yes"});
        let answer = NewBreadcrumb::new("human.response.v1")
            .tag(format!("request:{id}"))
            .created_by("ann")
            .context(answer);
        store.create(answer).await.unwrap();
    }
}

#[tokio::test]
async fn every_file_is_loaded_by_its_name_and_runs() {
    let table = [
        ("agent", json!("Hi"), json!("<Hi>")),
        ("ask", json!("publish"), json!("publish: yes")),
        ("compaction", json!("Hi"), json!("<Hi>")),
        ("delegate", json!("Hi"), json!("<Hi>")),
        ("emit", json!("Hi"), json!("noted")),
        ("escalate", json!("x"), json!("<<A <x>>>")),
        (
            "fail",
            json!("x"),
            json!("nothing_found: there is nothing about x"),
        ),
        ("first", json!("x"), json!("<x>")),
        ("for_each", json!(["a", "b"]), json!(["<a>", "<b>"])),
        (
            "graph",
            json!({"topic": "crabs"}),
            json!("<crabs and second> (9)"),
        ),
        ("guardrails", json!("x"), json!("<x>")),
        ("history", json!("x"), json!("<<<x>>>")),
        (
            "if",
            json!({"text": "fire", "urgent": true}),
            json!("somebody is called about fire"),
        ),
        ("loop", json!("draft"), json!("<<<draft>>>")),
        ("match", json!("refund"), json!("to accounting")),
        ("model", json!("x"), json!({"title": "<x>", "score": 9})),
        (
            "parallel",
            json!("text"),
            json!(["<true: text>", "<short: text>"]),
        ),
        ("permissions", json!("Hi"), json!("<Hi>")),
        ("policies", json!("x"), json!("main/0/try/0")),
        ("retry", json!("x"), json!("x")),
        (
            "return",
            json!("x"),
            json!({"stopped": true, "said": "x", "nothing": null}),
        ),
        ("schema", json!("essay"), json!(9)),
        ("set", json!("Ann"), json!("Hello, Ann: [\"Ann\",\"b\"]")),
        ("subflow", json!("Hi"), json!("<Hi>!")),
        ("tool", json!("x"), json!("x")),
        ("truncate", json!("Hi"), json!("<Hi>")),
        ("try", json!("x"), json!("it failed, so this instead")),
        ("wait_for", json!("x"), json!(3)),
    ];
    for (name, content, expected) in &table {
        let definition = manager().load(name).await.unwrap();
        let came = come_to(&*definition, content.clone()).await;
        assert_eq!(came.as_ref(), Some(expected), "{name}");
    }
    let tested: Vec<_> = table.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(manager().names().await, tested);
}

#[tokio::test]
async fn every_workload_file_has_a_description_and_no_errors() {
    for listed in manager().list().await.workloads {
        assert_eq!(listed.error, None);
        assert!(listed.description.is_some(), "{}", listed.name);
    }
}

#[tokio::test]
async fn the_flow_of_the_flow_example_loads_without_warnings_and_runs() {
    let flow = include_str!("../../../examples/data/article.yaml");
    let flow = Workflow::from_yaml(flow).unwrap();
    assert_eq!(flow.warnings(), &[]);

    let definition = FlowDefinition::new("article", flow).unwrap();
    let came = come_to(&definition, json!({"topic": "crabs"})).await;

    let draft = "<Topic: crabs\nPages: {\"pages\":[\"crabs\",\"second\"]}>";
    assert_eq!(came, Some(json!(format!("published: {draft}"))));
}
