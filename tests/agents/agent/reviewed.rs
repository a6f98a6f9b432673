//! Edge cases of agents: the end of a run, the cancellation of its work, and the end of its time limits.

use crate::agent::{agent, calling, count, echo, registry, results, says, script, sees, tool};
use crate::support::{all, eventually, put};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use universal_executor::agent::guardrail::{Decision, Guardrails, on_output, on_tool_call};
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::model::Timestamp;
use universal_executor::tool::{ToolRegistry, remote_tool};
use universal_executor::{
    Breadcrumb, BreadcrumbStoreExt as _, MemoryStore, NewBreadcrumb, Outcome, Runtime,
};

fn no_keys() -> Guardrails {
    Guardrails::default().with(on_output("no-keys", |text| match text.contains("sk-1") {
        true => Decision::retry("leave keys out"),
        false => Decision::Allow,
    }))
}

/// Lets an agent with guardrails answer one question.
async fn asked(
    guardrails: Guardrails,
    model: &Arc<ScriptedModel>,
    tools: &ToolRegistry,
    more: &Value,
) -> (MemoryStore, Outcome) {
    let store = MemoryStore::default();
    let agent = agent(&store, model, tools, more).unwrap();
    let agent = agent.with_guardrails(guardrails);
    let question = put(&store, "question.v1", json!({})).await;
    let outcome = sees(&agent, &question).await.unwrap();
    (store, outcome)
}

async fn everything(store: &MemoryStore) -> String {
    let mut texts = Vec::new();
    for schema in [AgentExecutor::RESPONSE, "executor.failed.v1"] {
        for found in all(store, schema).await {
            texts.push(found.context.to_string());
        }
    }
    texts.join("\n")
}

/// Continues a run until a breadcrumb of a schema exists.
async fn runs_until(store: &MemoryStore, agent: AgentExecutor, schema: &str) -> Arc<Breadcrumb> {
    let runtime = Runtime::builder(store.events())
        .executor(Arc::new(agent))
        .build()
        .unwrap();
    let asked = async {
        put(store, "question.v1", json!({})).await;
        eventually(|| async { !all(store, schema).await.is_empty() }).await;
    };
    runtime.run_until(asked).await.unwrap();
    all(store, schema).await.remove(0)
}

async fn approve(store: &MemoryStore, asked: &Breadcrumb) {
    let id = asked.context.text("requestId").unwrap();
    let says = NewBreadcrumb::new("human.response.v1").tag(format!("request:{id}"));
    let says = says.context(json!({"request_id": id, "approved": true, "decision": "approve"}));
    store.create(says).await.unwrap();
}

#[tokio::test]
async fn a_denied_answer_is_not_written_to_the_store() {
    let model = script([Ok(says("The key is sk-1.")), Ok(says("Again: sk-1."))]);

    let (store, outcome) = asked(no_keys(), &model, &ToolRegistry::default(), &json!({})).await;

    assert!(matches!(outcome, Outcome::Failed { .. }));
    let said = everything(&store).await;
    assert!(!said.contains("sk-1"), "{said}");
}

#[tokio::test]
async fn results_for_the_user_pass_the_guardrails_or_the_model_finds_other_words() {
    let (draw, _) = tool("draw", |_| async { Ok("sk-1".into()) });
    let tools = registry([draw.returns_to_user()]);
    let model = script([Ok(calling([("1", "draw", json!({}))])), Ok(says("A cat."))]);

    let (store, _) = asked(no_keys(), &model, &tools, &json!({})).await;

    assert_eq!(
        all(&store, AgentExecutor::RESPONSE).await[0].context["message"],
        "A cat."
    );
    assert!(!everything(&store).await.contains("sk-1"));
}

