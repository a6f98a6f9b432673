//! Tests of an agent that needs the approval of a person, with a scripted model and a clock that the test moves.
//!
//! Run them with `cargo test --example testing --features testing`. In your own project, enable the feature in the dev-dependency.
//! `docs/cookbook/tests.md` describes the test kit.
#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use serde_json::json;
use universal_executor::Subscription;
use universal_executor::agent::{Agent, ChatModel, ScriptedModel};
use universal_executor::tool::json_tool;

fn main() {
    let helper = helper(ScriptedModel::new(["Hello!"]));
    println!("run the tests of the agent {:?} with:", helper.id());
    println!("cargo test --example testing --features testing");
}

/// Creates the agent of the service. Tests pass a scripted model, and the service passes a real one.
fn helper(model: impl ChatModel + 'static) -> Agent {
    let refund = json_tool("refund", "Refunds an order.", json!({}), |_, _| async {
        Ok(json!("refunded"))
    });
    Agent::new("helper", model)
        .instructions("You help people with their orders.")
        .on(Subscription::trigger("user.message.v1"))
        .tool(refund)
        .needs_approval(["refund"])
        .approved_by(["role:finance"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use universal_executor::agent::ScriptedModel;
    use universal_executor::client::Principal;
    use universal_executor::testing::{TestStore, assert_responded, assert_suspended};
    use universal_executor::{BoxError, BreadcrumbStoreExt, Client, NewBreadcrumb, Runtime};

    #[tokio::test]
    async fn a_refund_waits_for_the_finance_department() -> Result<(), BoxError> {
        let store = TestStore::new()?;
        let model = ScriptedModel::calling("refund", json!({"order": 7}), "Order 7 is refunded.");
        let worker = Runtime::on(&store).agent(super::helper(model)).build()?;
        let wish = json!({"message": "Please refund order 7."});
        let wish = NewBreadcrumb::new("user.message.v1").context(wish);
        let wish = store.create(wish).await?;

        store.run_until_idle(&worker).await?;
        assert_suspended(&store, "helper", wish.id).await;

        let questions = Client::new(&store).questions();
        let ann = Principal::new("ann").with_role("finance");
        let question = questions.open_for(&ann).await?.pop().ok_or("no question")?;
        questions.approve(&question.id, &ann).await?;
        store.run_until_idle(&worker).await?;

        let responses = assert_responded(&store, "helper", wish.id).await;
        let response = responses.last().ok_or("no response")?;
        assert_eq!(response.context["message"], "Order 7 is refunded.");
        Ok(())
    }
}
