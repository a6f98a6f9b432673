//! Approval rules of tools in flows.

use super::*;
use crate::log::Log;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::agent::guardrail::{Decision, on_tool_call};
use universal_executor::model::Condition;

const ASKED: &str = "human.request.v1";

/// Creates an approval rule for payments over `amount`.
fn over(amount: u64) -> Approval {
    Approval::when_args(Condition::new("$.amount", "gt", Some(json!(amount))))
}

/// Creates a world whose flow pays with a tool that has these rules and returns its input.
fn paying(rules: impl IntoIterator<Item = Approval>) -> (World, Arc<AtomicUsize>) {
    let (pay, calls) = tool("pay", |_, input| Ok(input));
    let pay = rules.into_iter().fold(pay, JsonTool::needs_approval);
    let definition = flow(
        &json!({"tools": {"pay": {}}}),
        json!([{"tool": "pay", "input": {"amount": "${input.amount}"}}]),
    );
    (World::new(&definition, registry([pay]), no_model()), calls)
}

/// Writes a person's answer to a question.
async fn says(world: &World, asked: &Breadcrumb, name: &str, more: Value) {
    let id = asked.context.text("requestId").unwrap();
    let mut context = json!({"request_id": id});
    let fields = context.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let answer = NewBreadcrumb::new("human.response.v1")
        .tag(format!("request:{id}"))
        .created_by(name)
        .context(context);
    world.store.create(answer).await.unwrap();
}

#[tokio::test]
async fn a_tool_step_asks_only_when_a_rule_of_its_tool_holds() {
    let (small, calls) = paying([over(100)]);
    let output = small.result_of(json!({"amount": 100})).await;
    assert_eq!(output["output"], json!({"amount": 100}));
    assert!(small.store.recent(ASKED, 10).await.unwrap().is_empty());
    assert_eq!(calls.load(Ordering::SeqCst), 1);

    for amount in [json!(101), json!("1")] {
        let (large, calls) = paying([over(100)]);
        large.request(json!({"amount": amount})).await;
        let asked = large.works_until(ASKED, 1).await;
        assert_eq!(asked.context["arguments"], json!({"amount": amount}));
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        says(&large, &asked, "ann", json!({"approved": true})).await;
        let result = large.works_until(RESULT, 1).await;
        assert_eq!(result.context["output"], json!({"amount": amount}));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_tool_step_needs_an_approval_that_satisfies_every_rule_of_the_tool() {
    let rules = [over(10).by("ann").by("bob"), over(100).by("bob").by("eve")];
    let (world, calls) = paying(rules);
    world.request(json!({"amount": 500})).await;
    let asked = world.works_until(ASKED, 1).await;

    for (number, name) in ["ann", "eve", "zoe"].into_iter().enumerate() {
        says(&world, &asked, name, json!({"approved": true})).await;
        world.works_until("human.response.v1", number + 1).await;
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    says(&world, &asked, "bob", json!({"approved": true})).await;
    world.works_until(RESULT, 1).await;

    assert_eq!(asked.context["of"], json!(["ann", "bob"]));
    assert_eq!(asked.context["also_of"], json!([["bob", "eve"]]));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_question_of_a_tool_step_is_open_for_the_time_of_the_rule() {
    let (world, calls) = paying([Approval::always().expires_in(60 * SECOND)]);
    world.request(json!({"amount": 1})).await;
    let runtime = Runtime::builder(world.store.events())
        .start_at(StartAt::Beginning)
        .executor(world.executor.clone())
        .build()
        .unwrap();

    // Without the rule, the step would wait for a week.
    runtime
        .run_until(tokio::time::sleep(600 * SECOND))
        .await
        .unwrap();

    let result = world.result().await;
    assert_eq!(result["error"]["code"], "expired");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_person_changes_the_input_of_a_tool_step() {
    let (world, calls) = paying([over(100).by("ann"), over(1_000).by("bob")]);
    world.request(json!({"amount": 500})).await;
    let asked = world.works_until(ASKED, 1).await;

    let large = json!({"approved": true, "arguments": {"amount": 5_000}});
    says(&world, &asked, "ann", large).await;
    world.works_until("human.response.v1", 1).await;
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let small = json!({"approved": true, "arguments": {"amount": 50}});
    says(&world, &asked, "ann", small).await;
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(asked.context["changeable"], true);
    assert_eq!(result.context["output"], json!({"amount": 50}));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(world.store.recent(ASKED, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_question_that_a_step_asks_again_can_be_answered_if_a_guardrail_restores_the_asked_input()
{
    let restores = on_tool_call("restores", |_, input| match input["amount"] == 61 {
        true => Decision::Replace(json!({"amount": 500}).into()),
        false => Decision::Allow,
    });
    let (pay, calls) = tool("pay", |_, input| Ok(input));
    let definition = flow(
        &json!({"tools": {"pay": {}}, "policies": {"guardrails": {"tool_call": ["restores"]}}}),
        json!([{"tool": "pay", "input": {"amount": "${input.amount}"}}]),
    );
    let services = Services::new()
        .tools(registry([pay.needs_approval(Approval::always())]))
        .guardrail(restores);
    let world = World::with_services(&definition, &services, Arc::new(no_model()));
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);
    world.request(json!({"amount": 500})).await;
    let asked = world.works_until(ASKED, 1).await;

    let changed = json!({"approved": true, "arguments": {"amount": 61}});
    says(&world, &asked, "ann", changed).await;
    assert!(!log.text().contains("an approval does not count"));
    let again = world.works_until(ASKED, 2).await;
    let text = log.text();
    let line = text
        .lines()
        .find(|line| line.contains("an approval does not count"));
    let line = line.unwrap_or_else(|| panic!("the expected log line is missing: {text}"));
    assert!(line.contains("tool=\"pay\""), "{line}");
    assert_ne!(again.context["requestId"], asked.context["requestId"]);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    says(&world, &again, "ann", json!({"approved": true})).await;
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], json!({"amount": 500}));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn changed_input_that_hints_exclude_fails_the_step() {
    let (world, calls) = paying([Approval::always()]);
    let hints = json!({"llm_hints": {"exclude": ["arguments"]}});
    let definition = NewBreadcrumb::new("schema.def.v1").tag("defines:human.response.v1");
    let definition = definition.context(hints);
    world.store.create(definition).await.unwrap();
    world.request(json!({"amount": 5})).await;
    let asked = world.works_until(ASKED, 1).await;

    let changed = json!({"approved": true, "arguments": {"amount": 4}});
    says(&world, &asked, "ann", changed).await;
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["error"]["code"], "withheld");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}
