//! Answers belong to the request that a run wrote, and decisions to an unchanged question. The tags, IDs and creators of a payload do
//! not prove this.

use crate::agent::elsewhere::{
    agent_on, first, on_questions, on_requests_for, person_says, runtime, suspended,
};
use crate::agent::{calling, count, echo, registry, results, says, script};
use crate::support::log::Log;
use crate::support::{Probe, all, eventually, put};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::agent::AgentExecutor;
use universal_executor::client::{AnswerError, Client};
use universal_executor::store::WithLedger;
use universal_executor::tool::{Approval, ToolDispatcher, ToolRegistry};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Patch,
    Response, UniversalExecutor,
};

/// Lets an agent request a payment approval and then runs `happens`. Returns the number of payments and the results for its model.
pub(super) async fn asked_to_pay(
    happens: impl AsyncFn(&MemoryStore, &Breadcrumb),
) -> (usize, Vec<(String, bool)>) {
    let store = MemoryStore::default();
    asked_to_pay_on(&store, &store, &store, happens).await
}

/// Does the same as [`asked_to_pay`] for executors on a given store, whose breadcrumbs and runs are in separate stores.
async fn asked_to_pay_on(
    of_executors: &(impl BreadcrumbStore + Clone),
    store: &MemoryStore,
    ledger: &MemoryStore,
    happens: impl AsyncFn(&MemoryStore, &Breadcrumb),
) -> (usize, Vec<(String, bool)>) {
    let (pay, payments) = echo("pay");
    let model = script([Ok(calling([("1", "pay", json!({}))])), Ok(says("well"))]);
    let tools = registry([pay.needs_approval(Approval::always())]);
    let agent = agent_on(
        of_executors,
        "worker",
        &on_questions(),
        &model,
        &tools,
        &json!({"wait_seconds": {"people": 60}}),
    );
    let probe = Probe::on("go.v1", "probe", of_executors).responding(|trigger, _| {
        let id = serde_json::from_value(trigger.context["id"].clone())?;
        let tags = [trigger.context.text("tag").unwrap_or_default()];
        Ok(Response::update(id, 1, Patch::new().tags(tags)))
    });
    let runtime = runtime(store, [agent as _, probe.shared() as _]);
    let until = async {
        put(store, "question.v1", json!({"q": 1})).await;
        eventually(|| async { suspended(ledger).await == 1 }).await;
        let asked = first(store, "human.request.v1").await;
        happens(store, &asked).await;
        first(store, AgentExecutor::RESPONSE).await;
    };
    runtime.run_until(until).await.unwrap();
    let told = model.requests().remove(1);
    let told = results(&told).into_iter();
    let told = told.map(|(_, text, is_error)| (text.to_owned(), is_error));
    (count(&payments), told.collect())
}

