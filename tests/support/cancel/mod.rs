//! Cancellation of runs in each state, on every store: while their worker is alive, after it was killed, and while their executor
//! is paused.

mod children;
#[cfg(feature = "workflows")]
mod flows;
mod harness;
mod unreceived;

pub(crate) use children::{
    an_agent_is_cancelled_with_the_agent_that_it_asked,
    an_agent_that_was_asked_continues_without_the_other_agent, the_question_of_a_child_is_closed,
};
#[cfg(feature = "workflows")]
pub(crate) use flows::{
    a_flow_is_cancelled_with_its_tool_call_elsewhere,
    a_tool_call_elsewhere_continues_without_its_flow,
};
pub(crate) use unreceived::{
    a_later_version_of_a_cancelled_trigger_is_executed,
    a_request_that_races_with_a_worker_is_cancelled_or_answered,
    a_run_that_no_worker_has_received_is_cancelled,
    a_run_that_was_cancelled_before_any_worker_can_be_redone,
    a_run_without_its_trigger_is_not_cancelled, a_turn_that_no_worker_has_received_is_cancelled,
};

use crate::client::{ask, reaches, says, teller};
use crate::worker::SubjectWithEvents;
use harness::{Block, BlockedModel, CancelHarness, Condition, LEASE};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use universal_executor::agent::{Agent, ChatModel, ScriptedModel};
use universal_executor::client::{AnswerError, Cascade, Client, Principal, QuestionView};
use universal_executor::executor::Executor;
use universal_executor::runtime::RuntimeBuilder;
use universal_executor::store::{Faulty, RunState};
use universal_executor::tool::json_tool;
use universal_executor::{
    BoxError, BreadcrumbStoreExt as _, NewBreadcrumb, Response, Subscription, executor,
};

fn order() -> NewBreadcrumb {
    NewBreadcrumb::new("order.v1").context(json!({"message": "Help."}))
}

/// Creates an executor that blocks. It executes one run at a time.
fn clerk(block: &Block) -> Executor {
    executor("clerk")
        .on(Subscription::trigger("order.v1"))
        .profile(|profile| profile.lease(LEASE).max_inflight(1))
        .state(block.clone())
        .execute(|_, block| async move {
            block.pass().await;
            Ok(Response::none())
        })
}

/// Creates an agent that does the same work as the [`clerk`], in its model or in a tool.
fn clerk_with(model: impl ChatModel + 'static) -> Agent {
    Agent::new("clerk", model)
        .on(Subscription::trigger("order.v1"))
        .profile(|profile| profile.lease(LEASE))
}

/// Cancels the clerk's only run while the run blocks, and expects that the future of its work is dropped.
async fn blocked_work_is_dropped<S, A>(
    subject: &S,
    condition: Condition,
    block: &Block,
    add: A,
) -> Result<(), BoxError>
where
    S: SubjectWithEvents,
    A: Fn(RuntimeBuilder, &Faulty<S::Store>) -> Result<RuntimeBuilder, BoxError>,
{
    let mut harness = CancelHarness::start(subject, condition, add).await?;
    let request = harness.send("clerk", order()).await?;
    block.wait_until_started().await?;

    harness.apply_condition(&["clerk"]).await?;
    let ended = harness.cancel(&request, Cascade::Run).await?;
    assert_eq!(ended, 1, "{condition:?}");
    block.dropped().await?;

    harness.recover(&["clerk"]).await?;
    block.release();
    harness.works("clerk", order()).await?;
    assert_eq!(
        block.started(),
        2,
        "{condition:?}: one start for each request"
    );
    harness.finish(&request).await
}

/// A ready run that is cancelled never starts.
pub(crate) async fn a_ready_run_is_cancelled<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    for condition in Condition::ALL {
        let block = Block::default();
        let add = |builder: RuntimeBuilder, _: &Faulty<S::Store>| {
            Ok::<_, BoxError>(builder.executor(clerk(&block)))
        };
        let mut harness = CancelHarness::start(subject, condition, add).await?;
        let running = harness.send("clerk", order()).await?;
        block.wait_until_started().await?;
        let ready = harness.send("clerk", order()).await?;
        reaches(&ready, &harness.client, RunState::Ready).await?;

        harness.apply_condition(&["clerk"]).await?;
        let ended = harness.cancel(&ready, Cascade::Run).await?;
        assert_eq!(ended, 1, "{condition:?}");
        let ended = harness.client.cancel(running.run(), Cascade::Run).await?;
        assert_eq!(ended, 1, "{condition:?}");
        block.dropped().await?;

        harness.recover(&["clerk"]).await?;
        block.release();
        harness.works("clerk", order()).await?;
        assert_eq!(
            block.started(),
            2,
            "{condition:?}: only the first and the last run start"
        );
        harness.finish(&ready).await?;
    }
    Ok(())
}

