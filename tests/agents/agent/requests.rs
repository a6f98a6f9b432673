//! Tool requests in the answers of agents on RCRT (Right Context Right Time) servers.

use crate::agent::elsewhere::{first, person_says, runtime, suspended};
use crate::agent::{answer, count, echo, registry, says, script, sees, tool};
use crate::support::{all, eventually, put};
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::model::DefinitionOptions;
use universal_executor::tool::{Approval, ToolDispatcher, ToolRegistry};
use universal_executor::{Breadcrumb, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};

/// Creates an agent of an RCRT server with more fields of its definition.
fn agent(
    store: &MemoryStore,
    model: &Arc<ScriptedModel>,
    tools: &ToolRegistry,
    more: &Value,
) -> Arc<AgentExecutor> {
    let mut definition = json!({
        "agent_id": "helper", "system_prompt": "Help.",
        "capabilities": {"can_create_breadcrumbs": true},
        "subscriptions": {"selectors": [{"schema_name": "question.v1", "role": "trigger"}]},
    });
    let fields = definition.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let rules = DefinitionOptions::default().rcrt();
    let definition = AgentDefinition::from_json_with(&definition, &rules).unwrap();
    let (model, shared) = (Arc::clone(model), Arc::new(store.clone()));
    Arc::new(AgentExecutor::with_tools(definition, model, shared, tools).unwrap())
}

/// Returns an answer that requests tools.
fn requesting(requests: &Value) -> String {
    let context = json!({"message": "One moment.", "tool_requests": requests});
    let breadcrumb =
        json!({"schema_name": "agent.response.v1", "title": "Answer", "context": context});
    json!({"action": "create", "breadcrumb": breadcrumb}).to_string()
}

fn request(tool: &str, input: &Value, id: &str, return_to_llm: Option<bool>) -> Value {
    let mut request = json!({"tool": tool, "input": input, "requestId": id});
    if let Some(returns) = return_to_llm {
        request["return_to_llm"] = returns.into();
    }
    request
}

/// Lets an agent answer one question while another executor serves the tools.
async fn answered(store: &MemoryStore, agent: Arc<AgentExecutor>, tools: ToolRegistry) -> Value {
    let served = ToolDispatcher::new("tools", tools, Arc::new(store.clone())).unwrap();
    let runtime = runtime(store, [agent as _, Arc::new(served) as _]);
    let asked = async {
        let question = NewBreadcrumb::new("question.v1").tag("session:s1");
        store.create(question).await.unwrap();
        first(store, AgentExecutor::RESPONSE).await;
    };
    runtime.run_until(asked).await.unwrap();
    answer(store).await
}