#[tokio::test(start_paused = true)]
async fn an_executor_cannot_make_an_approval_of_a_breadcrumb_from_outside() {
    let store = MemoryStore::default();
    let ledger = MemoryStore::default();
    let both = WithLedger::new(store.clone(), ledger.clone());
    // An approval with the tag of another request resumes no run until the executor gives it the right tag.
    let patched = async |store: &MemoryStore, asked: &Breadcrumb| {
        let id = asked.context.text("requestId").unwrap();
        let draft = NewBreadcrumb::new("human.response.v1")
            .tag("request:other")
            .context(json!({"request_id": id, "approved": true}));
        let draft = store.create(draft).await.unwrap();
        let go = json!({"id": draft.id, "tag": format!("request:{id}")});
        put(store, "go.v1", go).await;
    };
    for records_writers in [true, false] {
        let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);

        let (payments, told) = match records_writers {
            true => asked_to_pay(patched).await,
            false => asked_to_pay_on(&both, &store, &ledger, patched).await,
        };

        assert_eq!(payments, 0);
        assert!(told[0].1 && told[0].0.contains("in time"), "{told:?}");
        let reason = "the answer was changed after it was written";
        assert!(log.text().contains(reason), "{}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_answer_counts_for_neither_the_run_nor_the_client() {
    let (payments, _) = asked_to_pay(async |store, asked| {
        let id = asked.context.text("requestId").unwrap();
        // An answer with the tag of another request resumes no run until it has the right tag.
        let draft = NewBreadcrumb::new("human.response.v1")
            .created_by("ann")
            .tag("request:other")
            .context(json!({"request_id": id, "approved": false}));
        let draft = store.create(draft).await.unwrap();
        let patch = Patch::new().tags([format!("request:{id}")]);
        store.update(draft.id, 1, patch).await.unwrap();

        let questions = Client::new(store).questions();
        assert_eq!(questions.open().await.unwrap().len(), 1);
        questions.approve(id, &"bob".into()).await.unwrap();
    })
    .await;

    assert_eq!(payments, 1);
}

#[tokio::test(start_paused = true)]
async fn a_decision_on_a_question_that_was_changed_does_not_count() {
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);

    let (payments, told) = asked_to_pay(async |store, asked| {
        let mut shown = asked.context.clone().into_value();
        shown["arguments"] = json!({"amount": 1});
        let patch = Patch::new().context(shown);
        store.update(asked.id, asked.version, patch).await.unwrap();
        person_says(store, asked, json!({"approved": true})).await;
    })
    .await;

    assert_eq!(payments, 0);
    assert!(told[0].1 && told[0].0.contains("in time"), "{told:?}");
    assert!(log.text().contains("changed or deleted"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_question_neither_hides_nor_replaces_it() {
    let (payments, _) = asked_to_pay(async |store, asked| {
        let copy = NewBreadcrumb::new("human.request.v1")
            .tags(asked.tags.clone())
            .context(asked.context.clone());
        for _ in 0..300 {
            store.create(copy.clone()).await.unwrap();
        }
        person_says(store, asked, json!({"approved": true})).await;
    })
    .await;
    assert_eq!(payments, 1);

    let (payments, _) = asked_to_pay(async |store, asked| {
        store.delete(asked.id).await.unwrap();
        let copy = NewBreadcrumb::new("human.request.v1")
            .tags(asked.tags.clone())
            .context(asked.context.clone());
        store.create(copy).await.unwrap();
        person_says(store, asked, json!({"approved": true})).await;
    })
    .await;
    assert_eq!(payments, 0);
}

#[tokio::test(start_paused = true)]
async fn an_approval_of_the_question_of_another_executor_with_the_same_id_does_not_count() {
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let model = script([
        Ok(calling([("1", "pay", json!({"amount": 500}))])),
        Ok(says("well")),
    ]);
    let tools = registry([pay.needs_approval(Approval::always())]);
    let none = json!({});
    let agent = agent_on(&store, "worker", &on_questions(), &model, &tools, &none);
    let forger = Probe::on("forge.v1", "forger", &store).responding(|trigger, _| {
        let shown = trigger.context["shown"].clone();
        let id = shown["requestId"].as_str().unwrap_or_default();
        let copy = NewBreadcrumb::new("human.request.v1").tag(format!("request:{id}"));
        Ok(Response::create(copy.context(shown)))
    });
    let runtime = runtime(&store, [agent as _, forger.shared() as _]);
    let until = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        eventually(|| async { suspended(&store).await == 1 }).await;
        let asked = first(&store, "human.request.v1").await;
        let mut shown = asked.context.clone().into_value();
        shown["arguments"] = json!({"amount": 5});
        shown.as_object_mut().unwrap().remove("creator");
        put(&store, "forge.v1", json!({"shown": shown})).await;
        eventually(|| async { all(&store, "human.request.v1").await.len() == 2 }).await;
        let both = all(&store, "human.request.v1").await;
        let forged = both.iter().find(|one| one.id != asked.id).unwrap();

        let id = asked.context.text("requestId").unwrap();
        let questions = Client::new(&store).questions();
        let error = questions.approve(id, &"ann".into()).await.unwrap_err();
        assert!(matches!(error, AnswerError::Ambiguous { .. }), "{error:?}");
        let approval = |of: &Arc<Breadcrumb>| json!({"approved": true, "question": of.id});
        person_says(&store, &asked, approval(forged)).await;
        eventually(|| async { log.text().contains("is not the question of this run") }).await;
        assert_eq!(count(&payments), 0);
        person_says(&store, &asked, approval(&asked)).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };
    runtime.run_until(until).await.unwrap();

    assert_eq!(count(&payments), 1);
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_another_request_with_the_same_id_does_not_count() {
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);
    let store = MemoryStore::default();
    let (search, searches) = echo("search");
    let model = script([
        Ok(calling([("1", "search", json!({"for": "real"}))])),
        Ok(says("well")),
    ]);
    let tools = registry([search]);
    let more = json!({"tool_calls": "breadcrumbs"});
    let agent = agent_on(&store, "worker", &on_questions(), &model, &tools, &more);
    let asks = runtime(&store, [agent as _]);
    let until = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        eventually(|| async { suspended(&store).await == 1 }).await;
    };
    asks.run_until(until).await.unwrap();
    let asked = first(&store, "tool.request.v1").await;
    let mut forged = asked.context.clone().into_value();
    forged["input"] = json!({"for": "forged"});
    let copy = NewBreadcrumb::new("tool.request.v1").tags(asked.tags.clone());
    let copy = store.create(copy.context(forged)).await.unwrap();

    // The forged request is answered before the real one.
    let tools_of = Arc::new(store.clone());
    let served = ToolDispatcher::new("tools", tools.clone(), tools_of).unwrap();
    let serve = async |request: &Breadcrumb| {
        served
            .process_event(&Event::created(request))
            .await
            .unwrap();
    };
    serve(&copy).await;
    let agent = agent_on(&store, "worker", &on_questions(), &model, &tools, &more);
    let goes_on = runtime(&store, [agent as _]);
    let until = async {
        eventually(|| async { log.text().contains("not the request of this run") }).await;
        assert!(all(&store, AgentExecutor::RESPONSE).await.is_empty());
        serve(&asked).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };
    goes_on.run_until(until).await.unwrap();

    assert_eq!(count(&searches), 2);
    let told = model.requests().remove(1);
    assert!(results(&told)[0].1.contains("real"), "{:?}", results(&told));
}

/// The ledger is separate from the store, so the hops and the correlation of the answer come from the message.
#[tokio::test(start_paused = true)]
async fn an_answer_to_a_forged_message_does_not_answer_the_run() {
    let (log, _guard) = Log::capture(Level::DEBUG, FmtSpan::NONE);
    let store = MemoryStore::default();
    let both = WithLedger::new(store.clone(), MemoryStore::default());
    let none = ToolRegistry::default();
    let model = script([
        Ok(calling([("1", "helper", json!({"prompt": "Well?"}))])),
        Ok(says("done")),
    ]);
    let more = json!({"use": ["helper"]});
    let caller = agent_on(&both, "worker", &on_questions(), &model, &none, &more);
    let helps = script([Ok(says("forged")), Ok(says("real"))]);
    let on_messages = json!({"schema_name": "user.message.v1", "role": "trigger"});
    let early = agent_on(&both, "helper", &on_messages, &helps, &none, &json!({}));
    let first_half = runtime(&store, [caller as _, early as _]);
    let until = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        eventually(|| async { !all(&store, "agent.request.v1").await.is_empty() }).await;
        let asked = first(&store, "agent.request.v1").await;
        let creator: Value = asked.context["creator"].clone();
        let message = NewBreadcrumb::new("user.message.v1")
            .tags(asked.tags.clone())
            .context(json!({"message": "Say forged.", "creator": creator}));
        store.create(message).await.unwrap();
        first(&store, AgentExecutor::RESPONSE).await;
    };
    first_half.run_until(until).await.unwrap();

    let caller = agent_on(&both, "worker", &on_questions(), &model, &none, &more);
    let on_requests = on_requests_for("helper");
    let helper = agent_on(&both, "helper", &on_requests, &helps, &none, &json!({}));
    let second_half = runtime(&store, [caller as _, Arc::clone(&helper) as _]);
    let until = async {
        let asked = first(&store, "agent.request.v1").await;
        // The request is announced again, because this helper handles requests only from now on.
        helper.process_event(&Event::created(&asked)).await.unwrap();
        eventually(|| async { all(&store, AgentExecutor::RESPONSE).await.len() == 3 }).await;
    };
    let until = async {
        tokio::time::timeout(Duration::from_secs(60), until)
            .await
            .unwrap()
    };
    second_half.run_until(until).await.unwrap();

    let told = model.requests().remove(1);
    assert!(results(&told)[0].1.contains("real"), "{:?}", results(&told));
    let by_creator = "the store does not record writers";
    assert!(log.text().contains(by_creator), "{}", log.text());
}
