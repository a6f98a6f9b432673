//! Agents: executors that ask a model.
//!
//! An agent is a definition (`agent.def.v1`, JSON) and a [`Provider`]: a [`ChatModel`] behind an API, a
//! [model reached by breadcrumbs](BreadcrumbModel), or a program that calls back (`CliProvider`, feature `cli`). The trigger
//! and the assembled context reach the model as data: [shaped by their hints](crate::ExecutionContext::for_model), held to
//! a budget and rendered, in one message after the system prompt. The words of a user reach it as a plain message after that;
//! see [below](#words-of-the-user). Hints also shape the answers of people, other agents and tools
//! of other services before the model sees them. The model's answer becomes an `agent.response.v1` with `status`, `message`,
//! `trigger_event_id`, `timestamp` and `usage` in its context, and `truncated` if the model reached its token limit.
//!
//! # Definitions
//!
//! | field | what it says |
//! |---|---|
//! | `agent_id`, `subscriptions` | who it is, what sets it off and what it works with; the only ones that have to be there |
//! | `llm_config_id` | the configuration of the model tool, by the [rules of RCRT servers](crate::model::DefinitionOptions::rcrt) |
//! | `model`, `temperature`, `system_prompt` | what the model is asked with |
//! | `context_format`, `context_budget` | `"markdown"` or `"xml"`; `{"tokens", "bytes", "items_per_source"}` |
//! | `responds_with` | the schemas it may write; `agent.response.v1` by default |
//! | `tools`, `tool_calls`, `return_to_user` | the tools it may call, and how; see [below](#tools) |
//! | `max_turns`, `budgets` | 10 turns; `{"tokens", "calls", "seconds"}`: what ends a run that comes to no answer |
//! | `output_schema` | what its answer has to be; see [below](#answers) |
//! | `capabilities` | what it may write by an answer; see [below](#actions) |
//! | `outputs`, `reminders` | what it hands in beside its answer; see [below](#outputs) |
//! | `use`, `handoff`, `delegate` | the agents it may call; see [below](#other-agents) |
//! | `approval`, `wait_seconds` | which calls need the approval of a person, and how long is waited; see [below](#people) |
//! | `trust` | which schemas are private, untrusted or lead outward; see [`LethalTrifecta`] |
//!
//! An unknown field has no effect. [`AgentDefinition::warnings`] names it and the nearest known field, and the
//! [runtime](crate::runtime::definitions) logs that once for each version of a definition. It is an error in
//! [strict](crate::model::DefinitionOptions::strict) mode, which is the mode for files, and in every mode if its name is nearly that
//! of a field which restricts the agent or instructs its model. An unknown capability is a warning in every mode. The fields
//! `comment`, `metadata` and `$schema`, and fields that end with `_comment` or start with `x-`, are comments.
//!
//! # Words of the user
//! If the trigger is a `user.message.v1` that no run wrote, the text in `message`, else in `content`, is the last message
//! of the request, without a fence. The message before it has the other fields and the context as data, if there are any, and a
//! schema of the answer is part of the system prompt. A definition that lists `user.message.v1` in `trust.untrusted` has all
//! of the trigger as data, as it is with triggers of other schemas and with messages that a run wrote or changed.
//!
//! Context and words are two messages of the user in a row. If an endpoint rejects them because roles must alternate, build its model
//! with `OpenAiCompatibleBuilder::join_user_messages`. `GenaiModel` joins them for `bedrock_api`.
//!
//! # Reasoning and state of providers
//! A [`ChatMessage`] has parts. An answer can contain [reasoning](Reasoning) and [state of the provider](Opaque), such as the signature
//! of a thought, which some models require back between the tool calls of a turn. Both are saved in the conversation of the
//! run, and only the same model of the same provider gets them back, unchanged and in order. Reasoning is not part of the answer and
//! is never sent as text. Guardrails see parts in the messages; they check the text. Provider state can be encrypted, so nothing checks it.
//! A session retains both with its tool calls, so later turns send them back too. Summaries omit them.
//!
//! # Images and files
//! A message of the user can have images and files: [references](Media) to base64 in breadcrumbs. Saved conversations and recordings contain
//! the references. An agent reads the bytes from its own store when it asks its model, as the hints of the breadcrumb shape
//! it; without an agent, call [`ChatRequest::load_media`]. A reference that cannot be read ends the run with [`ModelError::Media`].
//! Nothing in a chat message becomes an image by itself: input guardrails and your own [`Provider`] can attach one.
//!
//! | provider | images | files |
//! |---|---|---|
//! | `OpenAiCompatible` | `image_url` with a data URL | `file` with a data URL |
//! | `GenaiModel` | yes, except `cohere` | yes, except `cohere`, `ollama` and `ollama_cloud` |
//! | [`BreadcrumbModel`] | [`ModelError::Unsupported`], permanent | the same |
//! | `CliProvider` | described in the text | described in the text |
//!
//! # Tools
//! An agent that may call tools names them in `tools`, and gets no others of the registry it is
//! [made with](AgentExecutor::with_tools). The tools of one answer are called at the same time, up to 16, and the model is
//! asked again with all results, in the order of the calls, until it answers. What goes wrong with a call, a tool that is
//! not allowed included, is a result that the model sees.
//!
//! With `"tool_calls": "breadcrumbs"`, and for tools that [live elsewhere](crate::tool::remote_tool), a call is a
//! `tool.request.v1`, and its result the `tool.response.v1` of that request. The run is suspended meanwhile: it costs a row,
//! holds no worker, and goes on wherever a response is seen. The model hears the same either way. Requests are written once
//! the calls within the run have ended, and their time counts from then on: that of a tool is its own timeout. A response is
//! known by the tag `request:<id>` that the request has, and is held to the tool's output schema and size. Under a program
//! that calls back the tool waits instead, so that the program is not stopped. A dispatcher that serves a tool which needs
//! approval has to [trust requests](crate::tool::ToolDispatcher::trusting_requests), since the agent has asked.
//!
//! If all tools that an answer calls are listed in `return_to_user`, or [say so themselves](crate::tool::ToolSettings), and
//! none fails, their results are the answer (`results`, and as text `message`), and the model is not asked again. Under a
//! program that calls back this has no effect: the program decides what it says.
//!
//! # Programs
//! A program is stopped while its run waits for a person or another agent, and started again when all have answered. It has
//! to send its calls again with the same IDs: the runtime then answers each finished call with its saved result, and executes no
//! call twice. A program that cannot repeat its IDs receives [the finished calls](ProviderTask::made), and skips them. A call with a
//! new ID is a new call. Each start is a turn.
//!
//! # What a crash repeats
//! After each answer of the model and each result of a tool the run saves where it is. One that is tried again makes no
//! finished call again and asks for no answer twice; of a call that was under way it makes only one of an
//! [idempotent](crate::tool::RetrySafety::Idempotent) tool again, with the same
//! [key](crate::tool::ToolContext::idempotency_key), and tells the model of any other that its outcome is unknown. Each
//! attempt assembles the context again. On a store without a ledger nothing is saved, so a retry starts from the beginning, and
//! nothing can be waited for. The conversation of a run may take 1 MiB; a longer one ends the run as an error.
//!
//! # Answers
//! An answer is text. With `output_schema`, a JSON Schema, it has to be JSON: all of the text, one fenced block, or one
//! object or list in prose. With the feature `validate` it has to fit the schema as well. A model that answers otherwise is
//! told once what is wrong. The response then has the value as `output`; a failure has what the model wrote as `raw`, cut
//! short.
//!
//! # Actions
//! With `capabilities` an answer may be an action: `{"action": "create" | "update" | "delete" | "none", "breadcrumb":
//! {"schema_name", "title", "tags", "context", "id", "version"}}`, alone, in a fence or in prose, or the bare breadcrumb that
//! is to be created. Prose stays an answer. An agent writes only schemas of its `responds_with`, changes only what it wrote
//! itself, makes no definitions unless it may, and writes no requests, responses of tools and people, or dead letters: it
//! is told once why not. What tools and other agents say is never taken for an action.
//!
//! The context of an agent with `capabilities` has the section `trigger_breadcrumb`: the ID, the version and the tags of the trigger, as data.
//!
//! # Tool requests in an answer
//! By the [rules of RCRT servers](crate::model::DefinitionOptions::rcrt), the context of an answer that creates an `agent.response.v1`
//! may have `tool_requests`, a list of at most 64 `{"tool", "input", "requestId", "return_to_llm"}`. The agent then makes these calls
//! and does not write the answer. Permissions, approvals, budgets and guardrails are those of other tool calls, and a restart repeats
//! no call. A request by breadcrumb has an ID that the crate chooses, because a model may choose one ID twice.
//!
//! The model receives the results in its next message, as data with the `requestId` of each. If `return_to_llm` is `false` for all
//! requests and all succeed, the results are the answer to the user: `message` has the text, and for one request `tool_result` has
//! `{"tool", "output"}`. A request without the field follows [`returns_to_user`](crate::tool::ToolSettings::returns_to_user) of its tool.
//! A malformed request and a request for a tool that the agent may not call have an error as result, which the model receives.
//!
//! Such an agent may subscribe to the results of its requests: a result that one of its runs requested starts no run.
//!
//! # Outputs
//! Each of `outputs` (`{"name", "description", "schema", "required"}`) is a tool that the agent calls once to hand something
//! in: a completion report, a plan. They stand in `outputs` of the response. An agent that ends without a required one is
//! reminded (`reminders`, once by default); then the response has the status `incomplete` and what is `missing`.
//!
//! # Other agents
//! An agent named in `use` is called as a tool of its name, one in `handoff` as `handoff-to-<name>`: it works in a run of
//! its own, with its own permissions, and its answer is the result of the call. One in `delegate` has the last word: its
//! answer to `delegate-to-<name>` is that of the run. They are asked by `agent.request.v1` (`agent`, `prompt`, `requestId`,
//! `requestedBy`), which sets off an agent that subscribes to it with `{"schema_name": "agent.request.v1", "role": "trigger",
//! "context_match": [{"path": "$.agent", "op": "eq", "value": "<its id>"}]}`, and answer by their `agent.response.v1`. The
//! [limit of hops](crate::Profile::hop_limit) ends a circle of agents.
//!
//! # People
//! A call for which a rule of `approval.tools` or of [its tool](crate::tool::ToolSettings::approvals) holds is not
//! made before a person agrees: a `human.request.v1` (`kind`, `question`, `options`, `tool`, `description`, `arguments`, `digest`,
//! `requestId`, `requestedBy`, `expires_at`, `of`) shows it, and a `human.response.v1` that is tagged `request:<requestId>` and has
//! the same `request_id` and `"approved": true` or `false` (or `"decision": "approve"` or `"reject"`, and a `comment`)
//! decides. An answer can name the breadcrumb of its question in `question`; then it counts for no other question. The approval is
//! bound to tool, arguments and definitions: the approved call runs, once. If a definition
//! changes meanwhile, the run asks again. The answer of an executor approves nothing, nor does the answer of a person outside of `by` of a rule
//! that holds, or in `approval.by` for a rule without: names in `created_by`, which the service that writes answers of people has
//! to see to. [`Approvals`] has the rules as JSON, and [`Approval`](crate::tool::Approval) in code.
//!
//! An approval with `arguments` makes the call with these instead. The question then has `changeable`, the input schema of the tool as
//! `arguments_schema`, and in `change_rules` the rules that name people or have a time: the person must be permitted by each of these
//! that holds for the changed arguments, and within its time. `null` and the asked arguments change nothing. Guardrails see the changed arguments before the call. The model receives the result as
//! `{"note", "arguments", "result"}`. A result that goes straight to the user has no note.
//!
//! A tool that [asks a person](crate::tool::ask_human) gets the field `answer` from a person. No run waits
//! for ever: `wait_seconds` (`people` a day, `agents` an hour, `model` ten minutes) ends a wait with an error that the model sees.
//! The time of a rule takes the place of that of `people`.
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