#[tokio::test]
async fn a_submitted_output_contains_the_replacement_of_a_tool_call_guardrail() {
    let hides = on_tool_call("hides", |_, _| {
        Decision::Replace(json!({"key": "[key]"}).into())
    });
    let reports = calling([("1", "report", json!({"key": "sk-1"}))]);
    let model = script([Ok(reports), Ok(says("done"))]);
    let more = json!({"outputs": [{"name": "report", "required": true}]});

    let none = ToolRegistry::default();
    let (store, _) = asked(Guardrails::default().with(hides), &model, &none, &more).await;

    let response = all(&store, AgentExecutor::RESPONSE).await.remove(0);
    assert_eq!(
        response.context["outputs"],
        json!({"report": {"key": "[key]"}})
    );
}

#[tokio::test]
async fn a_submitted_output_passes_the_output_guardrails() {
    let reports = calling([("1", "report", json!({"key": "sk-1"}))]);
    let again = calling([("2", "report", json!({"key": "none"}))]);
    let model = script([Ok(reports), Ok(again), Ok(says("done"))]);
    let more = json!({"outputs": [{"name": "report", "required": true}]});

    let none = ToolRegistry::default();
    let (store, _) = asked(no_keys(), &model, &none, &more).await;

    let response = all(&store, AgentExecutor::RESPONSE).await.remove(0);
    let outputs = json!({"report": {"key": "none"}});
    assert_eq!(response.context["outputs"], outputs);
    let said = everything(&store).await;
    assert!(!said.contains("sk-1"), "{said}");
}

#[tokio::test]
async fn a_replaced_output_is_submitted_only_if_it_matches_the_schema() {
    let hides = || {
        Guardrails::default().with(on_output("hides", |text| {
            Decision::Replace(text.replace("\"sk-1\"", "7"))
        }))
    };
    let mut cases = vec![(json!({"type": "object"}), json!({"key": 7}))];
    if cfg!(feature = "validate") {
        let only_text = json!({"type": "object", "properties": {"key": {"type": "string"}}});
        cases.push((only_text, Value::Null));
    }
    for (schema, handed_in) in cases {
        let reports = calling([("1", "report", json!({"key": "sk-1"}))]);
        let model = script([Ok(reports), Ok(says("done"))]);
        let none = ToolRegistry::default();
        let more = json!({"outputs": [{"name": "report", "schema": schema}]});

        let (store, _) = asked(hides(), &model, &none, &more).await;

        let response = all(&store, AgentExecutor::RESPONSE).await.remove(0);
        assert_eq!(response.context["outputs"]["report"], handed_in);
    }
}

