//! The files of `examples/workloads/`: each is loaded by its name and runs, with a model that repeats what it is asked.

use crate::{asked, output};
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use universal_executor::agent::{ChatResponse, ScriptedModel};
use universal_executor::model::Timestamp;
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::workflow::Parts;
use universal_executor::workload::{Deps, Message, RunCx, WorkloadEventKind, WorkloadManager};
use universal_executor::{
    BreadcrumbId, BreadcrumbStoreExt as _, ExecutionContext, MemoryStore, NewBreadcrumb,
};

fn manager() -> WorkloadManager {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/workloads");
    WorkloadManager::builder().root(folder).build()
}

fn deps(store: &MemoryStore) -> Deps {
    let search = json_tool("search", "Finds pages.", json!({}), |input, _| async move {
        Ok(json!({"pages": [input["query"], "second"]}))
    });
    let broken = json_tool("broken", "Never works.", json!({}), |_, _| async {
        Err::<Value, _>(universal_executor::permanent("out of order"))
    });
    let tools = ToolRegistry::default()
        .with(search)
        .unwrap()
        .with(broken)
        .unwrap();
    let model = ScriptedModel::answering(|_, request| {
        let is_json = request.response_schema.is_some();
        let text = asked(request);
        Ok(ChatResponse::new(if is_json {
            r#"{"score": 9}"#.to_owned()
        } else {
            format!("<{text}>")
        }))
    });
    let parts = Parts::new().tools(tools).default_model(Arc::new(model));
    Deps::new(parts, Arc::new(store.clone()))
}

/// What a file comes to when it is told this; its questions are answered with "yes". None if it waits for ever.
async fn come_to(name: &str, content: Value) -> Option<Value> {
    let store = MemoryStore::default();
    let deps = deps(&store);
    let definition = manager().load(name).await.unwrap();
    let trigger = NewBreadcrumb::new("user.message.v1")
        .first_version(BreadcrumbId::NIL, Timestamp::from_micros(0));
    let mut context = ExecutionContext::for_trigger(trigger.clone());
    for _ in 0..4 {
        let mut workload = definition.instantiate(&deps).unwrap();
        let message = Message::new(content.clone());
        let events = workload.run(RunCx::new("run-1", context), Some(message));
        let events: Vec<_> = events.collect().await;
        workload.close().await.unwrap();
        crate::grammar::check_end(&events);
        let WorkloadEventKind::Suspended { state, .. } = &events.last().unwrap().kind else {
            return Some(output(&events));
        };
        answer(&store).await;
        context = ExecutionContext::for_trigger(trigger.clone()).with_resumed(state.clone(), None);
    }
    None
}

/// Says yes to whatever was asked, and tells that something was paid.
async fn answer(store: &MemoryStore) {
    let paid = NewBreadcrumb::new("payment.v1").context(json!({"amount": 3}));
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
        ("delegate", json!("Hi"), json!("<Hi>")),
        ("emit", json!("Hi"), json!("noted")),
        ("for_each", json!(["a", "b"]), json!(["<a>", "<b>"])),
        (
            "graph",
            json!({"topic": "crabs"}),
            json!("<crabs and second>"),
        ),
        ("loop", json!("draft"), json!("<<<draft>>>")),
        ("match", json!("refund"), json!("to accounting")),
        (
            "parallel",
            json!("text"),
            json!(["<true: text>", "<short: text>"]),
        ),
        ("schema", json!("essay"), json!(9)),
        ("subflow", json!("Hi"), json!("<Hi>!")),
        ("try", json!("x"), json!("it failed, so this instead")),
        ("wait_for", json!("x"), json!(3)),
    ];
    for (name, content, expected) in &table {
        let came = come_to(name, content.clone()).await;
        assert_eq!(came.as_ref(), Some(expected), "{name}");
    }
    let tested: Vec<_> = table.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(manager().names().await, tested);
}

#[tokio::test]
async fn every_file_says_what_it_is_good_for_and_has_no_warnings() {
    for listed in manager().list().await {
        assert_eq!(listed.error, None);
        assert!(listed.description.is_some(), "{}", listed.name);
    }
}
