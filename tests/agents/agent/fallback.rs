//! Agents whose model is a list of models that fail over.

use crate::agent::{
    Arc, MemoryStore, ModelError, SECOND, ScriptedModel, ToolRegistry, all, answer, calling, echo,
    event_of, put, registry, says, script,
};
use crate::support::log::Log;
use serde_json::{Value, json};
use std::error::Error as _;
use tokio::time::advance;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatEvent, FallbackModel, ModelPolicy, SharedLimits, StopReason,
};
use universal_executor::client::TurnEvent;
use universal_executor::executor::ExecutorError;
use universal_executor::store::{Fault, Faulty, Moment, Operation};
use universal_executor::{
    Breadcrumb, Client, Outcome, Runtime, Subscription, UniversalExecutor as _,
};

fn list(first: &Arc<ScriptedModel>, second: &Arc<ScriptedModel>) -> FallbackModel {
    let builder = FallbackModel::builder().model("large", Arc::clone(first));
    builder.model("small", Arc::clone(second)).build().unwrap()
}

fn agent(store: &MemoryStore, model: FallbackModel, tools: &ToolRegistry) -> AgentExecutor {
    let definition = json!({
        "agent_id": "worker", "system_prompt": "Work.", "tools": tools.names(),
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    let definition = AgentDefinition::from_json(&definition).unwrap();
    let (model, store) = (Arc::new(model), Arc::new(store.clone()));
    AgentExecutor::with_tools(definition, model, store, tools).unwrap()
}

async fn sees(agent: &AgentExecutor, breadcrumb: &Breadcrumb) -> Result<Outcome, ExecutorError> {
    agent.process_event(&event_of(breadcrumb)).await
}

#[tokio::test(start_paused = true)]
async fn the_response_and_the_span_name_the_models_that_failed_and_the_one_that_answered() {
    let (log, guard) = Log::capture(tracing::Level::DEBUG, FmtSpan::CLOSE);
    let store = MemoryStore::default();
    let (add, _) = echo("add");
    let tools = registry([add]);
    let large = script([
        Err(ModelError::overloaded(20 * SECOND)),
        Ok(says("not used")),
    ]);
    let small = script([
        Ok(calling([("1", "add", json!({"a": 1}))])),
        Ok(says("done")),
    ]);
    let worker = agent(&store, list(&large, &small), &tools);
    let question = put(&store, "question.v1", json!({})).await;

    sees(&worker, &question).await.unwrap();

    drop(guard);
    let answer = answer(&store).await;
    assert_eq!(answer["message"], "done");
    assert_eq!(
        answer["usage"]["models"],
        json!([
            {"model": "large", "answers": 0, "failures": {"overloaded": 2}},
            {"model": "small", "answers": 2},
        ])
    );
    assert_eq!(large.requests().len(), 1);
    let logged = log.text();
    for named in [
        "model=\"small\"",
        "failed_models=\"large (overloaded)\"",
        "a model failed; the request moves on",
    ] {
        assert!(logged.contains(named), "{named}: {logged}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_retried_when_the_first_model_of_the_list_can_work_again() {
    let store = MemoryStore::default();
    let large = script([
        Err(ModelError::rate_limited(600 * SECOND)),
        Ok(says("done")),
    ]);
    let small = script([Err(ModelError::overloaded(20 * SECOND)), Ok(says("done"))]);
    let worker = agent(&store, list(&large, &small), &ToolRegistry::default());
    let question = put(&store, "question.v1", json!({})).await;

    let error = sees(&worker, &question).await.unwrap_err();
    advance(10 * SECOND).await;
    sees(&worker, &question).await.ok();
    let requests = small.requests().len();
    advance(20 * SECOND).await;
    sees(&worker, &question).await.unwrap();

    let ExecutorError::Postponed { delay, source, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(delay, 20 * SECOND);
    let expected = "no model of the list can answer the request: large (rate_limited), small (overloaded); see the reason of each model";
    assert_eq!(source.source().unwrap().to_string(), expected);
    assert_eq!(requests, 1);
    assert_eq!(answer(&store).await["message"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_run_without_any_permitted_model_fails_with_the_reasons() {
    let store = MemoryStore::default();
    let [large, small] = [(); 2].map(|()| script([Err(ModelError::unauthorized())]));
    let worker = agent(&store, list(&large, &small), &ToolRegistry::default());
    let question = put(&store, "question.v1", json!({})).await;

    let outcome = sees(&worker, &question).await.unwrap();

    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    let dead = all(&store, "executor.failed.v1").await.remove(0);
    assert_eq!(dead.context["code"], "all_unavailable");
    let cause = dead.context["cause"].as_str().unwrap();
    assert!(
        cause.contains("large (unauthorized), small (unauthorized)"),
        "{cause}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_after_its_first_text_restarts_the_turn_visibly() {
    let large = Arc::new(ScriptedModel::streaming(|number, _| match number {
        1 => vec![
            Ok(ChatEvent::Text("It ra".into())),
            Err(ModelError::Unavailable("the connection broke".into())),
        ],
        _ => vec![Err(ModelError::overloaded(60 * SECOND))],
    }));
    let small = Arc::new(ScriptedModel::streaming(|_, _| {
        vec![
            Ok(ChatEvent::Text("It snows.".into())),
            Ok(ChatEvent::End(StopReason::Finished)),
        ]
    }));
    let store = MemoryStore::default();
    let helper = universal_executor::agent::Agent::new("helper", list(&large, &small))
        .on(Subscription::trigger("user.message.v1"));
    let running = Runtime::on(&store).agent(helper).start().await.unwrap();

    let session = Client::new(&store).session("helper", "s-1").unwrap();
    let mut turn = session.send("What is the weather?").await.unwrap();
    let mut seen = Vec::new();
    while let Some(next) = turn.next().await {
        match next.unwrap().event {
            TurnEvent::Text(text) => seen.push(text),
            TurnEvent::Restarted { attempt } => seen.push(format!("restarted {attempt}")),
            TurnEvent::End(end) => seen.push(format!("end {}", end.text().unwrap())),
            _ => {}
        }
    }
    running.stop().await.unwrap();

    assert_eq!(seen, ["It ra", "restarted 2", "It snows.", "end It snows."]);
    let usage: Value = answer(&store).await["usage"].clone();
    assert_eq!(
        usage["models"],
        json!([
            {"model": "large", "answers": 0, "failures": {"overloaded": 1}},
            {"model": "small", "answers": 1},
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_store_of_shared_limits_blocks_no_request_and_is_logged_once() {
    let (log, guard) = Log::capture(tracing::Level::WARN, FmtSpan::NONE);
    let store = MemoryStore::default();
    let faulty = Faulty::new(MemoryStore::default(), |operation, moment| {
        match (operation, moment) {
            (Operation::Search, Moment::Before) => Fault::Fail,
            _ => Fault::None,
        }
    });
    let small = Arc::new(ScriptedModel::answering(|_, _| Ok(says("done"))));
    let model = FallbackModel::builder()
        .model_with("small", small, ModelPolicy::new().requests_per_minute(60))
        .shared_limits(SharedLimits::new(Arc::new(faulty), "test"))
        .build()
        .unwrap();
    let worker = agent(&store, model, &ToolRegistry::default());

    for number in 0..3 {
        let question = put(&store, "question.v1", json!({"n": number})).await;
        sees(&worker, &question).await.unwrap();
        advance(SECOND).await;
    }

    drop(guard);
    let logged = log.text();
    let message = "the shared rate limits of the models are unavailable";
    assert_eq!(logged.matches(message).count(), 1, "{logged}");
}
