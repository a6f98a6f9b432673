//! Handoff between two agents: a front desk hands a guest to the billing agent, which can call the tool `refund`, and answers the guest
//! with the result.
//!
//! Run with `cargo run --example handoff`. The models are scripted. Replace them by any `ChatModel`.

#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use futures::StreamExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatResponse, ScriptedModel, ToolCall,
};
use universal_executor::source::StartAt;
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::{
    BoxError, BreadcrumbStoreExt as _, EventSource as _, MemoryStore, NewBreadcrumb, Runtime,
    UniversalExecutor,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let desk = agent(
        &store,
        &json!({
            "agent_id": "desk", "system_prompt": "Answer guests.", "tools": [],
            "handoff": [{"agent": "billing", "description": "Knows all about invoices."}],
            "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
        }),
        [
            calls(
                "handoff-to-billing",
                json!({"prompt": "Refund invoice 7, please."}),
            ),
            ChatResponse::new("Your refund of 30 euros is on its way."),
        ],
    )?;
    let billing = agent(
        &store,
        &json!({
            "agent_id": "billing", "system_prompt": "See to invoices.", "tools": ["refund"],
            "subscriptions": [{
                "schema_name": "agent.request.v1", "role": "trigger",
                "context_match": [{"path": "$.agent", "op": "eq", "value": "billing"}],
            }],
        }),
        [
            calls("refund", json!({"invoice": 7})),
            ChatResponse::new("Invoice 7: 30 euros are refunded."),
        ],
    )?;
    let mut events = store.events().subscribe(StartAt::Now).await?;

    let message = json!({"message": "Invoice 7 is wrong."});
    store
        .create(NewBreadcrumb::new("user.message.v1").context(message))
        .await?;

    let runtime = Runtime::on(&store).executors([desk, billing]).build()?;
    let tell = async {
        while let Some(Ok(delivery)) = events.next().await {
            let schema = delivery.event.schema_name.unwrap_or_default();
            let context = delivery.event.context.unwrap_or_default();
            let who = creator(&context).unwrap_or("guest");
            let what = context.text("message").or_else(|| context.text("prompt"));
            println!("{schema}: {who} says {:?}", what.unwrap_or_default());
            if schema == AgentExecutor::RESPONSE && who == "desk" {
                break;
            }
        }
    };
    runtime.run_until(tell).await?;
    Ok(())
}

/// Returns the agent that wrote a breadcrumb, or `None` if no agent did.
fn creator(context: &Value) -> Option<&str> {
    context.get("creator")?.get("agent_id")?.as_str()
}

fn calls(tool: &str, arguments: Value) -> ChatResponse {
    ChatResponse::calling(vec![ToolCall::new("1", tool, arguments)])
}

/// Creates an agent. The registry has all tools of the service, and the agent can call the tools that its definition names.
fn agent(
    store: &MemoryStore,
    definition: &Value,
    script: [ChatResponse; 2],
) -> Result<Arc<dyn UniversalExecutor>, BoxError> {
    let refund = json_tool(
        "refund",
        "Refunds an invoice.",
        json!({"type": "object", "required": ["invoice"]}),
        |_, _| async { Ok(json!({"euros": 30})) },
    );
    let registry = ToolRegistry::default().with(refund)?;
    let model = Arc::new(ScriptedModel::script(script.map(Ok)));
    let definition = AgentDefinition::from_json(definition)?;
    let store = Arc::new(store.clone());
    let agent = AgentExecutor::with_tools(definition, model, store, &registry)?;
    Ok(Arc::new(agent))
}
