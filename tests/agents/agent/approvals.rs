//! Rules for calls that need a person's approval, and calls with arguments that a person changed.

use crate::agent::elsewhere::{agent_on, first, on_questions, person_says, runtime};
use crate::agent::{agent, calling, count, echo, registry, results, says, script, tool};
use crate::support::log::Log;
use crate::support::{all, eventually, put};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::agent::AgentExecutor;
use universal_executor::agent::guardrail::{Decision, Guardrails, on_tool_call};
use universal_executor::model::Timestamp;
use universal_executor::tool::{JsonTool, json_tool};
use universal_executor::{
    BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor,
};

const QUESTION: &str = "human.request.v1";

/// Returns a definition's approval rule for payments over an amount.
fn over(amount: u64, more: &Value) -> Value {
    let mut rule = json!({
        "tool": "pay", "when": [{"path": "$.amount", "op": "gt", "value": amount}],
    });
    let fields = rule.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    rule
}

/// Returns the tool `pay`, and the inputs of its calls.
fn pay() -> (JsonTool, Arc<Mutex<Vec<Value>>>) {
    let made = Arc::new(Mutex::new(Vec::new()));
    let payments = Arc::clone(&made);
    let schema = json!({"type": "object", "properties": {"amount": {"type": "integer"}}});
    let pay = json_tool("pay", "Pays an amount.", schema, move |input, _| {
        payments.lock().unwrap().push(input);
        async { Ok(json!("paid")) }
    });
    (pay, made)
}

/// The effects of one call of the tool `pay`.
struct Paid {
    /// The input of each call that ran.
    made: Vec<Value>,
    /// The tool result that the model received.
    told: String,
    /// The questions to people, oldest first.
    asked: Vec<Value>,
}

/// Lets an agent pay 500 and a person give these answers, each to the newest question.
async fn pays(guardrails: Guardrails, approval: Value, answers: &[Value]) -> Paid {
    let store = MemoryStore::default();
    let (pay, made) = pay();
    let model = script([
        Ok(calling([("1", "pay", json!({"amount": 500}))])),
        Ok(says("well")),
    ]);
    let more = json!({"approval": approval});
    let agent = agent(&store, &model, &registry([pay]), &more).unwrap();
    let agent = Arc::new(agent.with_guardrails(guardrails));
    let runtime = runtime(&store, [agent as _]);
    let until = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        for (at, answer) in answers.iter().enumerate() {
            eventually(|| async { all(&store, QUESTION).await.len() > at }).await;
            let asked = store.latest(QUESTION).await.unwrap().unwrap();
            person_says(&store, &asked, answer.clone()).await;
        }
        first(&store, AgentExecutor::RESPONSE).await;
    };
    runtime.run_until(until).await.unwrap();
    let told = model.requests().remove(1);
    let asked = all(&store, QUESTION).await.into_iter().rev();
    Paid {
        made: made.lock().unwrap().clone(),
        told: results(&told)[0].1.to_owned(),
        asked: asked.map(|one| one.context.clone().into_value()).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_question_of_a_rule_is_open_for_the_time_of_the_rule() {
    let store = MemoryStore::default();
    let (pay, payments) = echo("pay");
    let model = script([
        Ok(calling([("1", "pay", json!({"amount": 101}))])),
        Ok(says("well")),
    ]);
    let rule = over(100, &json!({"expires_in_seconds": 60}));
    let more = json!({"approval": {"tools": [rule]}});
    let tools = registry([pay]);
    let agent = agent_on(&store, "worker", &on_questions(), &model, &tools, &more);
    let runtime = runtime(&store, [agent as _]);
    // Without the rule, the run would wait for a day, which is longer than the timeout of `first`.
    let until = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };
    runtime.run_until(until).await.unwrap();

    let asked = first(&store, QUESTION).await;
    let expires = asked.context["expires_at"].as_str().unwrap();
    let expires: Timestamp = expires.parse().unwrap();
    assert!(expires <= asked.updated_at + Duration::from_secs(61));
    assert_eq!(count(&payments), 0);
    let told = model.requests().remove(1);
    assert!(results(&told)[0].1.starts_with("expired: "));
}

#[tokio::test(start_paused = true)]
async fn a_call_for_which_no_rule_holds_is_made_without_a_question() {
    let rules = json!({"tools": [over(500, &json!({}))]});

    let paid = pays(Guardrails::default(), rules, &[]).await;

    assert_eq!(paid.made, [json!({"amount": 500})]);
    assert_eq!((&*paid.told, paid.asked.len()), ("paid", 0));
}

