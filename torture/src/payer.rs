//! An agent whose tool makes payments. A person has to approve each call of the tool.

use crate::BoxError;
use crate::executors::{Executing, Role};
use crate::oracle::{Oracle, Record, Trigger};
use crate::settings::Settings;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatRequest, ChatResponse, ModelError, ScriptedModel, Speaker,
    ToolCall,
};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, ExecutionContext, Failure, Profile, Response, Subscriptions,
    UniversalExecutor,
};

/// Name of the tool that makes a payment.
const TOOL: &str = "pay";

/// The agent. It appends a line to the oracle for each attempt and each payment.
#[derive(Debug)]
pub struct Payer {
    agent: AgentExecutor,
    oracle: Arc<Oracle>,
}

impl Payer {
    /// Executor ID.
    pub const ID: &'static str = "payer";

    /// Creates the agent on a store.
    pub fn new(
        store: Arc<dyn BreadcrumbStore>,
        oracle: Arc<Oracle>,
        subscriptions: Subscriptions,
        settings: &Settings,
        profile: Profile,
    ) -> Result<Self, BoxError> {
        let payments = Arc::clone(&oracle);
        let pay = json_tool(
            TOOL,
            "Makes a payment.",
            json!({"type": "object"}),
            move |input, _| {
                let payments = Arc::clone(&payments);
                async move {
                    let n = input.get("n").and_then(Value::as_u64);
                    let n = n.ok_or("the payment has no number")?;
                    payments.note(&Record::Paid { n })?;
                    Ok(json!("paid"))
                }
            },
        );
        let mut definition = AgentDefinition::from_json(&json!({
            "agent_id": Self::ID,
            "system_prompt": "Pay.",
            "tools": [TOOL],
            "approval": {"tools": [TOOL]},
            "wait_seconds": {"people": settings.approval_seconds},
            "subscriptions": [],
        }))?;
        definition.subscriptions = subscriptions;
        let tools = ToolRegistry::default().with(pay)?;
        let model = Arc::new(ScriptedModel::answering(answer));
        let agent = AgentExecutor::with_tools(definition, model, store, &tools)?;
        Ok(Self {
            agent: agent.with_profile(profile),
            oracle,
        })
    }

    /// Returns the payment number in a successful response of the agent.
    pub fn receipt(response: &Breadcrumb) -> Option<u64> {
        let is_success = response.context.text("status") == Some("success");
        let message = response.context.text("message").filter(|_| is_success)?;
        number(message.strip_prefix("payment")?)
    }
}

/// Answers like a model that calls the tool once and then reports the result.
fn answer(_: usize, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
    let n = request.messages.iter().find_map(|message| {
        let text = message.text();
        let (_, rest) = text.split_once("\"n\":")?;
        number(rest)
    });
    let n = n.ok_or(ModelError::ScriptEnded { number: 0 })?;
    let mut messages = request.messages.iter();
    match messages.rfind(|message| message.speaker == Speaker::Tool) {
        Some(result) => Ok(ChatResponse::new(format!("payment {n}: {}", result.text()))),
        None => {
            let call = ToolCall::new("1", TOOL, json!({"n": n}));
            Ok(ChatResponse::calling(vec![call]))
        }
    }
}

/// Returns the number at the start of a string, after spaces.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.get(..end.unwrap_or(text.len()))?.parse().ok()
}

#[async_trait]
impl UniversalExecutor for Payer {
    fn id(&self) -> &str {
        self.agent.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.agent.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        self.agent.store()
    }

    fn profile(&self) -> &Profile {
        self.agent.profile()
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        let noted = Trigger::of(trigger);
        let executing = Executing::start(&self.oracle, Role::Payer, noted, context.attempt())?;
        let executed = self.agent.execute(trigger, context).await;
        executing.end();
        executed
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.agent.respond(trigger, output).await
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        self.agent.respond_failure(trigger, failure).await
    }
}
