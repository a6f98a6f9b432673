//! Cancellation of agents that wait for other agents.

use super::harness::{Block, BlockedModel, CancelHarness, Condition, LEASE};
use super::{ann, assert_closed};
use crate::client::{LONG, open_question, reaches};
use crate::worker::SubjectWithEvents;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use universal_executor::agent::{Agent, ChatModel, ScriptedModel};
use universal_executor::client::{Cascade, QuestionView, RequestHandle};
use universal_executor::runtime::RuntimeBuilder;
use universal_executor::store::{Faulty, RunState};
use universal_executor::tool::json_tool;
use universal_executor::{BoxError, NewBreadcrumb, Subscription};

fn wish() -> NewBreadcrumb {
    NewBreadcrumb::new("wish.v1").context(json!({"message": "Help."}))
}

/// Creates an agent that sends a request to the [`helper`].
fn asker(model: &Arc<ScriptedModel>) -> Agent {
    Agent::new("asker", Arc::clone(model))
        .on(Subscription::trigger("wish.v1"))
        .uses("helper", "Helps.")
        .profile(|profile| profile.lease(LEASE))
}

/// Creates the model of the [`asker`].
fn asking() -> Arc<ScriptedModel> {
    let prompt = json!({"prompt": "Help."});
    Arc::new(ScriptedModel::calling("helper", prompt, "Done."))
}

/// Creates an agent that serves requests of other agents.
fn helper(model: impl ChatModel + 'static) -> Agent {
    let requests = Subscription::trigger("agent.request.v1");
    Agent::new("helper", model)
        .on(requests.matching("$.agent", "eq", "helper"))
        .profile(|profile| profile.lease(LEASE))
}

/// Cancels a run that waits for a blocking child run. The child run ends with its parent, or continues without it.
pub(super) async fn cancels_a_parent<S, A>(
    subject: &S,
    (condition, cascade): (Condition, Cascade),
    [parent, child]: [&str; 2],
    trigger: &NewBreadcrumb,
    block: &Block,
    add: A,
) -> Result<(), BoxError>
where
    S: SubjectWithEvents,
    A: Fn(RuntimeBuilder, &Faulty<S::Store>) -> Result<RuntimeBuilder, BoxError>,
{
    let mut harness = CancelHarness::start(subject, condition, add).await?;
    let request = harness.send(parent, trigger.clone()).await?;
    block.wait_until_started().await?;
    reaches(&request, &harness.client, RunState::Suspended).await?;
    let asked = harness.run_of(child).await?;

    harness.apply_condition(&[parent, child]).await?;
    let ended = harness.cancel(&request, cascade).await?;
    match cascade {
        Cascade::Run => assert_eq!(ended, 1, "{condition:?}"),
        Cascade::Children => {
            assert_eq!(ended, 2, "{condition:?}");
            harness.assert_cancelled(&asked).await?;
            block.dropped().await?;
        }
    }

    harness.recover(&[parent, child]).await?;
    block.release();
    if cascade == Cascade::Run {
        asked.wait(LONG).await?;
    }
    harness.works(parent, trigger.clone()).await?;
    // The new worker repeats the child's work that the dead worker started.
    let repeated = (condition, cascade) == (Condition::Dead, Cascade::Run);
    let expected = 2 + usize::from(repeated);
    assert_eq!(block.started(), expected, "{condition:?}");
    harness.finish(&request).await
}

async fn cancels_an_asker<S: SubjectWithEvents>(
    subject: &S,
    cascade: Cascade,
) -> Result<(), BoxError> {
    for condition in Condition::ALL {
        let (block, model) = (Block::default(), asking());
        let how = (condition, cascade);
        cancels_a_parent(
            subject,
            how,
            ["asker", "helper"],
            &wish(),
            &block,
            |builder, _| {
                let helper = helper(BlockedModel(block.clone()));
                Ok(builder.agent(asker(&model)).agent(helper))
            },
        )
        .await?;
        let asked = model.requests().len();
        assert_eq!(
            asked, 3,
            "{condition:?}: one request came before the cancellation"
        );
    }
    Ok(())
}

pub(crate) async fn an_agent_is_cancelled_with_the_agent_that_it_asked<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    cancels_an_asker(subject, Cascade::Children).await
}

pub(crate) async fn an_agent_that_was_asked_continues_without_the_other_agent<
    S: SubjectWithEvents,
>(
    subject: &S,
) -> Result<(), BoxError> {
    cancels_an_asker(subject, Cascade::Run).await
}

/// Creates a [`helper`] that needs an approval and counts its payments.
fn payer(payments: &Arc<AtomicUsize>) -> Agent {
    let payments = Arc::clone(payments);
    let pay = json_tool("pay", "Pays an amount.", json!({}), move |_, _| {
        payments.fetch_add(1, Ordering::SeqCst);
        async { Ok(json!("paid")) }
    });
    let model = ScriptedModel::calling("pay", json!({}), "Done.");
    helper(model).tool(pay).needs_approval(["pay"])
}

/// Sends a wish to the [`asker`]. Returns the request, the run of the helper, and the helper's question.
async fn wait_for_question<S, A>(
    harness: &CancelHarness<'_, S, A>,
) -> Result<(RequestHandle, RequestHandle, QuestionView), BoxError>
where
    S: SubjectWithEvents,
    A: Fn(RuntimeBuilder, &Faulty<S::Store>) -> Result<RuntimeBuilder, BoxError>,
{
    let request = harness.send("asker", wish()).await?;
    let question = open_question(&harness.client).await?;
    let run = harness.run_of("helper").await?;
    reaches(&run, &harness.client, RunState::Suspended).await?;
    Ok((request, run, question))
}

/// A child run ends with its parent, its question is closed, and the child runs of other runs continue.
pub(crate) async fn the_question_of_a_child_is_closed<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    for condition in Condition::ALL {
        let (payments, model) = (Arc::default(), asking());
        let add = |builder: RuntimeBuilder, _: &Faulty<S::Store>| {
            Ok::<_, BoxError>(builder.agent(asker(&model)).agent(payer(&payments)))
        };
        let mut harness = CancelHarness::start(subject, condition, add).await?;
        let (request, child, question) = wait_for_question(&harness).await?;

        harness.apply_condition(&["asker", "helper"]).await?;
        let ended = harness.cancel(&request, Cascade::Children).await?;
        assert_eq!(ended, 2, "{condition:?}");
        harness.assert_cancelled(&child).await?;
        assert_closed(&harness.client, &question).await;

        harness.recover(&["asker", "helper"]).await?;
        let (other, child, question) = wait_for_question(&harness).await?;
        let ended = harness.client.cancel(request.run(), Cascade::Children);
        assert_eq!(
            ended.await?,
            0,
            "{condition:?}: the child of another run must not be cancelled"
        );
        let questions = harness.client.questions();
        questions.approve(&question.id, &ann()).await?;
        child.wait(LONG).await?;
        other.wait(LONG).await?;
        let payments = payments.load(Ordering::SeqCst);
        assert_eq!(
            payments, 1,
            "{condition:?}: only the other run makes its payment"
        );
        assert_eq!(model.requests().len(), 3, "{condition:?}");
        harness.finish(&request).await?;
    }
    Ok(())
}
