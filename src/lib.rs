//! Run LLM agents, tools and workflows durably inside your service, on its own database.
//!
//! A service writes *breadcrumbs*, versioned JSON records, to a [store]. *Executors* subscribe to breadcrumbs by
//! JSON. Each event follows the same path:
//!
//! ```text
//! event -> match subscriptions -> claim the run -> fetch the context -> execute -> respond
//! ```
//!
//! Only `execute` differs: an [agent] calls a model, a [tool] runs a function, a workflow runs
//! steps, and your own type runs your code. The store is the only state. SQLite and PostgreSQL commit the response and
//! the end of the run together, so each trigger version gets one response, even if workers crash, restart or run in
//! parallel.
//!
//! # Example
//! ```
//! use serde_json::json;
//! use universal_executor::agent::{Agent, ScriptedModel};
//! use universal_executor::{
//!     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, Subscription, UniversalExecutor,
//! };
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let store = MemoryStore::default();
//! let helper = Agent::new("helper", ScriptedModel::new(["The page is about Rust."]))
//!     .instructions("Answer questions about the page.")
//!     .on(Subscription::trigger("user.message.v1"))
//!     .reads(Subscription::context("web.page.v1").key("page"))
//!     .bind(&store)?;
//!
//! store.create(NewBreadcrumb::new("web.page.v1").context(json!({"title": "Rust"}))).await?;
//! let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "What is it about?"}));
//! let event = Event::created(&*store.create(message).await?);
//!
//! assert!(matches!(helper.process_event(&event).await?, Outcome::Responded { .. }));
//! assert!(matches!(helper.process_event(&event).await?, Outcome::AlreadyDone { .. }));
//!
//! let response = store.latest("agent.response.v1").await?.ok_or("no response")?;
//! assert_eq!(response.context.text("message"), Some("The page is about Rust."));
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```
//!
//! # Guide
//! The [guide] has a [tutorial](guide::tutorial) from an empty project to several machines, [concepts](guide::concepts), a
//! [cookbook](guide::cookbook) with one task per page, [reference tables](guide::reference) of every field,
//! [operations](guide::operations), [troubleshooting](guide::troubleshooting) and a [glossary](guide::glossary).
//!
//! # Types to start with
//! | to | use |
//! |---|---|
//! | write an executor as a closure | [`executor`](fn@executor), [`Subscription`], [`ExecutionContext`] |
//! | write an executor as a type | [`UniversalExecutor`], [`Subscriptions`] |
//! | run executors on a store | [`Runtime::on`] |
//! | send requests from another process, and manage runs | [`Client`] |
//! | run executors on another event source | [`Runtime::on_source`], [`EventSource`] |
//! | build an agent in code | [`agent::Agent`] |
//! | build an agent from a JSON definition | [`agent::AgentDefinition`], [`agent::AgentExecutor`] |
//! | build a tool from a function | [`tool::json_tool`], [`tool::ToolExecutor`], [`tool::ToolRegistry`] |
//! | register models and tools that agents, workflows and definitions name | [`Services`] |
//! | run agents and tools that the store defines (workflows: the feature `workflows`) | [`runtime::definitions`] |
//! | run steps in order, in parallel or with people | the feature `workflows`: `workflow::Workflow`, `workload::WorkloadExecutor` |
//! | load workloads from files, and run their turns without an executor | the feature `workloads`: `workload::WorkloadManager`, `workload::Supervisor` |
//! | chat in sessions with streamed output | [`client::Session`] |
//! | choose a store | [`store`]: [`MemoryStore`], `SqliteStore`, `PostgresStore`, `RcrtStore` |
//! | find the mistakes in definitions before they run | the feature `workflows`: `check::Check` |
//! | limit the context of a model | [`ExecutionContext::for_model`], [`hints`], [`ContextBudget`] |
//! | connect a model | [`agent::ChatModel`], and the page [models](guide::cookbook::models) |
//! | test executors and agents | the feature `testing`, and the page [tests](guide::cookbook::tests) |
//! | write your own store or source | [`BreadcrumbStore`], [`EventSource`], the feature `conformance` |
//!
//! # Guarantees
//! - **At-least-once processing.** On a store with a [`RunLedger`], a trigger is processed until its run is done, skipped,
//!   superseded or failed. After a crash, another worker takes the run over when its lease expires.
//! - **One visible response** per tenant, executor, trigger and trigger version, while the store retains the finished run.
//! - **No silent failure.** A failed run leaves a dead letter with the schema `executor.failed.v1`, unless it was cancelled.
//!
//! `execute` itself can run more than once. Pass [`ExecutionContext::idempotency_key`] to external services. The page
//! [guarantees](guide::reference::guarantees) lists the conditions for each store.
//!
//! # Errors
//! `execute` and `respond` return any error as a [`BoxError`]. The error decides how the run
//! continues:
//!
//! | error | effect on the run |
//! |---|---|
//! | [`permanent`] | the run fails at once, and leaves a dead letter |
//! | [`retry_after`] | a retry after the delay, which uses no attempt |
//! | [`suspend`] | the run waits for a breadcrumb or a time, without a worker |
//! | any other | a retry with a growing delay, at most 5 attempts by default |
//!
//! [`class_of`] returns the decision and the code of an error, for logs and metrics.
//!
//! # Features
//! `agents` and `schema` are on by default. Your own executors, tools, the runtime, the client and the stores do not need `agents`,
//! `workflows` and `workloads`: set `default-features = false`, and add `schema` for `tool::tool_fn`. Executors that the store defines need
//! `agents`. `full` enables all features except `mock`, `conformance` and `testing`.
//!
//! | feature | adds |
//! |---|---|
//! | `agents` | [`agent`], [`Services`], and [`runtime::definitions`] for agents, tools and your own kinds of definitions; part of `openai`, `genai` and `cli` |
//! | `workflows` | the modules `workflow` and `check`, `workload::WorkloadExecutor` with sessions, `StoredDefinitions::workflows`, and the guardrails and limits of [`Services`]; includes `agents`; part of `yaml` |
//! | `workloads` | `workload::WorkloadManager`, `Supervisor`, `NativeDefinition` and `ExecutorDefinition`; includes `workflows` |
//! | `schema` | typed tools with derived JSON Schemas: `tool::tool_fn` |
//! | `signal` | `RuntimeBuilder::run_until_signal`: a runtime that stops at Ctrl-C and SIGTERM; part of `sqlite` and `postgres` |
//! | `sqlite` | `SqliteStore`: a durable store in one file |
//! | `postgres` | `PostgresStore`: a durable store for workers on many machines (sqlx, rustls) |
//! | `nats` | `source::NatsSource` and `source::NatsRelay`: events through NATS JetStream (async-nats, rustls) |
//! | `rcrt` | `RcrtStore` and `source::SseSource`: breadcrumbs and events of an RCRT (Right Context Right Time) server |
//! | `openai` | `agent::OpenAiCompatible` and `agent::OpenAiEmbedder`: endpoints with the OpenAI chat completions API |
//! | `genai` | `agent::GenaiModel`: Anthropic, Gemini, Ollama and other providers through the crate `genai` |
//! | `mcp` | `mcp`: tools of MCP (Model Context Protocol) servers |
//! | `mcp-server` | `mcp::McpService`: a server that lets MCP clients call tools, agents and workflows; includes `mcp` |
//! | `cli` | `agent::CliProvider`: external programs as agents; the programs call tools over HTTP on loopback |
//! | `embed-local` | `store::embedding::LocalEmbedder`: embeddings for vector search without a network (Model2Vec) |
//! | `templates` | Handlebars templates in [`hints`] |
//! | `validate` | JSON Schema checks of tool and workflow input and output |
//! | `yaml` | `workflow::Workflow::from_yaml`: workflow definitions in YAML |
//! | `uuid` | conversions between [`BreadcrumbId`], [`store::ClaimId`] and the type of the crate `uuid` |
//! | `metrics` | counters and histograms through the `metrics` facade: [`runtime::metrics`] |
//! | `testing` | the module `testing`: a kit for tests of executors and agents, for dev-dependencies |
//! | `mock` | `store::mock`: a mock store for unit tests |
//! | `conformance` | the test suites for stores and sources, and `store::Faulty`, which injects failures (also in `testing`) |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "agents"),
    allow(
        rustdoc::broken_intra_doc_links,
        rustdoc::private_intra_doc_links,
        reason = "links to agents are text in a documentation without the default features"
    )
)]

#[cfg(feature = "agents")]
pub mod agent;
mod backoff;
mod bugs;
#[cfg(feature = "workflows")]
pub mod check;
#[cfg(any(feature = "cli", feature = "mcp"))]
mod child;
mod classes;
pub mod client;
mod clock;
pub mod error;
pub mod executor;
#[cfg(test)]
mod fuzz;
#[cfg(any(doc, doctest, test))]
pub mod guide;
mod hex;
pub mod hints;
#[cfg(any(
    feature = "genai",
    feature = "mcp",
    feature = "openai",
    feature = "rcrt"
))]
mod http;
pub mod machine;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod model;
mod request;
pub mod runtime;
mod scrub;
#[cfg(any(feature = "agents", feature = "rcrt"))]
mod secret;
#[cfg(feature = "agents")]
mod services;
mod session_log;
pub mod source;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;
#[cfg(feature = "workflows")]
pub mod workflow;
#[cfg(feature = "workflows")]
pub mod workload;

pub use async_trait::async_trait;
pub use classes::class_of;
pub use client::Client;
pub use error::{BoxError, ErrorExt, permanent, retry_after};
pub use executor::{
    ContextBudget, ExecutionContext, Failure, Format, Outcome, Profile, Response,
    UniversalExecutor, executor, suspend,
};
pub use model::{
    Breadcrumb, BreadcrumbId, Event, EventKind, Explanation, Fetch, Json, NewBreadcrumb, Patch,
    Role, Route, Selector, Subscription, SubscriptionIndex, Subscriptions,
};
pub use runtime::Runtime;
#[cfg(any(feature = "agents", feature = "rcrt"))]
pub use secret::Secret;
#[cfg(feature = "agents")]
pub use services::Services;
pub use source::{Delivery, EventSource};
#[cfg(feature = "postgres")]
pub use store::PostgresStore;
#[cfg(feature = "rcrt")]
pub use store::RcrtStore;
#[cfg(feature = "sqlite")]
pub use store::SqliteStore;
pub use store::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, RunLedger, Wake, WithLedger};

/// Compiles the examples in README.md as documentation tests.
#[cfg(all(doctest, feature = "agents", feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
