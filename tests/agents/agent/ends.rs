//! Runs that end without an answer of the model.

use crate::agent::{
    Arc, MemoryStore, Outcome, SECOND, ScriptedModel, agent, answer, calling, count, echo, put,
    registry, says, script, sees, tool,
};
use serde_json::{Value, json};
use universal_executor::agent::{ChatResponse, Usage};
use universal_executor::store::FailureClass;
use universal_executor::tool::ToolRegistry;

/// Returns the message with which an agent answers when it gives up.
async fn failure_of(model: &Arc<ScriptedModel>, tools: &ToolRegistry, more: &Value) -> String {
    let store = MemoryStore::default();
    let worker = agent(&store, model, tools, more).unwrap();
    let question = put(&store, "question.v1", json!({})).await;

    let outcome = sees(&worker, &question).await.unwrap();

    let class = FailureClass::Permanent;
    assert!(
        matches!(&outcome, Outcome::Failed { class: found, .. } if *found == class),
        "{outcome:?}"
    );
    let answer = answer(&store).await;
    assert_eq!(answer["status"], "error");
    answer["message"].as_str().unwrap().to_owned()
}

/// Creates a model that calls a tool in every turn, at a cost of 10 tokens per turn.
fn restless() -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::answering(|_, _| {
        let called: ChatResponse = calling([("1", "add", json!({})), ("2", "add", json!({}))]);
        Ok(called.with_usage(Usage::new(7, 3)))
    }))
}

#[tokio::test]
async fn a_model_that_never_answers_is_asked_as_often_as_it_may_be_and_its_last_calls_are_not_made()
{
    for (more, turns) in [(json!({}), 10), (json!({"max_turns": 3}), 3)] {
        let ((add, added), model) = (echo("add"), restless());

        let message = failure_of(&model, &registry([add]), &more).await;

        assert_eq!(
            message,
            format!(
                "the agent has no final answer after {turns} turns, the maximum; raise \"max_turns\" of its definition"
            )
        );
        assert_eq!(model.requests().len(), turns);
        assert_eq!(count(&added), 2 * (turns - 1));
    }
}

#[tokio::test]
async fn a_budget_of_tokens_or_calls_ends_a_run_before_the_calls_that_are_too_many() {
    for (budgets, turns, calls) in [
        (json!({"tokens": 25}), 3, 4),
        (json!({"tokens": 30}), 3, 4),
        (json!({"calls": 4}), 3, 4),
        (json!({"calls": 5}), 3, 4),
        (json!({"calls": 1}), 1, 0),
    ] {
        let ((add, added), model) = (echo("add"), restless());

        let message = failure_of(&model, &registry([add]), &json!({"budgets": budgets})).await;

        assert!(message.contains("budget of"), "{message}");
        assert_eq!(
            (model.requests().len(), count(&added)),
            (turns, calls),
            "{budgets}"
        );
    }
}

#[tokio::test]
async fn a_final_answer_over_the_token_budget_is_accepted() {
    let store = MemoryStore::default();
    let model = script([Ok(says("done").with_usage(Usage::new(900, 100)))]);
    let more = json!({"max_turns": 1, "budgets": {"tokens": 10, "calls": 1, "seconds": 1}});
    let worker = agent(&store, &model, &ToolRegistry::default(), &more).unwrap();
    let question = put(&store, "question.v1", json!({})).await;

    sees(&worker, &question).await.unwrap();

    assert_eq!(answer(&store).await["message"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_seconds_ends_a_tool_that_takes_longer() {
    let (slow, slows) = tool("add", |_| async {
        tokio::time::sleep(4 * SECOND).await;
        Ok(json!("late"))
    });
    let model = restless();
    let more = json!({"budgets": {"seconds": 10}});

    let message = failure_of(&model, &registry([slow]), &more).await;

    assert_eq!(
        message,
        "the agent used its budget of 10 seconds without a final answer; raise \"budgets\" of its definition"
    );
    assert_eq!((model.requests().len(), count(&slows)), (3, 6));
}

#[tokio::test]
async fn a_conversation_over_the_size_limit_fails_the_run() {
    let (big, _) = tool("add", |_| async { Ok(json!("x".repeat(100 << 10))) });

    let message = failure_of(&restless(), &registry([big]), &json!({})).await;

    assert!(
        message.contains("the maximum is 1048576 bytes"),
        "{message}"
    );
}

#[tokio::test]
async fn a_result_that_is_too_large_for_a_turn_is_an_error_and_the_run_continues() {
    let (big, _) = tool("big", |_| async { Ok(json!("x".repeat(200 << 10))) });
    let big = big.max_output_bytes(1 << 20);
    let model = script([Ok(calling([("1", "big", json!({}))])), Ok(says("done"))]);

    crate::agent::answer_of(&model, &registry([big]), &json!({})).await;

    let requests = model.requests();
    let told = crate::agent::results(&requests[1]);
    assert!(told[0].1.starts_with("result_too_large: "), "{told:?}");
}
