//! Agents: executors that ask a model.
//!
//! An agent is a definition (`agent.def.v1`, JSON) and a [`ChatModel`]. The trigger and the assembled context reach the
//! model as data: [shaped by their hints](crate::ExecutionContext::for_model), held to a budget and rendered, in one
//! message after the system prompt. What the model says becomes an `agent.response.v1` with `status`, `message`,
//! `trigger_event_id` and `timestamp` in its context.
//!
//! A definition has `agent_id` and `subscriptions`, and if wanted `model`, `temperature`, `system_prompt`,
//! `responds_with`, `context_format` (`"markdown"` or `"xml"`) and `context_budget` (`{"tokens": 100000, "bytes": ..,
//! "items_per_source": ..}`). A trigger that does not fit the budget, or cannot be shaped, is answered with an error.
//!
//! ```
//! use serde_json::json;
//! use std::sync::Arc;
//! use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
//! use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let definition = AgentDefinition::from_json(&json!({
//!     "agent_id": "greeter", "model": "any", "system_prompt": "Greet the user.",
//!     "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
//! }))?;
//! let store = MemoryStore::default();
//! let model = Arc::new(ScriptedModel::new(["Hello, Ann!"]));
//! let agent = AgentExecutor::new(definition, model, Arc::new(store.clone()))?;
//! let message = store.create(NewBreadcrumb::new("user.message.v1").context(json!({"message": "I am Ann"}))).await?;
//! agent.process_event(&Event::created(&message)).await?;
//!
//! let response = store.latest("agent.response.v1").await?.ok_or("no response")?;
//! assert_eq!(response.context.text("message"), Some("Hello, Ann!"));
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```

mod definition;
mod executor;
mod model;
#[cfg(feature = "openai")]
mod providers;
mod recorded;
mod scripted;

pub use definition::AgentDefinition;
pub use executor::AgentExecutor;
pub use model::{
    Arguments, BadArguments, ChatEvent, ChatModel, ChatRequest, ChatResponse, Message,
    ResponseSchema, Speaker, StopReason, ToolCall, ToolCallDelta, ToolChoice, ToolSpec, Usage,
};
#[cfg(feature = "openai")]
pub use providers::{OpenAiCompatible, OpenAiCompatibleBuilder, ProviderError, Secret};
pub use recorded::RecordedModel;
pub use scripted::ScriptedModel;

pub use crate::executor::above::{AgentError, ModelError};
