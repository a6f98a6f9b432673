//! Questions that flows ask people, including approvals of tool steps.

use super::super::{LONG, open_question};
use super::{Payments, made};
use serde_json::json;
use std::sync::Arc;
use universal_executor::client::{AnswerError, Client, Principal};
use universal_executor::store::StoreWithEvents;
use universal_executor::tool::{Approval, json_tool};
use universal_executor::workflow::Workflow;
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{BoxError, NewBreadcrumb, Runtime, Services};

/// Creates a flow that requests a city from a person and makes a payment after an approval.
fn paying_flow<S: StoreWithEvents>(
    store: &S,
    payments: &Payments,
) -> Result<WorkloadExecutor, BoxError> {
    let payments = Arc::clone(payments);
    let pay = json_tool("pay", "Pays an amount.", json!({}), move |input, _| {
        payments.lock().unwrap().push(input);
        async { Ok(json!("paid")) }
    });
    let steps = json!([
        {"id": "city", "ask": "Which city?", "of": ["ann"]},
        {"id": "receipt", "tool": "pay", "input": {"amount": 7}},
        {"return": "${city}: ${receipt}"},
    ]);
    let workflow = json!({"tools": {"pay": {}}, "flows": {"main": {"steps": steps}}});
    let workflow = Workflow::from_json(&workflow)?;
    let services = Services::new().tool(pay.needs_approval(Approval::always().by("ann")))?;
    Ok(WorkloadExecutor::of_workflow(
        "flow", workflow, &services, store,
    )?)
}

/// Each question of a flow accepts one answer, also a question about a tool step. Any later answer is an error.
pub(crate) async fn the_questions_of_a_flow_are_answered_once<S: StoreWithEvents>(
    store: S,
    other: S,
) -> Result<(), BoxError> {
    let payments = Payments::default();
    let flow = paying_flow(&store, &payments)?;
    let running = Runtime::on(&store).executor(flow).start().await?;
    let client = Client::new(&store);
    let wish = json!({"workflow": "flow", "input": {}});
    let wish = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(wish);
    let request = client.request("flow", wish).send().await?;
    let questions = Client::new(&other).questions();
    let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));

    let city = open_question(&client).await?;
    let error = questions.approve(&city.id, &ann).await.unwrap_err();
    assert!(matches!(error, AnswerError::WrongKind { .. }), "{error:?}");
    let error = questions.answer(&city.id, &bob, "Rome").await.unwrap_err();
    assert!(matches!(error, AnswerError::NotAllowed { .. }), "{error:?}");
    questions.answer(&city.id, &ann, "Bern").await?;
    let error = questions.answer(&city.id, &ann, "Rome").await.unwrap_err();
    let is_expected = matches!(&error, AnswerError::NotOpen { by: Some(by), .. } if by == "ann");
    assert!(is_expected, "{error:?}");

    let payment = open_question(&client).await?;
    let error = questions.answer(&payment.id, &ann, "yes").await;
    let error = error.unwrap_err();
    assert!(matches!(error, AnswerError::WrongKind { .. }), "{error:?}");
    assert!(made(&payments).is_empty());
    questions.approve(&payment.id, &ann).await?;
    let reply = request.wait(LONG).await?;
    let error = questions.reject(&payment.id, &ann, "no").await.unwrap_err();
    assert!(matches!(error, AnswerError::NotOpen { .. }), "{error:?}");

    let result = reply.response().ok_or("no result")?;
    assert_eq!(result.context["output"], "Bern: paid");
    assert_eq!(made(&payments), [json!({"amount": 7})]);
    assert!(questions.open().await?.is_empty());
    running.stop().await?;
    Ok(())
}
