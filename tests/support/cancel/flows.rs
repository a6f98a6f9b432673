//! Cancellation of flows that wait for a tool of another service.

use super::children::cancels_a_parent;
use super::harness::{Block, Condition, LEASE};
use crate::worker::SubjectWithEvents;
use serde_json::json;
use universal_executor::client::Cascade;
use universal_executor::executor::Executor;
use universal_executor::store::{Faulty, StoreWithEvents};
use universal_executor::tool::remote_tool;
use universal_executor::workflow::Workflow;
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{BoxError, NewBreadcrumb, Response, Services, Subscription, executor};

/// Creates a flow that waits for a tool of another service.
fn flow<B: StoreWithEvents>(store: &Faulty<B>) -> Result<WorkloadExecutor, BoxError> {
    let far = remote_tool("block", "Blocks.", json!({"type": "object"}));
    let services = Services::new().tool(far)?;
    let steps = json!([{"tool": "block", "input": {}}]);
    let definition = json!({"tools": {"block": {}}, "flows": {"main": {"steps": steps}}});
    let workflow = Workflow::from_json(&definition)?;
    Ok(WorkloadExecutor::of_workflow(
        "flow", workflow, &services, store,
    )?)
}

/// Creates the executor that serves the tool on the other service.
fn served(block: &Block) -> Executor {
    let requests = Subscription::trigger("tool.request.v1");
    executor("block")
        .on(requests.matching("$.tool", "eq", "block"))
        .profile(|profile| profile.lease(LEASE))
        .state(block.clone())
        .execute(|cx, block| async move {
            block.pass().await;
            let id = cx.trigger().context["requestId"].clone();
            let answer =
                json!({"request_id": id, "tool": "block", "status": "success", "output": "done"});
            let answer = NewBreadcrumb::new("tool.response.v1").context(answer);
            let tag = format!("request:{}", id.as_str().unwrap_or_default());
            Ok(Response::create(answer.tag(tag)))
        })
}

async fn cancels_a_flow<S: SubjectWithEvents>(
    subject: &S,
    cascade: Cascade,
) -> Result<(), BoxError> {
    for condition in Condition::ALL {
        let block = Block::default();
        let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST);
        let request = request.context(json!({"workflow": "flow", "input": {}}));
        let how = (condition, cascade);
        cancels_a_parent(
            subject,
            how,
            ["flow", "block"],
            &request,
            &block,
            |builder, store| Ok(builder.executor(flow(store)?).executor(served(&block))),
        )
        .await?;
    }
    Ok(())
}

pub(crate) async fn a_flow_is_cancelled_with_its_tool_call_elsewhere<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    cancels_a_flow(subject, Cascade::Children).await
}

pub(crate) async fn a_tool_call_elsewhere_continues_without_its_flow<S: SubjectWithEvents>(
    subject: &S,
) -> Result<(), BoxError> {
    cancels_a_flow(subject, Cascade::Run).await
}
