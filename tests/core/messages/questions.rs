//! Errors of approvals and of questions to people.

use crate::support::eventually;
use serde_json::{Value, json};
use std::time::Duration;
use universal_executor::agent::{Agent, ChatResponse, ScriptedModel, ToolCall};
use universal_executor::client::{
    AnswerError, Client, ClientError, Principal, QuestionState, QuestionView,
};
use universal_executor::model::Timestamp;
use universal_executor::tool::{Approval, json_tool};
use universal_executor::{MemoryStore, NewBreadcrumb, Runtime, Subscription};

const LONG: Duration = Duration::from_secs(120);

/// Creates an agent that makes one payment, which Ann has to approve.
fn teller() -> Agent {
    let pay = json_tool("pay", "Pays.", json!({"type": "object"}), |_, _| async {
        Ok(json!("paid"))
    });
    let model = ScriptedModel::answering(|_, request| {
        let mut messages = request.messages.iter();
        let is_paid = messages.any(|message| message.call_id().is_some());
        Ok(match is_paid {
            true => ChatResponse::new("Paid."),
            false => ChatResponse::calling(vec![ToolCall::new("1", "pay", json!({"amount": 5}))]),
        })
    });
    Agent::new("teller", model)
        .on(Subscription::trigger("payment.v1"))
        .tool(pay.needs_approval(Approval::always().by("ann")))
}

/// Waits until a question is open, and returns the question.
async fn asked(client: &Client) -> QuestionView {
    let open = async || client.questions().open().await.unwrap();
    eventually(async || !open().await.is_empty()).await;
    open().await.remove(0)
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_an_effect_names_the_question_and_the_reason() {
    let store = MemoryStore::default();
    let running = Runtime::on(&store).agent(teller()).start().await.unwrap();
    let client = Client::new(&store);
    let request = client.request("teller", NewBreadcrumb::new("payment.v1"));
    let request = request.send().await.unwrap();
    let (id, questions) = (asked(&client).await.id, client.questions());
    let (ann, ben) = (Principal::new("ann"), Principal::new("ben"));

    let not_allowed = questions.approve(&id, &ben).await.unwrap_err();
    let wrong_kind = questions.answer(&id, &ann, "yes").await.unwrap_err();
    let invalid = questions.approve_with(&id, &ann, Value::Null).await;
    let invalid = invalid.unwrap_err();
    questions.approve(&id, &ann).await.unwrap();
    request.wait(LONG).await.unwrap();
    let not_open = questions.reject(&id, &ann, "too late").await.unwrap_err();

    let QuestionState::Answered { at, .. } = questions.state(&id).await.unwrap() else {
        panic!("question {id} is not answered");
    };
    let invalid_problem =
        "the changed arguments are null; use approve for the arguments in the question";
    for (error, expected) in [
        (
            not_allowed,
            format!("person \"ben\" may not answer question {id:?}; allowed: ann"),
        ),
        (
            wrong_kind,
            format!(
                "question {id:?} cannot be answered with the called method of Questions; use approve, approve_with and reject"
            ),
        ),
        (
            invalid,
            format!("the answer to question {id:?} is not valid: {invalid_problem}"),
        ),
        (
            not_open,
            format!("question {id:?} is not open: ann answered it at {at}"),
        ),
    ] {
        assert_eq!(error.to_string(), expected);
    }
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_unknown_question_is_named_with_the_field_to_pass() {
    let client = Client::new(&MemoryStore::default());

    let error = client.questions().get("q-1").await.unwrap_err();

    let expected =
        "no question to a person has the ID \"q-1\"; pass the field `id` of a QuestionView";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_error_of_a_question_that_is_hard_to_provoke_names_the_question_too() {
    let id = "q-1".to_owned();
    let at: Timestamp = "2026-11-21T20:33:40Z".parse().unwrap();
    for (error, expected) in [
        (
            AnswerError::Ambiguous { id: id.clone() },
            "the question ID \"q-1\" is ambiguous, because several executors have asked a question with this ID; delete all of these question breadcrumbs except one".to_owned(),
        ),
        (
            AnswerError::Expired { id: id.clone(), at },
            format!("question \"q-1\" expired at {at}, so the answer has no effect; send a new request to the executor"),
        ),
        (
            AnswerError::NotChangeable { id },
            "cannot change the tool call arguments in question \"q-1\"; approve or reject the tool call".to_owned(),
        ),
        (
            AnswerError::Client(ClientError::NoLedger),
            "cannot read a question to a person, or store its answer; see the cause".to_owned(),
        ),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}

#[cfg(feature = "workloads")]
#[test]
fn an_unknown_ticket_is_named_with_the_field_to_pass() {
    let ticket = "t-1".to_owned();
    let error = universal_executor::workload::TurnAnswerError::Unknown { ticket };

    let expected = "no question has the ticket \"t-1\"; pass the field `requestId` of the question's human.request.v1 breadcrumb";
    assert_eq!(error.to_string(), expected);
}
