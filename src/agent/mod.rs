//! Agents: executors that call a language model.
//!
//! Use this module to answer triggers with a model that can call tools, other agents and people. Start with [`Agent`] to build an agent
//! in code, or with [`AgentDefinition`] and [`AgentExecutor`] for a definition in JSON (`agent.def.v1`).
//!
//! | to | use |
//! |---|---|
//! | build an agent in code | [`Agent`] |
//! | run an agent from JSON | [`AgentDefinition`] and [`AgentExecutor`] |
//! | run all agents in a store | [`definitions`](crate::runtime::definitions) |
//! | call a model of a provider | `OpenAiCompatible` (feature `openai`), `GenaiModel` (feature `genai`) |
//! | connect another model | [`ChatModel`] |
//! | continue with another model when one fails | [`FallbackModel`] |
//! | share models and tools by name | [`Services`](crate::Services) |
//! | test an agent without a network | [`ScriptedModel`], [`RecordedModel`] |
//! | check input, output and tool calls | [`guardrail`] |
//! | let people approve tool calls | [`Agent::needs_approval`], [`Agent::approval_rule`] |
//! | limit a run | [`Agent::max_turns`], [`Budgets`], [`ContextBudget`](crate::ContextBudget) |
//! | handle failed runs | [`AgentRunError`], [`ModelError`] |
//!
//! An agent that calls a tool and answers:
//!
//! ```
//! use serde_json::json;
//! use universal_executor::agent::{Agent, ScriptedModel};
//! use universal_executor::tool::json_tool;
//! use universal_executor::{
//!     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription, UniversalExecutor,
//! };
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let weather = json_tool("weather", "Returns the weather.", json!({}), |input, _| async move {
//!     Ok(json!({"city": input["city"], "weather": "rain"}))
//! });
//! let model = ScriptedModel::calling("weather", json!({"city": "Bergen"}), "Take an umbrella.");
//! let store = MemoryStore::default();
//! let helper = Agent::new("helper", model)
//!     .instructions("Answer questions about the weather.")
//!     .on(Subscription::trigger("user.message.v1"))
//!     .tool(weather)
//!     .bind(&store)?;
//!
//! let question = json!({"message": "Do I need an umbrella in Bergen?"});
//! let question = store.create(NewBreadcrumb::new("user.message.v1").context(question)).await?;
//! helper.process_event(&Event::created(&question)).await?;
//!
//! let response = store.latest("agent.response.v1").await?.ok_or("no response")?;
//! assert_eq!(response.context.text("message"), Some("Take an umbrella."));
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```
//!
//! An agent has a definition and a [`Provider`]. The provider is a [`ChatModel`] behind an API, a
//! [model that receives requests as breadcrumbs](BreadcrumbModel), or an external program that calls its tools over HTTP
//! (`CliProvider`, feature `cli`).
//!
//! The model receives the trigger and the assembled context as data, in one message after the system prompt. The data is
//! [shaped by the hints of its breadcrumbs](crate::ExecutionContext::for_model), truncated to the context budget and rendered. The
//! text of a user follows in a separate message; see [User messages](#user-messages). Hints also shape the answers of
//! people, of other agents and of tools in other services before the model receives them.
//!
//! The answer of the model becomes an `agent.response.v1`. Its context has `status`, `message`, `trigger_event_id`, `timestamp` and
//! `usage`. It also has `truncated` if the model reached its token limit.
//!
//! # Definitions
//!
//! | field | meaning |
//! |---|---|
//! | `agent_id`, `subscriptions` | the executor ID; the triggers and the context sources. Only these two fields are required |
//! | `llm_config_id` | the configuration of the model tool, by the [rules of RCRT servers](crate::model::DefinitionOptions::rcrt) |
//! | `model`, `temperature`, `system_prompt` | the model name, the sampling temperature and the instructions |
//! | `context_format`, `context_budget` | `"markdown"` or `"xml"`; `{"tokens", "bytes", "items_per_source"}` |
//! | `responds_with` | the schemas that the agent may write; defaults to `agent.response.v1` |
//! | `tools`, `tool_calls`, `return_to_user` | the permitted tools and the way they are called; see [Tools](#tools) |
//! | `max_turns`, `budgets` | the maximum number of turns, by default 10; the limits `{"tokens", "calls", "seconds"}` of a run |
//! | `output_schema` | the JSON Schema of the answer; see [Answers](#answers) |
//! | `capabilities` | the breadcrumbs that an answer may write; see [Actions](#actions) |
//! | `outputs`, `reminders` | additional outputs besides the answer; see [Outputs](#outputs) |
//! | `use`, `handoff`, `delegate` | the agents that the agent may call; see [Other agents](#other-agents) |
//! | `approval`, `wait_seconds` | the calls that need a person's approval, and the timeouts of requests; see [People](#people) |
//! | `trust` | the schemas with private data, with untrusted content, or with data that leaves the system; see [`LethalTrifecta`] |
//!
//! An unknown field has no effect. [`AgentDefinition::warnings`] names the field and the nearest known field, and the
//! [runtime](crate::runtime::definitions) logs the warning once for each version of a definition. In
//! [strict](crate::model::DefinitionOptions::strict) mode, which is the mode for files, an unknown field is an error. In every mode, an
//! unknown field is an error if its name resembles that of a field which restricts the agent or instructs its model. An unknown
//! capability is a warning in every mode. The fields `comment`, `metadata` and `$schema`, and fields that end with `_comment` or start
//! with `x-`, are comments.
//!
//! # User messages
//! A trigger is a user message if its schema is `user.message.v1` and no run wrote it. Its text, from the field `message` or else
//! `content`, is the last message of the request, without a fence. The message before contains the other fields and the context as
//! data, if there are any. The schema of the answer, if any, is then part of the system prompt.
//!
//! Triggers of other schemas, and messages that a run wrote or changed, reach the model as data. The same applies to every
//! `user.message.v1` if the definition lists that schema in `trust.untrusted`.
//!
//! Context and text are two consecutive messages of the role `user`. If an endpoint rejects such messages because roles must alternate,
//! build its model with `OpenAiCompatibleBuilder::join_user_messages`. `GenaiModel` joins them for `bedrock_api`.
//!
//! # Reasoning and provider state
//! A [`ChatMessage`] has parts. An answer can contain [reasoning](Reasoning) and [provider state](Opaque), such as the signature
//! of a thought, which some models require back between the tool calls of a turn. The run saves both in its conversation.
//! Only the same model of the same provider receives them again, unchanged and in order. Reasoning is not part of the answer and
//! is never sent as text. Guardrails receive all parts of the messages, and check the text. Provider state can be encrypted, so nothing
//! checks it. A session retains both with its tool calls, so later turns send them too. Summaries omit them.
//!
//! # Images and files
//! A user message can have images and files: [references](Media) to base64 data in breadcrumbs. Saved conversations and recordings
//! contain only the references. An agent reads the bytes from its own store for each model request, and the hints of the breadcrumb
//! shape them. Without an agent, call [`ChatRequest::load_media`]. A reference that cannot be read ends the run with
//! [`ModelError::Media`]. The crate attaches no images or files by itself: input guardrails and your own [`Provider`] can attach them.
//!
//! | provider | images | files |
//! |---|---|---|
//! | `OpenAiCompatible` | `image_url` with a data URL | `file` with a data URL |
//! | `GenaiModel` | yes, except `cohere` | yes, except `cohere`, `ollama` and `ollama_cloud` |
//! | [`BreadcrumbModel`] | [`ModelError::Unsupported`], permanent | the same |
//! | `CliProvider` | described in the text | described in the text |
//!
//! # Tools
//! An agent may call the tools that its definition lists in `tools`, and no other tools of the registry that
//! [`AgentExecutor::with_tools`] receives. The run executes up to 16 tool calls of one answer concurrently. The next model request
//! contains all results, in the order of the calls. This repeats until the model answers without calls. The model receives each
//! failed call, and each call of a tool that is not permitted, as an error result.
//!
//! With `"tool_calls": "breadcrumbs"`, and for tools of [other services](crate::tool::remote_tool), a call is a
//! `tool.request.v1` and its result is the `tool.response.v1` of that request. The run is suspended in the meantime: it occupies one row
//! of the ledger and no worker, and any worker that receives the response continues it. Both ways look the same to the model. The run
//! writes the requests when its in-process calls have ended. Each request then has the timeout of its tool. A response has the tag
//! `request:<id>` of its request, and the run checks it against the tool's output schema and maximum size. With an
//! external program, the tool call itself waits for the response, so that the program keeps running. A dispatcher that serves a
//! tool with approval rules must [trust requests](crate::tool::ToolDispatcher::trusting_requests), because the agent has obtained
//! the approval.
//!
//! The results of an answer's calls become the answer of the run if all called tools are listed in `return_to_user` or
//! [return to the user by their settings](crate::tool::ToolSettings), and no call fails. The response has them in `results` and, as
//! text, in `message`, and the run makes no further model request. This has no effect for an external program, because the program
//! writes the answer.
//!
//! # Programs
//! An external program (`CliProvider`) is stopped while its run waits for a person or another agent, and started again when all have
//! answered. It must then send its calls again with the same IDs. The run answers each finished call with the saved result, and executes no
//! call twice. A program that cannot repeat its IDs receives [the finished calls](ProviderTask::made) and must skip them. A call with a
//! new ID is a new call. Each start of the program is a turn.
//!
//! # Crash recovery
//! A run saves its progress after each model answer and each tool result. A retry repeats no finished tool call and no answered
//! model request. It repeats a call that was in flight only if the tool is
//! [idempotent](crate::tool::RetrySafety::Idempotent), with the same [key](crate::tool::ToolContext::idempotency_key). For other
//! tools, the model receives the error that the outcome is unknown. Each attempt assembles the context again.
//!
//! On a store without a ledger nothing is saved, so a retry starts from the beginning, and a run cannot wait for answers. The
//! maximum size of a run's saved conversation is 1 MiB. A larger conversation ends the run with an error.
//!
//! # Answers
//! An answer is text. With `output_schema`, a JSON Schema, the answer must contain one JSON value: as the whole text, in one fenced
//! block, or as one object or list in prose. With the feature `validate` the value must also match the schema. If an answer does not
//! meet these requirements, the model receives the problem and may answer again, once. The response contains the value in `output`. If
//! the second answer fails too, the failure response contains the model's text in `raw`, truncated to 2,048 bytes.
//!
//! # Actions
//! With `capabilities` an answer can be an action: `{"action": "create" | "update" | "delete" | "none", "breadcrumb":
//! {"schema_name", "title", "tags", "context", "id", "version"}}`. The action is the whole text, in a fenced block or in prose. A
//! breadcrumb without an action is created. Other text is an ordinary answer.
//!
//! An agent can write only the schemas in `responds_with`, and change only breadcrumbs whose current version it wrote. It can
//! create definitions only with the capability `can_spawn_agents`. It can never write requests, responses of tools or people, or dead
//! letters. If an action is not permitted, the model receives the reason and may answer again, once. The output of a tool or of another
//! agent is never read as an action.
//!
//! The context of an agent with `capabilities` has the section `trigger_breadcrumb`: the ID, the version and the tags of the trigger,
//! as data.
//!
//! # Tool requests in an answer
//! By the [rules of RCRT servers](crate::model::DefinitionOptions::rcrt), the context of an answer that creates an `agent.response.v1`
//! may have `tool_requests`, a list of at most 64 `{"tool", "input", "requestId", "return_to_llm"}`. The agent then makes these calls
//! and does not write the answer. The permissions, approvals, budgets and guardrails of other tool calls apply, and a retry repeats
//! no call. The crate chooses the ID of a request that is written as a breadcrumb, because a model may choose one ID twice.
//!
//! The model receives the results in its next message, as data with the `requestId` of each. If `return_to_llm` is `false` for all
//! requests and all succeed, the results are the answer to the user: `message` has the text, and for one request `tool_result` has
//! `{"tool", "output"}`. A request without the field follows [`returns_to_user`](crate::tool::ToolSettings::returns_to_user) of its tool.
//! A malformed request, or a request for a tool that the agent may not call, has an error as its result, which the model receives.
//!
//! Such an agent may subscribe to the results of its requests: a result that one of its runs requested starts no run.
//!
//! # Outputs
//! Each entry of `outputs` (`{"name", "description", "schema", "required"}`) is a tool that the agent calls once to submit a result, such
//! as a completion report or a plan. The response contains these results in `outputs`. If the agent ends without a required
//! output, the model receives a reminder (`reminders`, by default one). If the output is still missing then, the response has
//! the status `incomplete` and lists the output in `missing`.
//!
//! # Other agents
//! An agent in `use` is a tool with the agent's ID as its name. An agent in `handoff` is the tool `handoff-to-<id>`. In both cases the
//! other agent executes its own run, with its own permissions, and its answer is the result of the call. An agent in `delegate` is the tool
//! `delegate-to-<id>`; its answer is the final answer of the calling run.
//!
//! The call writes an `agent.request.v1` (`agent`, `prompt`, `requestId`, `requestedBy`), and the other agent answers with its
//! `agent.response.v1`. To receive requests, an agent subscribes with `{"schema_name": "agent.request.v1", "role": "trigger",
//! "context_match": [{"path": "$.agent", "op": "eq", "value": "<its id>"}]}`. The [hop limit](crate::Profile::hop_limit) stops agents that
//! call each other in a cycle.
//!
//! # People
//! A call to which a rule in `approval.tools` or of [its tool](crate::tool::ToolSettings::approvals) applies is made only after a person
//! approves it. The run writes a `human.request.v1` (`kind`, `question`, `options`, `tool`, `description`, `arguments`, `digest`,
//! `requestId`, `requestedBy`, `expires_at`, `of`). The answer is a `human.response.v1` with the tag `request:<requestId>`, the same
//! `request_id`, and `"approved": true` or `false` (or `"decision": "approve"` or `"reject"`, and a `comment`). An answer can name the
//! breadcrumb of its question in `question`; then it counts for no other question.
//!
//! An approval applies to one call with its tool, arguments and definitions. The approved call runs once. If a definition changes
//! before, the run asks again. An answer that an executor wrote approves nothing. If a rule that applies lists people in `by`, only these
//! people can approve; `approval.by` is the list for rules without `by`. The names are compared with `created_by` of the answer,
//! so the service that writes people's answers must set that field reliably. [`Approvals`] documents the rules as JSON, and
//! [`Approval`](crate::tool::Approval) in code.
//!
//! An approval with `arguments` makes the call with these arguments instead. A question that permits this has `changeable`, the input
//! schema of the tool in `arguments_schema`, and in `change_rules` the rules that name people or have a time. Each of these rules that
//! applies to the changed arguments must permit the person, and the answer must arrive within its time. `null` and the original arguments
//! change nothing. Guardrails check the changed arguments before the call. The model receives the result as
//! `{"note", "arguments", "result"}`. A result that goes straight to the user has no note.
//!
//! A tool that [asks a person](crate::tool::ask_human) receives the field `answer` of the person's response. Requests to people, agents
//! and models have timeouts in `wait_seconds` (by default, `people` one day, `agents` one hour and `model` ten minutes). After a timeout
//! of people or agents the model receives an error. The time of an approval rule replaces that of `people`.
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
mod api;
mod assembly;
mod breadcrumb_model;
mod builder;
mod capabilities;
#[cfg(feature = "workflows")]
pub(crate) mod compaction;
mod definition;
mod error;
mod execution;
mod executor;
mod fallback;
mod final_answer;
pub mod guardrail;
mod history;
mod into_model;
mod model;
mod output;
mod provider;
mod providers;
mod recorded;
mod requests;
mod scripted;
mod tool_offer;
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
pub use fallback::{FallbackError, FallbackModel, FallbackModelBuilder, ModelPolicy, SharedLimits};
pub use into_model::{AgentModel, IntoModel};
pub use model::{
    AnsweredBy, BadArguments, CallResult, ChatEvent, ChatMessage, ChatModel, ChatRequest,
    ChatResponse, FailedModel, Media, ModelArguments, ModelError, Opaque, Part, PartOrigin,
    Reasoning, ResponseSchema, Speaker, StopReason, ToolCall, ToolCallDelta, ToolChoice, Usage,
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
pub(crate) use action::{is_open, is_protected};
#[cfg(feature = "workflows")]
pub(crate) use final_answer::request_tags;
#[cfg(feature = "workflows")]
pub(crate) use output::Output;
#[cfg(feature = "workflows")]
pub(crate) use turns::provider_session_in;

pub use crate::tool::ToolSpec;