/// Cancellation drops the future of a running executor.
pub(crate) async fn a_running_run_is_cancelled<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    for condition in Condition::ALL {
        let block = Block::default();
        blocked_work_is_dropped(subject, condition, &block, |builder, _| {
            Ok(builder.executor(clerk(&block)))
        })
        .await?;
    }
    Ok(())
}

/// Cancellation drops the future of an agent's tool call.
pub(crate) async fn a_run_in_a_tool_call_is_cancelled<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    for condition in Condition::ALL {
        let block = Block::default();
        blocked_work_is_dropped(subject, condition, &block, |builder, _| {
            let block = block.clone();
            let tool = json_tool("block", "Blocks.", json!({}), move |_, _| {
                let block = block.clone();
                async move {
                    block.pass().await;
                    Ok(json!("done"))
                }
            });
            let model = ScriptedModel::calling("block", json!({}), "Done.");
            Ok(builder.agent(clerk_with(model).tool(tool)))
        })
        .await?;
    }
    Ok(())
}

/// Cancellation drops the future of a model call.
pub(crate) async fn a_run_in_a_model_call_is_cancelled<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    for condition in Condition::ALL {
        let block = Block::default();
        blocked_work_is_dropped(subject, condition, &block, |builder, _| {
            Ok(builder.agent(clerk_with(BlockedModel(block.clone()))))
        })
        .await?;
    }
    Ok(())
}

/// Fails unless the store refuses an answer to a question because its run was cancelled.
async fn assert_closed(client: &Client, question: &QuestionView) {
    let answered = client.questions().approve(&question.id, &ann()).await;
    let error = answered.unwrap_err();
    let is_closed = matches!(
        &error,
        AnswerError::NotOpen {
            run: Some(RunState::Failed),
            by: None,
            ..
        }
    );
    assert!(is_closed, "{error:?}");
}

/// Returns a person with permission to approve payments.
fn ann() -> Principal {
    Principal::new("ann").with_role("finance")
}

/// Cancellation closes the question of a suspended run. A later answer does not continue the run.
pub(crate) async fn a_suspended_run_is_cancelled<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    for condition in Condition::ALL {
        let payments = Arc::default();
        let add = |builder: RuntimeBuilder, _: &Faulty<S::Store>| {
            Ok::<_, BoxError>(builder.agent(teller(&payments)?))
        };
        let mut harness = CancelHarness::start(subject, condition, add).await?;
        let (request, question) = ask(&harness.client).await?;

        harness.apply_condition(&["teller"]).await?;
        let ended = harness.cancel(&request, Cascade::Run).await?;
        assert_eq!(ended, 1, "{condition:?}");
        assert_closed(&harness.client, &question).await;
        let answer = json!({"request_id": question.id, "approved": true, "principal": ann()});
        let answer = NewBreadcrumb::new("human.response.v1").context(answer);
        let answer = answer.tag(format!("request:{}", question.id));
        harness.store.create(answer.created_by("ann")).await?;

        harness.recover(&["teller"]).await?;
        let (other, question) = ask(&harness.client).await?;
        let questions = harness.client.questions();
        questions.approve(&question.id, &ann()).await?;
        assert_eq!(says(&other).await?, "Done.");
        let payments = payments.load(Ordering::SeqCst);
        assert_eq!(
            payments, 1,
            "{condition:?}: only the other run makes its payment"
        );
        harness.finish(&request).await?;
    }
    Ok(())
}

/// Defines a module with one test per scenario. Each test runs its scenario on fresh stores of a subject.
macro_rules! cancels {
    ($name:ident, $subject:expr) => {
        mod $name {
            use super::*;

            $crate::cancel::cancels! { @each $subject,
                a_ready_run_is_cancelled
                a_running_run_is_cancelled
                a_run_in_a_tool_call_is_cancelled
                a_run_in_a_model_call_is_cancelled
                a_suspended_run_is_cancelled
                a_run_that_no_worker_has_received_is_cancelled
                a_run_that_was_cancelled_before_any_worker_can_be_redone
                a_later_version_of_a_cancelled_trigger_is_executed
                a_run_without_its_trigger_is_not_cancelled
                a_request_that_races_with_a_worker_is_cancelled_or_answered
                a_turn_that_no_worker_has_received_is_cancelled
                an_agent_is_cancelled_with_the_agent_that_it_asked
                an_agent_that_was_asked_continues_without_the_other_agent
                #[cfg(feature = "workflows")]
                a_flow_is_cancelled_with_its_tool_call_elsewhere
                #[cfg(feature = "workflows")]
                a_tool_call_elsewhere_continues_without_its_flow
                the_question_of_a_child_is_closed
            }
        }
    };
    (@each $subject:expr, $($(#[$attribute:meta])* $scenario:ident)+) => {
        $(
            $(#[$attribute])*
            #[tokio::test]
            async fn $scenario() -> Result<(), universal_executor::BoxError> {
                $crate::cancel::$scenario(&$subject).await
            }
        )+
    };
}
pub(crate) use cancels;