/// Returns the tool results in the last message of a request to the model.
fn told(model: &ScriptedModel, request: usize) -> Vec<Value> {
    let text = model.requests()[request]
        .messages
        .last()
        .unwrap()
        .text()
        .into_owned();
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line.trim_end_matches(',')).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn each_request_in_an_answer_is_written_once_and_the_model_answers_from_the_results() {
    let store = MemoryStore::default();
    let (upper, _) = tool("upper", |input| async move {
        Ok(input["text"].as_str().unwrap().to_uppercase().into())
    });
    let (fails, _) = tool("fails", |_| async { Err("no such city".into()) });
    let tools = registry([upper, fails]);
    let requests = json!([
        request("upper", &json!({"text": "a"}), "x", Some(true)),
        request("fails", &json!({}), "y", None),
    ]);
    let model = script([Ok(says(&requesting(&requests))), Ok(says("It is A."))]);
    let helper = agent(&store, &model, &tools, &json!({}));

    let answer = answered(&store, helper, tools).await;

    assert_eq!(answer["message"], "It is A.");
    let results = told(&model, 1);
    assert_eq!(
        results[0],
        json!({"tool": "upper", "requestId": "x", "output": "A"})
    );
    assert_eq!(results[1]["requestId"], "y");
    assert!(results[1]["error"]["code"].is_string(), "{results:?}");
    let written = all(&store, "tool.request.v1").await;
    let mut tools: Vec<_> = written
        .iter()
        .map(|one| one.context["tool"].clone())
        .collect();
    tools.sort_by_key(Value::to_string);
    assert_eq!(tools, ["fails", "upper"]);
    for request in written {
        assert_eq!(request.context["requestedBy"], "helper");
        let id = format!("request:{}", request.context.text("requestId").unwrap());
        let tags = ["tool:request", "workspace:tools", &*id, "session:s1"];
        assert_eq!(request.tags, tags);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_requests_one_tool_again_with_the_same_id_and_receives_both_results() {
    let store = MemoryStore::default();
    let tools = registry([echo("dice").0]);
    let dice = |n| requesting(&json!([request("dice", &json!({"n": n}), "x", None)]));
    let model = script([Ok(says(&dice(1))), Ok(says(&dice(2))), Ok(says("Three."))]);
    let helper = agent(&store, &model, &tools, &json!({}));

    let answer = answered(&store, helper, tools).await;

    assert_eq!(answer["message"], "Three.");
    let outputs = [1, 2].map(|request| told(&model, request)[0]["output"].clone());
    assert_eq!(outputs, [json!({"n": 1}), json!({"n": 2})]);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_does_not_return_to_the_model_is_the_answer_to_the_user() {
    let store = MemoryStore::default();
    let tools = registry([echo("dice").0]);
    let requests = json!([request("dice", &json!({"n": 4}), "x", Some(false))]);
    let model = script([Ok(says(&requesting(&requests)))]);
    let helper = agent(&store, &model, &tools, &json!({}));

    let answer = answered(&store, helper, tools).await;

    assert_eq!(answer["message"], r#"{"n":4}"#);
    assert_eq!(
        answer["tool_result"],
        json!({"tool": "dice", "output": {"n": 4}})
    );
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_return_setting_of_a_tool_is_the_default_for_its_requests() {
    for (returns_to_llm, turns) in [(None, 1), (Some(true), 2)] {
        let store = MemoryStore::default();
        let tools = registry([echo("dice").0.returns_to_user()]);
        let requests = json!([request("dice", &json!({}), "x", returns_to_llm)]);
        let model = script([Ok(says(&requesting(&requests))), Ok(says("Four."))]);
        let helper = agent(&store, &model, &tools, &json!({}));

        answered(&store, helper, tools).await;

        assert_eq!(model.requests().len(), turns);
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_request_is_reported_to_the_model_and_affects_no_other_request() {
    let store = MemoryStore::default();
    let (dice, calls) = echo("dice");
    let tools = registry([dice]);
    let requests =
        json!([{"input": {}, "requestId": "x"}, request("dice", &json!({"n": 4}), "y", None)]);
    let model = script([Ok(says(&requesting(&requests))), Ok(says("Four."))]);
    let helper = agent(&store, &model, &tools, &json!({}));

    let answer = answered(&store, helper, tools).await;

    assert_eq!(answer["message"], "Four.");
    let results = told(&model, 1);
    assert_eq!(results[0]["error"]["code"], "invalid_arguments");
    let problem = results[0]["error"]["message"].as_str().unwrap();
    assert!(
        problem.contains("\"tool\" must be the name of a tool"),
        "{problem}"
    );
    assert_eq!(results[1]["output"], json!({"n": 4}));
    assert_eq!(count(&calls), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_requests_no_tool_that_the_agent_may_not_call() {
    let may_use_none =
        json!({"capabilities": {"can_create_breadcrumbs": true, "can_use_tools": false}});
    for more in [json!({"tools": ["dice"]}), may_use_none] {
        let store = MemoryStore::default();
        let (pay, payments) = echo("pay");
        let tools = registry([pay, echo("dice").0]);
        let requests = json!([request("pay", &json!({}), "x", None)]);
        let model = script([Ok(says(&requesting(&requests))), Ok(says("I may not."))]);
        let helper = agent(&store, &model, &tools, &more);

        let answer = answered(&store, helper, tools).await;

        assert_eq!(answer["message"], "I may not.");
        assert!(told(&model, 1)[0]["error"].is_object(), "{more}");
        assert_eq!(count(&payments), 0);
        assert!(all(&store, "tool.request.v1").await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_requested_tool_that_needs_approval_waits_for_a_person() {
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let tools = registry([pay.needs_approval(Approval::always())]);
    let requests = json!([request("pay", &json!({"euro": 5}), "x", None)]);
    let model = script([Ok(says(&requesting(&requests))), Ok(says("Paid."))]);
    let helper = agent(&store, &model, &tools, &json!({"tool_calls": "in_process"}));
    let runtime = runtime(&store, [helper as _]);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        let asked = first(&store, "human.request.v1").await;
        eventually(async || suspended(&store).await == 1).await;
        assert_eq!(count(&payments), 0);
        person_says(
            &store,
            &asked,
            json!({"approved": true, "digest": asked.context["digest"]}),
        )
        .await;
        first(&store, AgentExecutor::RESPONSE).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(answer(&store).await["message"], "Paid.");
    assert_eq!(count(&payments), 1);
}

#[tokio::test]
async fn an_answer_with_more_calls_than_the_budget_makes_no_call() {
    let store = MemoryStore::default();
    let tools = registry([echo("dice").0]);
    let dice = |id| request("dice", &json!({}), id, None);
    let model = script([Ok(says(&requesting(&json!([dice("x"), dice("y")]))))]);
    let helper = agent(&store, &model, &tools, &json!({"budgets": {"calls": 1}}));
    let question = put(&store, "question.v1", json!({})).await;

    sees(&helper, &question).await.unwrap();

    assert!(all(&store, "tool.request.v1").await.is_empty());
    assert_eq!(all(&store, "executor.failed.v1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_a_run_waits_for_starts_no_second_run_of_an_agent_that_subscribes_to_it() {
    let store = MemoryStore::default();
    let tools = registry([echo("dice").0]);
    let requests = json!([request("dice", &json!({}), "x", None)]);
    let model = script([
        Ok(says(&requesting(&requests))),
        Ok(says("Four.")),
        Ok(says("Noted.")),
        Ok(says("Again.")),
    ]);
    let mine = json!([{"path": "$.requestedBy", "op": "eq", "value": "helper"}]);
    let more = json!({"subscriptions": [
        {"schema_name": "question.v1", "role": "trigger"},
        {"schema_name": "tool.response.v1", "role": "trigger", "context_match": mine},
    ]});
    let helper = agent(&store, &model, &tools, &more);
    let served = ToolDispatcher::new("tools", tools, Arc::new(store.clone())).unwrap();
    let runtime = runtime(&store, [helper as _, Arc::new(served) as _]);
    let answered = async |trigger: &Arc<Breadcrumb>| {
        let is_answer =
            |one: &Arc<Breadcrumb>| one.context["trigger_event_id"] == json!(trigger.id);
        eventually(async || {
            all(&store, AgentExecutor::RESPONSE)
                .await
                .iter()
                .any(is_answer)
        })
        .await;
    };
    let asked = async {
        answered(&put(&store, "question.v1", json!({})).await).await;
        // A response that belongs to no request of a run is a trigger.
        let other = json!({"request_id": "other", "requestedBy": "helper", "status": "success"});
        answered(&put(&store, "tool.response.v1", other).await).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(all(&store, AgentExecutor::RESPONSE).await.len(), 2);
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn without_the_rules_of_rcrt_servers_tool_requests_are_part_of_the_answer() {
    let store = MemoryStore::default();
    let requests = json!([request("dice", &json!({}), "x", None)]);
    let model = script([Ok(says(&requesting(&requests)))]);
    let more = json!({"capabilities": {"can_create_breadcrumbs": true}});
    let (dice, calls) = echo("dice");
    let worker = crate::agent::agent(&store, &model, &registry([dice]), &more).unwrap();
    let question = put(&store, "question.v1", json!({})).await;

    sees(&worker, &question).await.unwrap();

    assert_eq!(answer(&store).await["tool_requests"], requests);
    assert_eq!(count(&calls), 0);
}
