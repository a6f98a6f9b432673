//! One pattern for LLM agents, tools and workflows, embedded in your service:
//!
//! ```text
//! event -> match subscriptions -> fetch the subscribed context from the store -> execute -> respond
//! ```
//!
//! Only `execute` differs between an agent (calls a model), a tool (runs a function) and anything else. Subscriptions
//! are data, so a new schema, agent or tool needs JSON and no code. The store of breadcrumbs, versioned JSON packets,
//! is the only state: a worker can crash, restart or be doubled, and nothing is lost or answered twice.
//!
//! # Where to start
//! - [`UniversalExecutor`] is the pattern; its documentation has a whole executor.
//! - [`tool::ToolExecutor`] and [`agent::AgentExecutor`] are executors made of a function, or of a definition and a model.
//! - [`workflow::WorkflowExecutor`] runs a flow of steps: agents, tools, models and people, in branches and loops.
//! - [`machine`] is what keeps the tool calls of an agent in order, for drivers of models and CLI agents.
//! - [`Subscriptions`] reads definitions and says what an event is to an executor, and why.
//! - [`MemoryStore`] is the store to begin with, `SqliteStore` the one that stays; [`store`] says what a store promises.
//! - [`ExecutionContext::for_model`] is what a model may see of a context: shaped by [`hints`], within a
//!   [`ContextBudget`], rendered as data.
//! - [`Runtime`] runs many executors on one [`EventSource`].
//! - [`workload`] runs agents, flows, closures and executors turn by turn in sessions, and streams what happens.
//!
//! # Features
//! `schema` is on by default.
//!
//! | feature | what it brings |
//! |---|---|
//! | `schema` | `tool::tool_fn` and `tool::tool_fn_blocking`: tools over types of your own, with schemas made from them |
//! | `sqlite` | `SqliteStore`: a durable store in one file, which several processes may share |
//! | `postgres` | `PostgresStore`: a durable store for workers on many machines, in PostgreSQL (sqlx, rustls) |
//! | `nats` | `source::NatsSource`, `source::NatsRelay` and `source::NatsServer`: events through NATS JetStream (async-nats, rustls) |
//! | `cli` | `agent::CliProvider`: agents that are programs of their own, which call back over HTTP on loopback (hyper) |
//! | `openai` | `agent::OpenAiCompatible`: models behind an endpoint that speaks the chat completions of OpenAI, and `agent::OpenAiEmbedder` (reqwest, rustls) |
//! | `genai` | `agent::GenaiModel`: models of providers that speak protocols of their own, as Anthropic and Gemini (genai, reqwest, rustls) |
//! | `rcrt` | `RcrtStore`: breadcrumbs on an RCRT server, and `source::SseSource`: events from it or another server that sends them (reqwest, rustls) |
//! | `embed-local` | `store::meaning::LocalEmbedder`: search by [meaning](store::meaning) with a model of words in a folder (Model2Vec) |
//! | `templates` | rules of the type `template` in [`hints`], in Handlebars |
//! | `validate` | input and output of [`tool`]s, and of [`workflow`]s, are checked against their JSON Schemas |
//! | `yaml` | `workflow::Workflow::from_yaml`: definitions of workflows in YAML |
//! | `metrics` | counters and histograms of the runtime through the `metrics` facade: [`runtime::metrics`] |
//! | `mock` | `store::mock`: a mock store for unit tests, made with mockall |
//! | `conformance` | `store::conformance` and `source::conformance`: the suites that every store and source must pass; `store::Faulty`: one that fails on purpose |
//! | `full` | every feature but the two for tests |

pub mod agent;
mod backoff;
mod bugs;
mod clock;
pub mod error;
pub mod executor;
pub mod hints;
#[cfg(any(feature = "genai", feature = "openai", feature = "rcrt"))]
mod http;
pub mod machine;
pub mod model;
pub mod runtime;
mod secret;
pub mod source;
pub mod store;
pub mod tool;
pub mod workflow;
pub mod workload;

pub use async_trait::async_trait;
pub use error::{BoxError, permanent, retry_after};
pub use executor::{
    ContextBudget, ExecutionContext, Failure, Format, Outcome, Profile, Response,
    UniversalExecutor, suspend,
};
pub use model::{
    Breadcrumb, BreadcrumbId, Event, EventKind, Explanation, Fetch, Json, NewBreadcrumb, Patch,
    Role, Route, Selector, Subscription, SubscriptionIndex, Subscriptions,
};
pub use runtime::Runtime;
pub use secret::Secret;
pub use source::{Delivery, EventSource};
#[cfg(feature = "postgres")]
pub use store::PostgresStore;
#[cfg(feature = "rcrt")]
pub use store::RcrtStore;
#[cfg(feature = "sqlite")]
pub use store::SqliteStore;
pub use store::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, RunLedger, Wake, WithLedger};

/// README.md, so that its code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The page on PostgreSQL, so that its code is compiled.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../docs/from-sqlite-to-postgres.md")]
struct FromSqliteToPostgres;

/// The page on scaling, so that its code is compiled.
#[cfg(all(doctest, feature = "nats", feature = "postgres"))]
#[doc = include_str!("../docs/scaling.md")]
struct ScalingPostgres;

/// The page on RCRT servers, so that its code is compiled.
#[cfg(all(doctest, feature = "rcrt", feature = "sqlite"))]
#[doc = include_str!("../docs/on-an-rcrt-server.md")]
struct OnAnRcrtServer;

/// The page on search by meaning, so that its code is compiled.
#[cfg(all(doctest, feature = "embed-local", feature = "sqlite"))]
#[doc = include_str!("../docs/search-by-meaning.md")]
struct SearchByMeaning;

/// The page on SQLite, so that its code is compiled and run.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../docs/from-memory-to-sqlite.md")]
struct FromMemoryToSqlite;
