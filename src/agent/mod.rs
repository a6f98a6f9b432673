//! Agents: executors that ask a model.
//!
//! An agent is a definition (`agent.def.v1`, JSON) and a [`ChatModel`]. The trigger and the assembled context reach the
//! model as data: [shaped by their hints](crate::ExecutionContext::for_model), held to a budget and rendered, in one
//! message after the system prompt. What the model says becomes an `agent.response.v1` with `status`, `message`,
//! `trigger_event_id`, `timestamp` and `usage` in its context, and `truncated` if the model came to its limit of tokens.
//!
//! A definition has `agent_id` and `subscriptions`, and if wanted `model`, `temperature`, `system_prompt`,
//! `responds_with`, `context_format` (`"markdown"` or `"xml"`) and `context_budget` (`{"tokens": 100000, "bytes": ..,
//! "items_per_source": ..}`). A trigger that does not fit the budget, or cannot be shaped, is answered with an error.
//!
//! An agent that may call tools names them in `tools`, and gets no others of the registry it is
//! [made with](AgentExecutor::with_tools). The tools of one answer are called at the same time, up to 16, and the model is
//! asked again with all results, in the order of the calls, until it answers. What goes wrong with a call, a tool that is
//! not allowed included, is a result that the model sees. `max_turns` (10) and `budgets` (`{"tokens": .., "calls": ..,
//! "seconds": ..}`) end a run that does not come to an answer, as an error.
//!
//! After each answer of the model and each result of a tool the run saves where it is. One that is tried again makes no
//! finished call again and asks for no answer twice; of a call that was under way it makes only one of an
//! [idempotent](crate::tool::RetrySafety::Idempotent) tool again, with the same
//! [key](crate::tool::ToolContext::idempotency_key), and tells the model of any other that its outcome is unknown. The
//! context is assembled and shown anew by each attempt. On a store without a ledger nothing is saved, and nothing is tried
//! again. What was said in a run may take 1 MiB; more ends it as an error. A tool that leaves its result to
//! [somebody else](crate::tool::deferred) is answered with an error, since nobody here would give it.
//!
//! With `output_schema`, a JSON Schema, an answer has to be JSON: all of the text, one fenced block, or one object or list
//! in prose. With the feature `validate` it has to fit the schema as well. A model that answers otherwise is told once
//! what is wrong. The response then has the value as `output`; a failure has what the model wrote as `raw`, cut short.
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

mod action;
mod agents;
mod api;
mod breadcrumb_model;
mod capabilities;
mod definition;
mod executor;
pub mod guardrail;
mod human;
mod model;
mod offer;
mod output;
mod provider;
mod providers;
mod recorded;
mod scripted;
mod trifecta;
mod turns;

pub use api::ApiProvider;
pub use breadcrumb_model::BreadcrumbModel;
pub use capabilities::Capabilities;
pub use definition::{
    AgentDefinition, Approval, Budgets, Colleague, OutputSlot, ToolCalls, WaitSeconds,
};
pub use executor::AgentExecutor;
pub use model::{
    Arguments, BadArguments, ChatEvent, ChatModel, ChatRequest, ChatResponse, Message,
    ResponseSchema, Speaker, StopReason, ToolCall, ToolCallDelta, ToolChoice, Usage,
};
pub use provider::{Provider, Said, Session, Task};
#[cfg(feature = "cli")]
pub use providers::{CliError, CliProvider, RawOutput};
#[cfg(feature = "openai")]
pub use providers::{OpenAiCompatible, OpenAiCompatibleBuilder, ProviderError};
pub use providers::{Secret, model_tool};
pub use recorded::RecordedModel;
pub use scripted::ScriptedModel;
pub use trifecta::{Trifecta, Trust};

pub use crate::executor::above::{AgentError, AgentRunError, ModelError};
pub use crate::tool::ToolSpec;
