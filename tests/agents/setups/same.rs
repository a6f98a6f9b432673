//! The same conversation over different providers and tool locations has the same results.

use crate::setups::conversation::{CALL_RESULTS, EFFECTS, LAST, effect_lines};
use crate::setups::setup::{Endpoint, Scene, Setup};
use crate::setups::{Notes, approve, are_suspended, first, runtime};
use crate::support::put;
use serde_json::json;
use std::sync::atomic::Ordering;
use universal_executor::agent::AgentExecutor;

/// Has the conversation without a restart. One person answers both agents.
async fn have(scene: &Scene) {
    let store = &scene.store;
    let talk = async {
        put(store, "question.v1", json!({"q": 1})).await;
        for agent in ["worker", "payer"] {
            let asked = first(store, "human.request.v1", agent).await;
            approve(store, &asked).await;
        }
        first(store, AgentExecutor::RESPONSE, "worker").await;
    };
    runtime(store, scene.executors())
        .run_until(talk)
        .await
        .unwrap();
}

/// Has the conversation with new workers after each question. They start after the answer.
async fn have_with_restarts(scene: &Scene) {
    let store = &scene.store;
    for (agent, waiting) in [("worker", 1), ("payer", 2)] {
        let until_asked = async {
            if waiting == 1 {
                put(store, "question.v1", json!({"q": 1})).await;
            }
            first(store, "human.request.v1", agent).await;
            are_suspended(store, waiting).await;
        };
        runtime(store, scene.executors())
            .run_until(until_asked)
            .await
            .unwrap();
        let asked = first(store, "human.request.v1", agent).await;
        approve(store, &asked).await;
    }
    let until_answered = async { drop(first(store, AgentExecutor::RESPONSE, "worker").await) };
    runtime(store, scene.executors())
        .run_until(until_answered)
        .await
        .unwrap();
}

async fn check(scene: &Scene) {
    let response = first(&scene.store, AgentExecutor::RESPONSE, "worker").await;
    let field = |name: &str| response.context.get(name).cloned().unwrap_or_default();

    assert_eq!(effect_lines(&scene.effects.lock().unwrap()), EFFECTS);
    let results = scene.call_results();
    let results: Vec<_> = results.iter().map(|(id, text)| (&**id, &**text)).collect();
    assert_eq!(results, CALL_RESULTS);
    assert_eq!(field("status"), "success");
    assert_eq!(field("message"), LAST);
    assert_eq!(
        field("outputs"),
        json!({"completion-report": {"done": "all"}})
    );
    // Six calls by the agent and one by the agent that it calls.
    assert_eq!(scene.works.load(Ordering::SeqCst), 7);
}

/// Has the conversation without and with restarts, and checks the results.
async fn comes_to_the_same(setup: impl AsyncFn(&str) -> Setup) {
    let scene = Scene::new(setup("in-one-go").await);
    have(&scene).await;
    check(&scene).await;

    let scene = Scene::new(setup("with-restarts").await);
    have_with_restarts(&scene).await;
    check(&scene).await;
}

#[tokio::test(start_paused = true)]
async fn a_model_with_in_process_tools_produces_the_expected_result() {
    comes_to_the_same(async |_| Setup::InProcess).await;
}

#[tokio::test(start_paused = true)]
async fn tools_by_breadcrumbs_come_to_the_same() {
    comes_to_the_same(async |_| Setup::ToolsByBreadcrumbs).await;
}

#[tokio::test]
async fn a_model_behind_http_comes_to_the_same() {
    comes_to_the_same(async |_| Setup::Http(Endpoint::start().await)).await;
}

#[tokio::test]
async fn a_program_that_calls_back_comes_to_the_same() {
    comes_to_the_same(async |how| Setup::Program(Notes::new(how))).await;
}

#[tokio::test]
async fn a_program_whose_tools_are_behind_breadcrumbs_comes_to_the_same() {
    comes_to_the_same(async |how| {
        Setup::ProgramAndBreadcrumbs(Notes::new(&format!("elsewhere-{how}")))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_model_by_breadcrumbs_comes_to_the_same() {
    comes_to_the_same(async |_| Setup::ModelByBreadcrumbs).await;
}
