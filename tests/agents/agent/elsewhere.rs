//! Work that an agent delegates to tools by breadcrumbs, other agents and people. Its run is suspended meanwhile.

use crate::agent::{answer, calling, count, echo, registry, results, says, script, tool};
#[cfg(feature = "validate")]
use crate::support::log::Log;
use crate::support::{all, eventually, put};
use serde_json::{Value, json};
use std::sync::Arc;
#[cfg(feature = "validate")]
use tracing::Level;
#[cfg(feature = "validate")]
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::store::RunState;
#[cfg(feature = "validate")]
use universal_executor::tool::deferred;
use universal_executor::tool::{Approval, Question, ToolDispatcher, ToolRegistry, ask_human};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Runtime,
    UniversalExecutor,
};

/// Creates an agent with this name and trigger.
pub(crate) fn agent_on(
    store: &(impl BreadcrumbStore + Clone),
    name: &str,
    trigger: &Value,
    model: &Arc<ScriptedModel>,
    tools: &ToolRegistry,
    more: &Value,
) -> Arc<AgentExecutor> {
    let mut definition = json!({
        "agent_id": name, "system_prompt": "Work.", "tools": tools.names(),
        "subscriptions": [trigger],
    });
    let fields = definition.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let definition = AgentDefinition::from_json(&definition).unwrap();
    let store = Arc::new(store.clone());
    let model = Arc::clone(model) as _;
    Arc::new(AgentExecutor::with_tools(definition, model, store, tools).unwrap())
}

pub(crate) fn on_questions() -> Value {
    json!({"schema_name": "question.v1", "role": "trigger"})
}

/// Returns the trigger of an agent that serves requests of other agents.
pub(crate) fn on_requests_for(name: &str) -> Value {
    json!({
        "schema_name": "agent.request.v1", "role": "trigger",
        "context_match": [{"path": "$.agent", "op": "eq", "value": name}],
    })
}

pub(crate) fn runtime(
    store: &MemoryStore,
    executors: impl IntoIterator<Item = Arc<dyn UniversalExecutor>>,
) -> Runtime {
    let builder = executors
        .into_iter()
        .fold(Runtime::builder(store.events()), |builder, executor| {
            builder.executor(executor)
        });
    builder.build().unwrap()
}

/// Waits until a breadcrumb of a schema exists, and returns the newest.
pub(crate) async fn first(store: &MemoryStore, schema: &str) -> Arc<Breadcrumb> {
    eventually(|| async { !all(store, schema).await.is_empty() }).await;
    all(store, schema).await.remove(0)
}

/// Writes a person's answer to a question.
pub(crate) async fn person_says(store: &MemoryStore, asked: &Breadcrumb, more: Value) {
    let mut context = json!({"request_id": asked.context["requestId"]});
    let fields = context.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let tag = format!("request:{}", asked.context.text("requestId").unwrap());
    let said = NewBreadcrumb::new("human.response.v1")
        .tag(tag)
        .created_by("ann")
        .context(context);
    store.create(said).await.unwrap();
}

