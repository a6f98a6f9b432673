//! Chat turns that flows answer.

use super::{completed, next, rest, session};
use serde_json::json;
use std::sync::Arc;
use universal_executor::agent::{ChatResponse, ScriptedModel};
use universal_executor::client::{AnswerError, Client, Principal, TurnEvent};
use universal_executor::store::StoreWithEvents;
use universal_executor::workflow::Workflow;
use universal_executor::workload::{FlowDefinition, WorkloadExecutor};
use universal_executor::{BoxError, Runtime, Services, Subscription, Subscriptions};

/// Creates a flow with an agent step and a question to a person.
fn publisher<S: StoreWithEvents>(store: &S) -> Result<WorkloadExecutor, BoxError> {
    let steps = json!([
        {"id": "draft", "agent": "writer"},
        {"id": "verdict", "ask": "Publish it?", "of": ["ann"]},
        {"return": "${draft} ${verdict}"},
    ]);
    let workflow = json!({
        "agents": {"writer": {"instruction": "Write."}}, "flows": {"main": {"steps": steps}},
    });
    let definition = FlowDefinition::new("helper", Workflow::from_json(&workflow)?)?;
    let model = ScriptedModel::answering(|_, _| Ok(ChatResponse::new("Crabs.")));
    let services = Services::new().default_model(model);
    let subscriptions = Subscriptions::new([Subscription::trigger("user.message.v1")])?;
    let definition = Arc::new(definition);
    Ok(WorkloadExecutor::new(
        "helper",
        definition,
        &services,
        store,
        subscriptions,
    )?)
}

/// A flow's turn ends with the flow, not with the agent step in it and not while it waits for a person. An answer without an effect is an
/// error.
pub(crate) async fn a_turn_of_a_flow_ends_after_its_question<S: StoreWithEvents>(
    store: S,
    other: S,
) -> Result<(), BoxError> {
    let flow = publisher(&store)?;
    let running = Runtime::on(&store).executor(flow).start().await?;
    let mut turn = session(&other, "s-1")?.send("Write about crabs.").await?;
    let questions = Client::new(&other).questions();
    let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));

    let question = loop {
        match next(&mut turn).await?.event {
            TurnEvent::Question(question) => break question,
            TurnEvent::End(end) => return Err(format!("ended early: {end}").into()),
            _ => {}
        }
    };
    let error = questions.answer(&question.id, &bob, "no").await;
    let error = error.unwrap_err();
    assert!(matches!(error, AnswerError::NotAllowed { .. }), "{error:?}");
    let error = questions.approve(&question.id, &ann).await.unwrap_err();
    assert!(matches!(error, AnswerError::WrongKind { .. }), "{error:?}");
    questions.answer(&question.id, &ann, "yes").await?;
    let mut rest = rest(&mut turn).await?;
    let error = questions.answer(&question.id, &ann, "no").await;
    let error = error.unwrap_err();
    assert!(matches!(error, AnswerError::NotOpen { .. }), "{error:?}");

    assert_eq!(rest.pop(), Some(completed("Crabs. yes")));
    let is_end = |event: &TurnEvent| matches!(event, TurnEvent::End(_));
    assert!(!rest.iter().any(is_end), "{rest:?}");
    running.stop().await?;
    Ok(())
}