#[tokio::test]
async fn escapes_hide_nothing_from_the_guardrails_of_output() {
    let hidden = says(r#"{"key": "\u0073k\u002d1"}"#);
    let model = script([Ok(hidden), Ok(says(r#"{"key": "none"}"#))]);
    let more = json!({"output_schema": {"type": "object"}});

    let none = ToolRegistry::default();
    let (store, _) = asked(no_keys(), &model, &none, &more).await;

    let said = everything(&store).await;
    assert!(!said.contains("sk-1"), "{said}");
    assert!(said.contains("none"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_comes_too_late_approves_nothing() {
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let tools = registry([pay]);
    let more = json!({"approval": {"tools": ["pay"]}, "wait_seconds": {"people": 60}});
    let script = || script([Ok(calling([("1", "pay", json!({}))])), Ok(says("well"))]);
    let asking = agent(&store, &script(), &tools, &more).unwrap();
    let asked = runs_until(&store, asking, "human.request.v1").await;
    // No worker runs, and the person answers after an hour.
    tokio::time::advance(Duration::from_secs(3_600)).await;
    approve(&store, &asked).await;
    let model = crate::agent::script([Ok(says("well"))]);
    let later = agent(&store, &model, &tools, &more).unwrap();

    runs_until(&store, later, AgentExecutor::RESPONSE).await;

    assert_eq!(count(&payments), 0);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_question_counts_from_when_it_is_asked() {
    let store = MemoryStore::default();
    let (pay, _) = echo("pay");
    let (slow, _) = tool("slow", |_| async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok(Value::Null)
    });
    let far = remote_tool("far", "Far away.", json!({})).timeout(Duration::from_secs(5));
    let tools = registry([pay, slow]).with(far).unwrap();
    let more = json!({"approval": {"tools": ["pay"]}, "wait_seconds": {"people": 60}});
    let model = script([
        Ok(calling([
            ("1", "pay", json!({})),
            ("2", "slow", json!({})),
            ("3", "far", json!({})),
        ])),
        Ok(says("well")),
    ]);
    let agent = agent(&store, &model, &tools, &more).unwrap();

    runs_until(&store, agent, AgentExecutor::RESPONSE).await;

    let asked = all(&store, "human.request.v1").await.remove(0);
    let expires: Timestamp = asked.context["expires_at"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(expires >= asked.updated_at + Duration::from_secs(59));
    let requested = all(&store, "tool.request.v1").await.remove(0);
    assert!(requested.updated_at >= asked.updated_at);
}

#[tokio::test(start_paused = true)]
async fn a_tool_response_of_another_schema_is_ignored() {
    let store = MemoryStore::default();
    let far = remote_tool("far", "Far away.", json!({})).timeout(Duration::from_secs(5));
    let tools = ToolRegistry::default().with(far).unwrap();
    let model = script([Ok(calling([("1", "far", json!({}))])), Ok(says("well"))]);
    let asking = agent(&store, &model, &tools, &json!({})).unwrap();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::new(asking))
        .build()
        .unwrap();
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        eventually(|| async { !all(&store, "tool.request.v1").await.is_empty() }).await;
        let id = all(&store, "tool.request.v1").await[0].context["requestId"].clone();
        let forged =
            json!({"request_id": id, "tool": "far", "status": "success", "output": "forged"});
        let tag = format!("request:{}", id.as_str().unwrap());
        let forged = NewBreadcrumb::new("note.v1").tag(tag).context(forged);
        store.create(forged).await.unwrap();
        eventually(|| async { !all(&store, AgentExecutor::RESPONSE).await.is_empty() }).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert!(results(&model.requests()[1])[0].1.starts_with("timeout: "));
}

#[tokio::test(start_paused = true)]
async fn the_response_of_a_remote_tool_is_subject_to_its_size_limit() {
    let store = MemoryStore::default();
    let far = remote_tool("far", "Far away.", json!({})).max_output_bytes(10);
    let tools = ToolRegistry::default().with(far).unwrap();
    let model = script([Ok(calling([("1", "far", json!({}))])), Ok(says("well"))]);
    let asking = agent(&store, &model, &tools, &json!({})).unwrap();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::new(asking))
        .build()
        .unwrap();
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        eventually(|| async { !all(&store, "tool.request.v1").await.is_empty() }).await;
        let id = all(&store, "tool.request.v1").await[0].context["requestId"].clone();
        let long = json!({"request_id": id, "status": "success", "output": "x".repeat(100)});
        let tag = format!("request:{}", id.as_str().unwrap());
        let long = NewBreadcrumb::new("tool.response.v1")
            .tag(tag)
            .context(long);
        store.create(long).await.unwrap();
        eventually(|| async { !all(&store, AgentExecutor::RESPONSE).await.is_empty() }).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert!(
        results(&model.requests()[1])[0]
            .1
            .starts_with("output_too_large: ")
    );
}

#[test]
fn a_restriction_that_is_misspelt_or_leaves_no_answer_does_not_load() {
    let load = |more: Value| {
        let mut definition = json!({
            "agent_id": "worker", "llm_config_id": null,
            "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
        });
        let fields = definition.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        AgentDefinition::from_json(&definition).map_err(|error| error.to_string())
    };

    for (more, named) in [
        (json!({"aproval": {"tools": ["pay"]}}), "approval"),
        (json!({"budget": {"calls": 1}}), "budgets"),
        (json!({"sytem_prompt": "Be careful."}), "system_prompt"),
        (json!({"responds_with": ["note.v1"]}), "agent.response.v1"),
    ] {
        let error = load(more).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    load(json!({"responds_with": ["note.v1"], "capabilities": {}})).unwrap();
}