pub(crate) async fn suspended(store: &MemoryStore) -> usize {
    let filter = universal_executor::store::RunFilter::all().state(RunState::Suspended);
    store.ledger().unwrap().runs(&filter).await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn tools_that_are_called_by_breadcrumbs_give_the_results_that_they_give_in_process() {
    let told = async |how: &str| {
        let store = MemoryStore::default();
        let (upper, uppers) = tool("upper", |input| async move {
            Ok(input["text"].as_str().unwrap().to_uppercase().into())
        });
        let (fails, _) = tool("fails", |_| async { Err("no such city".into()) });
        let tools = registry([upper, fails]);
        let model = script([
            Ok(calling([
                ("1", "upper", json!({"text": "a"})),
                ("2", "fails", json!({})),
                ("3", "upper", json!({"text": "b"})),
            ])),
            Ok(says("done")),
        ]);
        let agent = agent_on(
            &store,
            "worker",
            &on_questions(),
            &model,
            &tools,
            &json!({"tool_calls": how}),
        );
        let served = ToolDispatcher::new("tools", tools, Arc::new(store.clone())).unwrap();
        let runtime = runtime(&store, [agent as _, Arc::new(served) as _]);
        let asked = async {
            put(&store, "question.v1", json!({"q": 1})).await;
            first(&store, AgentExecutor::RESPONSE).await;
        };

        runtime.run_until(asked).await.unwrap();

        assert_eq!(count(&uppers), 2);
        assert_eq!(answer(&store).await["message"], "done");
        let requests = all(&store, "tool.request.v1").await.len();
        let last = model.requests().remove(1);
        let told: Vec<_> = results(&last)
            .into_iter()
            .map(|(id, text, is_error)| (id.to_owned(), text.to_owned(), is_error))
            .collect();
        (told, requests)
    };

    let (in_process, none) = told("in_process").await;
    let (by_breadcrumbs, three) = told("breadcrumbs").await;

    assert_eq!(in_process, by_breadcrumbs);
    assert_eq!((none, three), (0, 3));
    assert_eq!(in_process[0].1, "A");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_needs_approval_waits_for_a_person_and_is_made_once() {
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let tools = registry([pay]);
    let model = script([
        Ok(calling([("1", "pay", json!({"to": "ann", "amount": 7}))])),
        Ok(says("paid")),
    ]);
    let more = json!({"approval": {"tools": ["pay"]}});
    let agent = agent_on(&store, "worker", &on_questions(), &model, &tools, &more);
    let runtime = runtime(&store, [agent as _]);
    let asked = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        let asked = first(&store, "human.request.v1").await;
        assert_eq!(asked.context["tool"], "pay");
        assert_eq!(
            asked.context["arguments"],
            json!({"to": "ann", "amount": 7})
        );
        eventually(|| async { suspended(&store).await == 1 }).await;
        assert_eq!(count(&payments), 0);
        person_says(&store, &asked, json!({"approved": true})).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(count(&payments), 1);
    assert_eq!(answer(&store).await["message"], "paid");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_call_is_not_made_and_the_model_receives_the_reason() {
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let tools = registry([pay.needs_approval(Approval::always())]);
    let model = script([Ok(calling([("1", "pay", json!({}))])), Ok(says("well"))]);
    let agent = agent_on(
        &store,
        "worker",
        &on_questions(),
        &model,
        &tools,
        &json!({}),
    );
    let runtime = runtime(&store, [agent as _]);
    let asked = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        let asked = first(&store, "human.request.v1").await;
        let says = json!({"decision": "reject", "comment": "too much"});
        person_says(&store, &asked, says).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(count(&payments), 0);
    let told = model.requests().remove(1);
    let (_, text, is_error) = results(&told)[0];
    assert!(
        is_error && text.contains("rejected") && text.contains("too much"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_approval_in_time_expires_and_is_not_made() {
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let tools = registry([pay]);
    let model = script([Ok(calling([("1", "pay", json!({}))])), Ok(says("well"))]);
    let more = json!({"approval": {"tools": ["pay"]}, "wait_seconds": {"people": 60}});
    let agent = agent_on(&store, "worker", &on_questions(), &model, &tools, &more);
    let runtime = runtime(&store, [agent as _]);
    let asked = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(count(&payments), 0);
    let told = model.requests().remove(1);
    assert!(results(&told)[0].1.starts_with("expired: "));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_does_not_answer_the_question_approves_nothing() {
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let tools = registry([pay]);
    let model = script([
        Ok(calling([("1", "pay", json!({"n": 1}))])),
        Ok(says("paid")),
    ]);
    let more = json!({"approval": {"tools": ["pay"], "by": ["ann"]}});
    let agent = agent_on(&store, "worker", &on_questions(), &model, &tools, &more);
    let runtime = runtime(&store, [agent as _]);
    let asked = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        let asked = first(&store, "human.request.v1").await;
        let id = asked.context.text("requestId").unwrap().to_owned();
        let forged = |by: &str, context: Value| {
            let forged = NewBreadcrumb::new("human.response.v1").created_by(by);
            forged.tag(format!("request:{id}")).context(context)
        };
        for forged in [
            forged("eve", json!({"request_id": id, "approved": true})),
            forged("ann", json!({"request_id": "other", "approved": true})),
            forged(
                "ann",
                json!({"request_id": id, "approved": true, "digest": "other"}),
            ),
            forged("ann", json!({"request_id": id, "approved": "yes"})),
            forged(
                "ann",
                json!({"request_id": id, "approved": true, "creator": {"type": "agent"}}),
            ),
        ] {
            store.create(forged).await.unwrap();
        }
        person_says(&store, &asked, json!({"approved": false})).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(count(&payments), 0);
}

#[tokio::test(start_paused = true)]
async fn an_approval_is_of_the_call_that_the_person_saw() {
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let tools = registry([pay]);
    let model = script([
        Ok(calling([("1", "pay", json!({"n": 1}))])),
        Ok(says("paid")),
    ]);
    let more = json!({"approval": {"tools": ["pay"]}, "max_turns": 5});
    let other = json!({"approval": {"tools": ["pay"]}, "max_turns": 6});
    let before = agent_on(&store, "worker", &on_questions(), &model, &tools, &more);
    let after = agent_on(&store, "worker", &on_questions(), &model, &tools, &other);
    let question = put(&store, "question.v1", json!({"q": 1})).await;
    before
        .process_event(&Event::created(&question))
        .await
        .unwrap();
    let asked = first(&store, "human.request.v1").await;

    // The agent's definition changes while the question is open.
    let runtime = runtime(&store, [after as _]);
    let again = async {
        person_says(&store, &asked, json!({"approved": true})).await;
        eventually(|| async { all(&store, "human.request.v1").await.len() == 2 }).await;
        assert_eq!(count(&payments), 0);
        let again = store.latest("human.request.v1").await.unwrap().unwrap();
        assert_ne!(again.context["digest"], asked.context["digest"]);
        person_says(&store, &again, json!({"approved": true})).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };
    runtime.run_until(again).await.unwrap();

    assert_eq!(count(&payments), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_ask_a_person_and_the_answer_is_its_result() {
    let store = MemoryStore::default();
    let (asks, _) = tool("asks", |_| async {
        Err(ask_human(Question::new("Which one?").options(["a", "b"])))
    });
    let tools = registry([asks]);
    let model = script([Ok(calling([("1", "asks", json!({}))])), Ok(says("b it is"))]);
    let agent = agent_on(
        &store,
        "worker",
        &on_questions(),
        &model,
        &tools,
        &json!({}),
    );
    let runtime = runtime(&store, [agent as _]);
    let asked = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        let asked = first(&store, "human.request.v1").await;
        assert_eq!(asked.context["question"], "Which one?");
        assert_eq!(asked.context["options"], json!(["a", "b"]));
        person_says(&store, &asked, json!({"answer": "b"})).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(results(&model.requests()[1])[0].1, "b");
}

#[cfg(feature = "validate")]
#[tokio::test(start_paused = true)]
async fn the_log_shows_nothing_of_an_answer_schema_that_cannot_be_used() {
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);
    let store = MemoryStore::default();
    let (asks, _) = tool("asks", |_| async {
        let schema = json!({"type": "SECRET"});
        let question = json!({"question": "Which one?", "schema": schema});
        Err(deferred("question", question))
    });
    let tools = registry([asks]);
    let model = script([Ok(calling([("1", "asks", json!({}))])), Ok(says("b it is"))]);
    let agent = agent_on(
        &store,
        "worker",
        &on_questions(),
        &model,
        &tools,
        &json!({}),
    );
    let runtime = runtime(&store, [agent as _]);
    let asked = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        let asked = first(&store, "human.request.v1").await;
        assert!(asked.context.get("schema").is_none());
        person_says(&store, &asked, json!({"answer": "b"})).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };

    runtime.run_until(asked).await.unwrap();

    let log = log.text();
    assert!(log.contains("the question omits the schema"), "{log}");
    assert!(!log.contains("SECRET"), "{log}");
}

/// Runs a calling agent and a specialist that may pay, while the calling agent may not.
async fn with_specialist(
    field: &str,
    called: &str,
    answers: &[&str],
) -> (Value, usize, Arc<ScriptedModel>) {
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let tools = registry([pay]);
    let last = answers.iter().map(|text| Ok(says(text)));
    let asked = calling([("1", called, json!({"prompt": "Pay Ann."}))]);
    let model = script([Ok(asked)].into_iter().chain(last));
    let specialist = script([
        Ok(calling([("1", "pay", json!({"n": 1}))])),
        Ok(says("It is paid.")),
    ]);
    let none = ToolRegistry::default();
    let caller = agent_on(
        &store,
        "worker",
        &on_questions(),
        &model,
        &none,
        &json!({field: ["payer"]}),
    );
    let payer = agent_on(
        &store,
        "payer",
        &on_requests_for("payer"),
        &specialist,
        &tools,
        &json!({}),
    );
    let runtime = runtime(&store, [caller as _, payer as _]);
    let asked = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        let theirs = async || {
            let found = all(&store, AgentExecutor::RESPONSE).await;
            found
                .into_iter()
                .find(|found| found.created_by.as_deref() == Some("worker"))
        };
        eventually(|| async { theirs().await.is_some() }).await;
        theirs().await.unwrap().context.clone().into_value()
    };
    let mut response = None;

    runtime
        .run_until(async { response = Some(asked.await) })
        .await
        .unwrap();

    (response.unwrap(), count(&payments), model)
}

#[tokio::test(start_paused = true)]
async fn an_agent_used_as_a_tool_has_its_own_permissions() {
    let (response, payments, model) = with_specialist("use", "payer", &["She is paid."]).await;

    assert_eq!(response["message"], "She is paid.");
    assert_eq!(payments, 1);
    let offered: Vec<_> = model.requests()[0]
        .tools
        .iter()
        .map(|tool| tool.name.clone())
        .collect();
    assert_eq!(offered, ["payer"]);
    assert_eq!(results(&model.requests()[1])[0].1, "It is paid.");
}

#[tokio::test(start_paused = true)]
async fn a_handoff_returns_to_the_calling_agent() {
    let (response, payments, model) =
        with_specialist("handoff", "handoff-to-payer", &["She is paid."]).await;

    assert_eq!(
        (&response["message"], payments),
        (&json!("She is paid."), 1)
    );
    assert_eq!(results(&model.requests()[1])[0].1, "It is paid.");
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_the_delegate_is_the_final_answer() {
    let (response, payments, model) = with_specialist("delegate", "delegate-to-payer", &[]).await;

    assert_eq!((&response["message"], payments), (&json!("It is paid."), 1));
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delegating_agent_is_reminded_of_its_output_after_the_delegate_answers() {
    let store = MemoryStore::default();
    let delegates = calling([("1", "delegate-to-payer", json!({"prompt": "Pay Ann."}))]);
    let reports = calling([("2", "report", json!({"done": true}))]);
    let model = script([Ok(delegates), Ok(reports), Ok(says("Reported."))]);
    let specialist = script([Ok(says("It is paid."))]);
    let none = ToolRegistry::default();
    let more = json!({"delegate": ["payer"], "outputs": [{"name": "report", "required": true}]});
    let caller = agent_on(&store, "worker", &on_questions(), &model, &none, &more);
    let on_requests = on_requests_for("payer");
    let payer = agent_on(
        &store,
        "payer",
        &on_requests,
        &specialist,
        &none,
        &json!({}),
    );
    let runtime = runtime(&store, [caller as _, payer as _]);
    let asked = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        eventually(|| async { all(&store, AgentExecutor::RESPONSE).await.len() == 2 }).await;
    };

    runtime.run_until(asked).await.unwrap();

    let reminded = model.requests().remove(1);
    let [.., called, told, reminder] = &*reminded.messages else {
        panic!("{reminded:?}")
    };
    assert_eq!(called.tool_calls().len(), 1);
    assert_eq!(told.text(), "It is paid.");
    assert!(reminder.text().contains("report"));
    let response = store
        .latest(AgentExecutor::RESPONSE)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        response.context["outputs"],
        json!({"report": {"done": true}})
    );
}

#[tokio::test]
async fn outputs_are_handed_in_once_and_missed_if_they_are_not() {
    let outputs = json!({"outputs": [{
        "name": "completion-report", "description": "What was done.", "required": true,
        "schema": {"type": "object", "required": ["done"]},
    }]});
    let report = |id, done: &str| (id, "completion-report", json!({"done": done}));
    let handed_in = script([
        Ok(says("I am done.")),
        Ok(calling([report("1", "all"), report("2", "more")])),
        Ok(says("Here it is.")),
    ]);
    let forgotten = script([Ok(says("I am done.")), Ok(says("Really."))]);

    let with = crate::agent::answer_of(&handed_in, &ToolRegistry::default(), &outputs).await;
    let without = crate::agent::answer_of(&forgotten, &ToolRegistry::default(), &outputs).await;

    assert_eq!(with["status"], "success");
    assert_eq!(
        with["outputs"],
        json!({"completion-report": {"done": "all"}})
    );
    let told = handed_in.requests().remove(2);
    assert_eq!(
        results(&told).iter().map(|told| told.2).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(without["status"], "incomplete");
    assert_eq!(without["missing"], json!(["completion-report"]));
    let reminded = forgotten.requests().remove(1);
    assert!(
        reminded
            .messages
            .last()
            .unwrap()
            .text()
            .contains("completion-report")
    );
}

#[tokio::test]
async fn results_for_the_user_are_the_answer_unless_something_else_was_called_or_failed() {
    let (draw, _) = tool("draw", |input| async move { Ok(input["of"].clone()) });
    let (fails, _) = tool("fails", |_| async { Err("no paper".into()) });
    let (other, _) = echo("other");
    let tools = registry([draw.returns_to_user(), fails.returns_to_user(), other]);
    let cat = |id| (id, "draw", json!({"of": "a cat"}));
    let alone = script([Ok(calling([cat("1")]))]);
    let mixed = script([
        Ok(calling([cat("1"), ("2", "other", json!({}))])),
        Ok(says("There.")),
    ]);
    let failed = script([
        Ok(calling([cat("1"), ("2", "fails", json!({}))])),
        Ok(says("Sorry.")),
    ]);

    let alone = crate::agent::answer_of(&alone, &tools, &json!({})).await;
    let mixed = crate::agent::answer_of(&mixed, &tools, &json!({})).await;
    let failed = crate::agent::answer_of(&failed, &tools, &json!({})).await;

    assert_eq!(alone["message"], "a cat");
    assert_eq!(
        alone["results"],
        json!([{"tool": "draw", "output": "a cat"}])
    );
    assert_eq!(
        (&mixed["message"], &failed["message"]),
        (&json!("There."), &json!("Sorry."))
    );
}
