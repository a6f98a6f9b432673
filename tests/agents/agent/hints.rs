//! Hints of answers that an agent waits for: an excluded field appears in no request to the agent's model.

use crate::agent::elsewhere::{
    agent_on, first, on_questions, on_requests_for, person_says, runtime,
};
use crate::agent::{calling, registry, results, says, script, tool};
use crate::support::put;
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{AgentExecutor, ChatResponse, ScriptedModel};
use universal_executor::tool::{Approval, Question, ToolRegistry, ask_human, remote_tool};
use universal_executor::{
    Breadcrumb, BreadcrumbStoreExt as _, MemoryStore, NewBreadcrumb, UniversalExecutor,
};

const SECRET: &str = "canary-4711";
const PUBLIC: &str = "public-0815";

fn payload() -> Value {
    json!({"text": PUBLIC, "secret": SECRET})
}

async fn define(store: &MemoryStore, schema: &str, hints: Value) {
    let definition = NewBreadcrumb::new("schema.def.v1")
        .tag(format!("defines:{schema}"))
        .context(json!({"llm_hints": hints}));
    store.create(definition).await.unwrap();
}

/// Runs an agent that calls one tool, together with other executors, until the agent answers. `answer` receives the first breadcrumb of
/// a schema. Returns the tool result that the model received.
async fn told(
    store: &MemoryStore,
    (tools, more): (ToolRegistry, Value),
    others: Vec<Arc<dyn UniversalExecutor>>,
    (schema, call): (&str, ChatResponse),
    answer: impl AsyncFn(Arc<Breadcrumb>),
) -> String {
    let model = script([Ok(call), Ok(says("done"))]);
    let agent = agent_on(store, "worker", &on_questions(), &model, &tools, &more);
    let executors = others.into_iter().chain([agent as _]);
    let runtime = runtime(store, executors);
    let asked = async {
        put(store, "question.v1", json!({"q": 1})).await;
        answer(first(store, schema).await).await;
        let said = |model: &Arc<ScriptedModel>| model.requests().len() == 2;
        crate::support::eventually(|| async { said(&model) }).await;
    };
    runtime.run_until(asked).await.unwrap();
    let requests = model.requests();
    let all = format!("{requests:?}");
    assert!(!all.contains(SECRET), "{all}");
    let (_, text, _) = results(&requests[1])[0];
    text.to_owned()
}

/// Returns the answer to a request for the tool `far`, with hints.
fn returned(asked: &Breadcrumb, fields: Value, hints: Value) -> NewBreadcrumb {
    let id = asked.context.text("requestId").unwrap();
    let mut context = fields;
    context["request_id"] = json!(id);
    context["tool"] = json!("far");
    NewBreadcrumb::new("tool.response.v1")
        .tag(format!("request:{id}"))
        .context(context)
        .llm_hints(hints)
}

/// Returns the result of another service's tool as the model of an agent receives it.
async fn of_far_tool(store: &MemoryStore, fields: Value, hints: Value) -> String {
    let tools = ToolRegistry::default()
        .with(remote_tool("far", "Far away.", json!({"type": "object"})))
        .unwrap();
    let call = ("tool.request.v1", calling([("1", "far", json!({}))]));
    told(store, (tools, json!({})), vec![], call, async |asked| {
        let answer = returned(&asked, fields.clone(), hints.clone());
        store.create(answer).await.unwrap();
    })
    .await
}