mod acting;
mod action;
mod api;
mod breadcrumb_model;
mod builder;
mod capabilities;
#[cfg(feature = "workflows")]
pub(crate) mod compaction;
mod definition;
mod error;
mod execution;
mod executor;
pub mod guardrail;
mod history;
mod into_model;
mod making;
mod model;
mod offer;
mod output;
mod provider;
mod providers;
mod recorded;
mod requests;
mod scripted;
mod trifecta;
mod turns;

pub use api::ApiProvider;
pub use breadcrumb_model::BreadcrumbModel;
pub use builder::Agent;
pub use capabilities::AgentCapabilities;
pub use definition::{
    AgentDefinition, AgentRef, Approvals, Budgets, OutputSlot, ToolApproval, ToolCalls, WaitSeconds,
};
pub use error::{AgentError, AgentRunError};
pub use executor::AgentExecutor;
pub use into_model::{AgentModel, IntoModel};
pub use model::{
    BadArguments, CallResult, ChatEvent, ChatMessage, ChatModel, ChatRequest, ChatResponse, Media,
    ModelArguments, ModelError, Opaque, Part, PartOrigin, Reasoning, ResponseSchema, Speaker,
    StopReason, ToolCall, ToolCallDelta, ToolChoice, Usage,
};
pub use provider::{Provider, ProviderEvent, ProviderSession, ProviderTask};
#[cfg(any(feature = "genai", feature = "openai"))]
pub use providers::ProviderError;
#[cfg(feature = "cli")]
pub use providers::{CliError, CliProvider, RawOutput};
#[cfg(feature = "genai")]
pub use providers::{GenaiModel, GenaiModelBuilder};
#[cfg(feature = "openai")]
pub use providers::{OpenAiCompatible, OpenAiCompatibleBuilder, OpenAiEmbedder};
pub use providers::{Secret, model_tool};
pub use recorded::RecordedModel;
pub use scripted::ScriptedModel;
pub use trifecta::{LethalTrifecta, Trust};

#[cfg(feature = "workflows")]
pub(crate) use acting::request_tags;
#[cfg(feature = "workflows")]
pub(crate) use action::{is_open, is_protected};
#[cfg(feature = "workflows")]
pub(crate) use output::Output;
#[cfg(feature = "workflows")]
pub(crate) use turns::session_in;

pub use crate::tool::ToolSpec;