#[tokio::test(start_paused = true)]
async fn a_question_shows_the_people_the_schema_and_the_rules_for_changed_arguments() {
    let rules = json!({
        "tools": [over(100, &json!({"by": ["ann", "bob"]})), over(1_000, &json!({})), "pay"],
        "by": ["ann"],
    });

    let paid = pays(Guardrails::default(), rules, &[json!({"approved": true})]).await;

    let asked = &paid.asked[0];
    assert_eq!(asked["of"], json!(["ann"]));
    assert_eq!(asked["changeable"], true);
    assert_eq!(asked["arguments_schema"]["type"], "object");
    let rule = |amount: u64, by: Value| json!({"when": [{"path": "$.amount", "op": "gt", "value": amount}], "by": by});
    let rules = json!([
        rule(100, json!(["ann", "bob"])),
        rule(1_000, json!(["ann"])),
        {"by": ["ann"]},
    ]);
    assert_eq!(asked["change_rules"], rules);
    assert_eq!(paid.made, [json!({"amount": 500})]);
}

#[tokio::test(start_paused = true)]
async fn an_approval_with_changed_arguments_makes_and_reports_the_changed_call() {
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);
    let answer = json!({"approved": true, "arguments": {"amount": 5}});

    let paid = pays(Guardrails::default(), json!({"tools": ["pay"]}), &[answer]).await;

    assert_eq!(paid.made, [json!({"amount": 5})]);
    let told: Value = serde_json::from_str(&paid.told).unwrap();
    assert_eq!(
        (&told["result"], &told["arguments"]["amount"]),
        (&json!("paid"), &json!(5))
    );
    assert_eq!(paid.asked.len(), 1);
    assert!(!log.text().contains("does not count"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn arguments_that_are_sent_back_unchanged_are_not_changed() {
    let answer = json!({"approved": true, "arguments": {"amount": 500}});

    let paid = pays(Guardrails::default(), json!({"tools": ["pay"]}), &[answer]).await;

    assert_eq!((&*paid.told, paid.made.len()), ("paid", 1));
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_pass_the_guardrails_of_calls() {
    let limit = || {
        Guardrails::default().with(on_tool_call("limit", |_, arguments| {
            match arguments["amount"] == 60 {
                true => Decision::deny("an odd amount"),
                false => Decision::Allow,
            }
        }))
    };
    let answer = json!({"approved": true, "arguments": {"amount": 60}});

    let paid = pays(limit(), json!({"tools": ["pay"]}), &[answer]).await;

    assert!(paid.made.is_empty());
    assert!(
        paid.told.starts_with("denied: ") && paid.told.contains("an odd amount"),
        "{}",
        paid.told
    );
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_that_a_guardrail_replaces_need_a_new_approval() {
    let rounds = || {
        Guardrails::default().with(on_tool_call("rounds", |_, arguments| {
            match arguments["amount"] == 61 {
                true => Decision::Replace(json!({"amount": 60}).into()),
                false => Decision::Allow,
            }
        }))
    };
    let changed = json!({"approved": true, "arguments": {"amount": 61}});
    let approved = json!({"approved": true});
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);

    let paid = pays(rounds(), json!({"tools": ["pay"]}), &[changed, approved]).await;

    let shown: Vec<_> = paid
        .asked
        .iter()
        .map(|one| &one["arguments"]["amount"])
        .collect();
    assert_eq!(shown, [&json!(500), &json!(60)]);
    assert_eq!(paid.made, [json!({"amount": 60})]);
    let reason = "a guardrail replaced the approved arguments";
    expect_asked_again(&log.text(), &[reason]);
}

#[tokio::test(start_paused = true)]
async fn each_question_about_a_call_has_its_own_id_if_a_guardrail_restores_the_asked_arguments() {
    let restores = Guardrails::default().with(on_tool_call("restores", |_, arguments| {
        match arguments["amount"] == 61 {
            true => Decision::Replace(json!({"amount": 500}).into()),
            false => Decision::Allow,
        }
    }));
    let changed = json!({"approved": true, "arguments": {"amount": 61}});
    let answers = [changed.clone(), changed, json!({"approved": true})];

    let paid = pays(restores, json!({"tools": ["pay"]}), &answers).await;

    assert_eq!(paid.asked.len(), 3);
    let mut ids: Vec<_> = paid.asked.iter().map(|one| &one["requestId"]).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert!(
        paid.asked
            .iter()
            .all(|one| one["arguments"] == json!({"amount": 500}))
    );
    assert_eq!(paid.made, [json!({"amount": 500})]);
}

#[cfg(feature = "validate")]
#[tokio::test(start_paused = true)]
async fn changed_arguments_that_do_not_fit_the_schema_are_an_error_that_the_model_sees() {
    let answer = json!({"approved": true, "arguments": {"amount": "many"}});

    let paid = pays(Guardrails::default(), json!({"tools": ["pay"]}), &[answer]).await;

    assert!(paid.made.is_empty());
    assert!(
        paid.told.starts_with("invalid_input: ") && paid.told.contains("many"),
        "{}",
        paid.told
    );
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_do_not_count_if_a_rule_for_them_does_not_permit_the_person() {
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);
    let rules = json!({"tools": [
        over(100, &json!({"by": ["ann"]})), over(1_000, &json!({"by": ["bob"]})),
    ]});
    let store = MemoryStore::default();
    let (pay, made) = pay();
    let model = script([
        Ok(calling([("1", "pay", json!({"amount": 500}))])),
        Ok(says("well")),
    ]);
    let more = json!({"approval": rules});
    let tools = registry([pay]);
    let agent = agent_on(&store, "worker", &on_questions(), &model, &tools, &more);
    let runtime = runtime(&store, [agent as _]);
    let until = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        let asked = first(&store, QUESTION).await;
        for arguments in [json!({"amount": 5_000}), json!({"amount": "5"})] {
            let answer = json!({"approved": true, "arguments": arguments});
            person_says(&store, &asked, answer).await;
        }
        let not_permitted = "the rules for the changed arguments do not permit the person";
        eventually(|| async { log.text().matches(not_permitted).count() >= 2 }).await;
        person_says(&store, &asked, json!({"approved": false})).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };
    runtime.run_until(until).await.unwrap();

    assert!(made.lock().unwrap().is_empty());
    let told = model.requests().remove(1);
    assert!(results(&told)[0].1.starts_with("rejected: "));
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_need_a_new_approval_after_a_definition_change() {
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);
    let store = MemoryStore::default();
    let (pay, made) = pay();
    let tools = registry([pay]);
    let model = script([
        Ok(calling([("1", "pay", json!({"amount": 500}))])),
        Ok(says("paid")),
    ]);
    let of = |turns: u32| {
        let more = json!({"approval": {"tools": ["pay"]}, "max_turns": turns});
        agent_on(&store, "worker", &on_questions(), &model, &tools, &more)
    };
    let question = put(&store, "question.v1", json!({"q": 1})).await;
    let event = Event::created(&question);
    of(5).process_event(&event).await.unwrap();
    let asked = first(&store, QUESTION).await;

    let runtime = runtime(&store, [of(6) as _]);
    let until = async {
        let changed = json!({"approved": true, "arguments": {"amount": 5}});
        person_says(&store, &asked, changed).await;
        eventually(|| async { all(&store, QUESTION).await.len() == 2 }).await;
        assert!(made.lock().unwrap().is_empty());
        let again = store.latest(QUESTION).await.unwrap().unwrap();
        assert_eq!(again.context["arguments"], json!({"amount": 5}));
        let id = again.context.text("requestId").unwrap();
        expect_asked_again(
            &log.text(),
            &[
                "agent=\"worker\"",
                &format!("trigger={}", question.id),
                "tool=\"pay\"",
                &format!("request_id=\"{id}\""),
                "the tool, its rules or the agent definition changed since the question",
            ],
        );
        person_says(&store, &again, json!({"approved": true})).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };
    runtime.run_until(until).await.unwrap();

    assert_eq!(*made.lock().unwrap(), [json!({"amount": 5})]);
}

/// Checks that a log has exactly one line about an approval that does not count, and that the line contains these parts.
fn expect_asked_again(log: &str, parts: &[&str]) {
    let message = "an approval does not count, because its digest is not that of the call";
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(message)).collect();
    let [line] = *lines else {
        panic!("{log}");
    };
    for part in parts {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_that_hints_exclude_are_not_used() {
    let store = MemoryStore::default();
    let hints = json!({"llm_hints": {"exclude": ["arguments"]}});
    let definition = NewBreadcrumb::new("schema.def.v1").tag("defines:human.response.v1");
    store.create(definition.context(hints)).await.unwrap();
    let (pay, payments) = tool("pay", |_| async { Ok(json!("paid")) });
    let model = script([
        Ok(calling([("1", "pay", json!({"amount": 500}))])),
        Ok(says("well")),
    ]);
    let more = json!({"approval": {"tools": ["pay"]}});
    let tools = registry([pay]);
    let agent = agent_on(&store, "worker", &on_questions(), &model, &tools, &more);
    let runtime = runtime(&store, [agent as _]);
    let until = async {
        put(&store, "question.v1", json!({"q": 1})).await;
        let asked = first(&store, QUESTION).await;
        let changed = json!({"approved": true, "arguments": {"amount": 4_711}});
        person_says(&store, &asked, changed).await;
        first(&store, AgentExecutor::RESPONSE).await;
    };
    runtime.run_until(until).await.unwrap();

    assert_eq!(count(&payments), 0);
    let told = model.requests().remove(1);
    let told = results(&told)[0].1;
    assert!(
        told.starts_with("withheld: ") && !told.contains("4711"),
        "{told}"
    );
}