/// Returns a person's answer to a tool's question as the model of an agent receives it.
async fn of_person(store: &MemoryStore) -> String {
    let (asks, _) = tool("asks", |_| async {
        Err(ask_human(Question::new("Which?")))
    });
    let call = ("human.request.v1", calling([("1", "asks", json!({}))]));
    let with = (registry([asks]), json!({}));
    told(store, with, vec![], call, async |asked| {
        person_says(store, &asked, json!({"answer": payload()})).await;
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn an_excluded_field_of_the_result_of_a_tool_of_another_service_reaches_no_model() {
    let success = json!({"status": "success", "output": payload()});
    let failure = json!({"status": "error", "error": {"message": PUBLIC, "secret": SECRET}});
    for (fields, exclude) in [(success, "output.secret"), (failure, "error.secret")] {
        let own = MemoryStore::default();
        let by_schema = MemoryStore::default();
        let hints = json!({"exclude": [exclude]});
        define(&by_schema, "tool.response.v1", hints.clone()).await;

        let of_own = of_far_tool(&own, fields.clone(), hints).await;
        let of_schema = of_far_tool(&by_schema, fields, Value::Null).await;

        assert!(of_own.contains(PUBLIC), "{of_own}");
        assert!(of_schema.contains(PUBLIC), "{of_schema}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_tool_of_another_service_without_its_excluded_message_still_reaches_the_model()
 {
    let failure = json!({"status": "error", "error": SECRET});

    let told = of_far_tool(
        &MemoryStore::default(),
        failure,
        json!({"exclude": ["error"]}),
    )
    .await;

    assert!(told.contains("does not say why"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn an_excluded_field_of_the_answer_of_a_person_reaches_no_model() {
    let store = MemoryStore::default();
    let hints = json!({"exclude": ["answer.secret"]});
    define(&store, "human.response.v1", hints).await;

    let told = of_person(&store).await;

    assert!(told.contains(PUBLIC), "{told}");
}

#[tokio::test(start_paused = true)]
async fn an_excluded_comment_on_a_rejected_call_reaches_no_model_and_the_call_is_rejected() {
    for hints in [json!({"exclude": ["comment"]}), json!({"exclude": 7})] {
        let store = MemoryStore::default();
        define(&store, "human.response.v1", hints).await;
        let (pay, _) = tool("pay", |_| async { Ok(json!("paid")) });
        let with = (
            registry([pay.needs_approval(Approval::always())]),
            json!({}),
        );
        let call = ("human.request.v1", calling([("1", "pay", json!({}))]));

        let told = told(&store, with, vec![], call, async |asked| {
            let rejects = json!({"approved": false, "comment": SECRET});
            person_says(&store, &asked, rejects).await;
        })
        .await;

        assert!(told.contains("a person rejected the call"), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_excluded_field_of_the_output_of_another_agent_reaches_no_model() {
    let store = MemoryStore::default();
    let hints = json!({"exclude": ["output.secret"]});
    define(&store, AgentExecutor::RESPONSE, hints).await;
    let answers = script([Ok(says(&payload().to_string()))]);
    let more = json!({"output_schema": {"type": "object"}});
    let none = ToolRegistry::default();
    let trigger = on_requests_for("helper");
    let helper = agent_on(&store, "helper", &trigger, &answers, &none, &more);
    let with = (none, json!({"use": ["helper"]}));
    let call = calling([("1", "helper", json!({"prompt": "Help."}))]);

    let others = vec![helper as _];
    let told = told(
        &store,
        with,
        others,
        ("agent.request.v1", call),
        async |_| {},
    )
    .await;

    assert!(told.contains(PUBLIC), "{told}");
}

#[tokio::test(start_paused = true)]
async fn answers_whose_hints_cannot_be_used_are_withheld_and_the_model_learns_that() {
    let store = MemoryStore::default();
    let success = json!({"status": "success", "output": payload()});
    let of_tool = of_far_tool(&store, success.clone(), json!({"exclude": 7})).await;
    let store = MemoryStore::default();
    let whole = of_far_tool(&store, success, json!({"exclude": ["output"]})).await;
    let store = MemoryStore::default();
    define(&store, "human.response.v1", json!({"exclude": 7})).await;
    let of_person = of_person(&store).await;

    for told in [of_tool, whole, of_person] {
        assert!(told.contains("withheld"), "{told}");
        assert!(!told.contains(PUBLIC), "{told}");
    }
}
