//! Flows, defined in JSON or YAML and run by a pure interpreter, whose steps use agents, tools, models and people.
//!
//! A [`WorkloadExecutor`](crate::workload::WorkloadExecutor) makes a workflow an executor. [`Assembly::drive`] runs a flow within any
//! run and reports its events. An [`Assembly`] is a definition together with the [`Services`](crate::Services) that it names.
//!
//! Use this module when the order of the work is fixed, and only some of its steps need a model.
//! Steps are saved, so a crash repeats only the steps in flight. For a single agent that plans its
//! own work, use [`agent`](crate::agent) instead.
//!
//! # Types to start with
//! | to | use |
//! |---|---|
//! | read a definition | [`Workflow::from_json`], [`Workflow::parse`] |
//! | run a workflow as an executor | [`WorkloadExecutor`](crate::workload::WorkloadExecutor) |
//! | run a workflow in sessions | [`FlowDefinition`](crate::workload::FlowDefinition) |
//! | run a flow within your own executor | [`Assembly`], [`RunOptions`], [`Driven`] |
//! | cancel or pause a run | [`Control`] |
//! | limit the size of runs | [`WorkflowLimits`], [`Services::limits`](crate::Services::limits) |
//! | find mistakes in definitions | [`check`](crate::check) |
//! | drive the interpreter yourself | [`FlowRun`], [`Next`], [`StepOutcome`] |
//!
//! # The interpreter
//! [`Workflow::from_json`] reads a definition once, into a form in which every name is resolved and nothing is cyclic.
//! A [`FlowRun`] of one of its flows returns the steps to execute next ([`Ready`]). The driver executes these steps and reports
//! their outcomes. The interpreter itself has no side effects: no I/O, no clock, no async. Its [`Progress`] is plain data, saved
//! after each step, and a run continues from it after a restart.
//!
//! ```
//! use serde_json::json;
//! use std::sync::Arc;
//! use universal_executor::workflow::{Finish, FlowRun, StepOutcome, Workflow};
//!
//! let workflow = Arc::new(Workflow::from_json(&json!({
//!     "tools": {"search": {}},
//!     "agents": {"writer": {"instruction": "Write an article.", "tools": ["search"]}},
//!     "flows": {"main": {"steps": [
//!         {"id": "found", "tool": "search", "input": {"query": "${input.topic}"}, "retry": {"attempts": 3}},
//!         {"if": {"path": "found.pages[0]", "op": "exists", "value": false}, "then": [{"return": "nothing found"}]},
//!         {"agent": "writer", "input": "Topic: ${input.topic}\nPages: ${found.pages}"},
//!     ]}},
//! }))?);
//! let (mut run, next) = FlowRun::begin(Arc::clone(&workflow), "main", "run-1", json!({"topic": "crabs"}))?;
//!
//! let search = &next.ready[0];
//! assert_eq!((search.path.as_str(), search.idempotency_key.as_str()), ("main/found", "run-1/main/found"));
//! run.tell(&search.path, search.attempt, StepOutcome::TimedOut); // The step has three attempts, so the run retries it.
//!
//! // The worker crashes here. Another worker restores the saved progress and gets the steps in flight.
//! let saved = serde_json::to_string(run.progress())?;
//! let mut run = FlowRun::restore(workflow, serde_json::from_str(&saved)?)?;
//! let again = run.outstanding();
//! assert!(again[0].again && again[0].attempt == 2);
//!
//! let next = run.tell(&again[0].path, 2, StepOutcome::success(json!({"pages": ["crab.org"]})));
//! let next = run.tell(&next.ready[0].path, 1, StepOutcome::success(json!("Crabs walk sideways.")));
//! assert_eq!(next.finished, Some(Finish::Completed { output: json!("Crabs walk sideways.").into() }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Definitions
//! The top level has `name`, `description`, `models` ([`ModelSpec`]), `prompts` (strings), `schemas` (JSON Schemas), `tools`
//! ([`WorkflowToolSpec`]), `agents` ([`AgentSpec`]), `flows` and `policies` ([`Policies`]). The sections from `models` to `flows` are
//! objects with an entry per name. A flow has `steps`, and optionally `description`, `input` and `output` (schema names). Unknown
//! fields and unknown names are errors. A step or agent can name only entries of the same definition, and these entries can name
//! only items that the services register.
//!
//! `docs/workflow.schema.json` is the JSON Schema of definitions, for editors. With the feature `schema`, `Workflow::json_schema`
//! returns the same schema. `examples/workloads/` has a file for each construct.
//!
//! # Steps
//! A step is an object with one of the fields below. Every step can also have an `id`, which is its part of the [path](StepPath),
//! `as`, the variable that takes its result (defaults to the `id`), and a `comment`.
//!
//! | field | meaning | further fields |
//! |---|---|---|
//! | `agent`, `tool` | runs this agent or tool | `input`; defaults to the input of the flow |
//! | `model` | calls this model | `input` ([task and data](#instructions-and-data-of-a-model-step)), `prompt`, `output` (a schema) |
//! | `wait_for` | waits for a breadcrumb: `schema_name`, `any_tags`, `all_tags`, `context_match` | |
//! | `ask` | asks people this question | `of` (people allowed to answer), `output` (a schema) |
//! | `emit` | writes a breadcrumb: `schema_name`, `title`, `tags`, `context` | |
//! | `flow` | runs another flow with separate variables; the output of that flow is the result | `input` |
//! | `parallel` | runs branches side by side: steps, or `{"id", "input", "steps"}` | `join` |
//! | `for_each` | runs `steps` for each item of a list, at most `at_once` (8) at a time | `item` (variable of the item), `join` |
//! | `loop` | repeats steps at most `max` times, `until` a condition holds | |
//! | `if` | runs `then` or `else` | |
//! | `match` | runs the first of `cases` that matches, `{"is": value, "then": ..}` or `{"op", "value", "then"}`, or `else` | |
//! | `try` | runs steps, and `on_failure` if one of them fails | |
//! | `set` | sets variables | |
//! | `return` | ends the flow with a value | |
//! | `fail` | fails with a message | `code` |
//!
//! The first six kinds can have `retry` (a number of attempts, or [`StepRetry`]) and `timeout_seconds`. All kinds except the last
//! three can have `escalate`, a list of actions for a result that is not as it should be. An action is `{"when": condition, ..}` with
//! `return` (ends the flow), `continue` (replaces the result), `abort` (fails the step) or `steps`. The first action whose condition
//! on the variable `result` holds is taken.
//!
//! `join` is `all` (every branch ends; one failure fails the step), `fail_fast` (the first failure cancels the other branches) or
//! `first` (the first success cancels the other branches). The result is a list in the order of the branches or items; with `first`
//! it is the result of the first success. `join` defaults to `all` in `parallel` and to `fail_fast` in `for_each`.
//!
//! # Variables
//! `${path}` in a value refers to a variable, or to the value at a JSONPath in it: `${draft}`, `${draft.pages[0]}`. A string that is
//! only one reference takes the type of the value. Within a longer string, the value is written as text. A missing value fails the
//! step, unless the reference ends with `?`: `${draft?}` is null if the variable is missing. `$${` is a literal `${`. A condition is
//! `{"path", "op", "value"}` as in a subscription, with a path that starts with a variable, or `all`, `any` or `not` of conditions.
//!
//! The interpreter sets these variables itself: `input`, `last` (the last result), `item` and `index` in `for_each`, `iteration` in
//! `loop`, `error` (`code`, `message`, `step`) in `on_failure`, and `result` in `escalate`. Branches, and items of `for_each`, can
//! read the variables outside of them. The variables that they set are not visible outside.
//!
//! # Hints
//! `llm_hints` shape all data that enters a flow, because every value of a flow can reach a model. This
//! applies to the input from a trigger, the breadcrumb that `wait_for` returns, the answer of a person and the result of a
//! tool of another service. A breadcrumb's own hints take precedence over the hints of its schema. Conditions, tools and the
//! saved state of the run also receive the shaped data. Whether a breadcrumb matches `wait_for`, and whether an answer matches its
//! schema, is decided on the whole breadcrumb.
//!
//! A tool that needs an excluded field reads it from a breadcrumb:
//! [`ToolContext::context`](crate::tool::ToolContext::context) has the trigger, and
//! [`ToolContext::store`](crate::tool::ToolContext::store) reads the others. Hints that cannot be used withhold all data of the
//! breadcrumb: the step (or the run, if the breadcrumb is its trigger) fails with the code `withheld` and a message that names
//! the hint. A step also fails with `withheld` if the hints exclude its whole answer, or if its approval changes arguments that are
//! excluded. All other approvals and rejections count in any case.
//!
//! # Instructions and data of a model step
//! A model step sends its `prompt` as the system message and a string `input` as the user message. Both are instructions. The
//! value of each variable is data: it is in a fenced section, as in the [context of an agent](crate::executor::ModelContext::render),
//! and the text has `[data NAME]` in its place. An `input` that is one variable, a list or an object is data as a whole. There is one
//! exception: in a turn of a [workload](crate::workload), an `input` that equals the text of the user's message is sent as the
//! user's message.
//!
//! # Answers to `wait_for`
//! The oldest matching breadcrumb answers the step if it meets these conditions:
//! - It was written after the trigger.
//! - It was written after the newest matching breadcrumb that earlier steps of the same sequence wrote with `emit` or through their
//!   agents.
//! - It did not answer an earlier step of the same sequence, or it was changed after it did.
//!
//! A breadcrumb is therefore not missed if it is written before the step begins, in another order than the steps wait, or while no
//! worker runs the flow. It answers one step of a sequence, and a sequence does not answer itself with its own breadcrumbs. These
//! conditions are tracked for the newest 32 breadcrumbs of a schema that the steps of a sequence wrote or waited for; anything older
//! does not answer a step.
//!
//! Branches that run side by side, and the steps of a graph (also if one depends on the other), are separate sequences: the same
//! breadcrumb can answer a step in each of them, and a breadcrumb that one of them emits can answer a step in another. A breadcrumb
//! that a tool wrote can answer, too. To exclude such answers, use tags, or a `context_match` with a value of the run. Outside of a
//! run, in a `Supervisor`, a breadcrumb counts as written after the trigger if it was not in the store when the flow started.
//!
//! # Graphs
//! A flow with `"dag": true`, or in which a step has `depends_on`, is a graph. Each step of a graph has an `id` and runs an agent,
//! tool, model or flow. A step begins when all steps that it depends on have ended: the steps that `depends_on` names, and the steps
//! whose results its input uses, as in `${fetch.pages}`. If a step fails, the flow fails. The result of the flow is the result of the
//! step on which no other step depends; if there are several such steps, it is an object of their results by ID.
//!
//! # Promises
//! - **Each attempt is handed out once**, and each step that was handed out is reported or cancelled.
//! - **A finished step never runs again.** After a restart, [`FlowRun::outstanding`] returns the steps that were in flight, with
//!   the same idempotency keys.
//! - **The same inputs give the same run**, including its events, which are well nested and numbered without gaps.
//! - **Everything is bounded**: steps of a definition and of a run, depth, items, and the size of values.
//!
//! # What a driver does
//! The driver executes ready steps side by side, up to 32 at a time, within the run of the executor: it spawns no tasks. It saves the
//! run before a step begins and after a step ends. If a worker is lost while a step is in flight, the next attempt starts this step
//! again. The exception is a call of a tool that is not [idempotent](crate::tool::RetrySafety::Idempotent): its outcome is unknown,
//! and the step fails with `outcome_unknown`. Such a tool is also not retried after a timeout, and a tool that runs at most once is
//! not retried after any failure.
//!
//! An agent continues its saved conversation after a crash and in each attempt that `retry` allows, and so do the agents that it
//! called. Only the failed work is repeated, which is the request to the model. A tool call with a saved result is not repeated, and
//! a tool call that was in flight follows the same rules as a step. No attempt therefore makes a second call of a tool that runs at
//! most once, and the budget of an agent applies to all attempts together.
//!
//! An attempt of the executor's run yields to the next attempt if a step has ended in it and it is not the first attempt, or if one
//! fifth of the time in the profile (one hour by default) has passed. The run is then suspended before the next step begins, and due
//! at once; its attempts and its time count from the start again. A run can therefore lose a worker now and then, and can take longer
//! than the time of one attempt, as long as its steps end. A step that begins while no other step is running has four fifths of the
//! time, and is stopped after that.
//!
//! Before an attempt yields, it waits for the running steps, and starts no further ones, for a twentieth of the time. If they do not
//! end, other steps begin as before, and the attempt waits again a fifth of the time later. After four fifths, no further step begins.
//! A step that begins while others run may therefore have no more than one fifth of the time. A run that loses three workers (by
//! default) before it can yield, usually at the same step, ends as a `crash_loop`. On a store without a ledger no attempt yields.
//!
//! A transient store error ends an attempt, but it does not stop the other running steps or the agents that other agents called: they
//! have one minute to end, and their outcomes are saved for the next attempt. If the store cannot save them, the attempt retries for
//! one minute. If the store rejects a breadcrumb of an agent, or hints withhold data from an agent, the step fails.
//!
//! The trigger of an agent is the input of its step. The agents in its `use` and `delegate` lists work within the same run. Its
//! questions to people, and its requests to tools of other services, are breadcrumbs, as for any agent. A breadcrumb that
//! a step emits gets a tag `step:<id>`, by which later attempts recognise it after a crash, so that it is written once.
//! Breadcrumbs with this tag that the run did not write are ignored.
//!
//! A run without running steps is suspended while it waits for people or breadcrumbs, for a delay of more than five seconds, and
//! while it is [paused](Control::Pause). A step without `timeout_seconds` waits for people and breadcrumbs for one week.
//!
//! The saved state of a run is at most 1 MiB. It has the variables and the conversations of the running agents. If it would be
//! larger, the step in flight with the largest part fails with the code `too_large`, which `try` handles like any other failure. A
//! step whose part nests too deep fails in the same way. A paused run continues until its state can be saved. After each 256 steps
//! that only the interpreter executes, the driver yields to other tasks.
//!
//! If a request of a running agent exceeds the `at_tokens` of `policies.compaction`, the oldest messages of its conversation are
//! removed or summarised before the next request to its model. The task stays, and each tool call stays with its result. Compaction
//! happens if it brings the request below `at_tokens`, or if it removes at least half of `at_tokens`: otherwise a task that is too
//! long by itself would cause a summary in every turn. Of a conversation that is longer than 512 KiB, the summarising model receives
//! the first quarter of this size, which has the task and an earlier summary, and the end. A summary has to pass the `output`
//! guardrails of the definition, and its cost is reported as [`StepEventKind::Usage`]. If there is no summary, the conversation stays
//! as it is, and the next summary is requested when the conversation has grown by half of `at_tokens`.
//!
//! # Questions to people
//! A step that asks a person writes a `human.request.v1` breadcrumb with the tag `request:<requestId>`. Its context has `kind`
//! (`question`), `question`, `requestId` (the ticket in [`Suspended`](FlowEventKind::Suspended)), `requestedBy`, `expires_at`, and, if
//! the definition has them, `of` (people allowed to answer) and `schema` (the schema of the answer).
//! [`recent("human.request.v1", n)`](crate::BreadcrumbStoreExt::recent) returns the newest questions.
//!
//! [`Questions`](crate::client::Questions) writes answers on behalf of people. A service that can access only the store can write
//! the answer itself, as a `human.response.v1` breadcrumb with the tag `request:<requestId>`:
//!
//! ```
//! use serde_json::json;
//! use universal_executor::NewBreadcrumb;
//!
//! # let request_id = "r-1";
//! let answer = NewBreadcrumb::new("human.response.v1")
//!     .tag(format!("request:{request_id}"))
//!     .created_by("ann")
//!     .context(json!({"request_id": request_id, "answer": "yes"}));
//! # let _ = answer;
//! ```
//!
//! These answers have no effect and are not errors: an answer of a person outside of `of`, an answer that does not match the
//! schema, a late answer, and an answer that an executor wrote. The step continues to wait.
//! [`Questions`](crate::client::Questions) refuses such answers.
//!
//! A tool step can need an approval, by a [rule](crate::tool::Approval) of the tool or by `"approval": true`. The question then has
//! the kind `approval`, and the answer has `approved`, as in a question of [an agent](crate::agent#people). The people and the time of
//! the rules apply, and the timeout of the step also ends the wait. A person can change the arguments, which then replace the
//! step's `input`.
//!
//! # Definitions that change
//! A run continues with the definition with which it began. When the first run of a definition is saved, the store saves the
//! definition as a `workflow.kept.v1` breadcrumb with the tag `definition:<hash>`, unless it is larger than 512 KiB. A worker uses
//! such a breadcrumb only if the content has this hash. A worker with a newer definition can therefore finish runs of the old
//! definition, with the tools and models that are registered now. These runs can write only schemas that the new definition may
//! write. If the old definition is missing, or names something that is no longer registered, the run ends with the code `refused` and
//! a message with the reason. A saved definition can be deleted when none of its runs is left.
//!
//! # Cost of a step
//! In addition to its work, a step of a flow takes about 9 microseconds in memory and 80 in a file (SQLite without waiting for the
//! disk), where it is saved twice; 1 microsecond of that is the interpreter. These are the best rounds of `cargo bench --features
//! sqlite,workflows --bench flow` with fifty steps, on two shared cores under load.
//!
//! # Limitations
//! `history` has an effect only within a session, and only [workloads](crate::workload) have sessions. Without a session, an agent
//! receives only the input of its step, and [`WorkloadExecutor::warnings`](crate::workload::WorkloadExecutor::warnings) lists each
//! agent whose `history` needs a session. A registered [`Provider`](crate::agent::Provider) manages its own conversations, so
//! compaction does not apply to them. Composite steps have neither `retry` nor `timeout_seconds`.

mod ast;
mod definition;
mod drive;
mod error;
mod event_form;
mod expression;
mod interpret;
#[cfg(feature = "schema")]
mod json_schema;
mod model_input;
mod policies;
mod syntax;

pub(crate) use definition::Document;
pub use definition::{
    AgentPermissions, AgentSpec, FlowSummary, History, Instruction, ModelSpec, Workflow,
    WorkflowToolSpec,
};
pub(crate) use drive::{Answered, Conversations, PROGRESS};
pub use drive::{
    Assembly, AssemblyError, Control, Driven, EventSink, FlowStateError, RunOptions, StepEvent,
    StepEventKind,
};
pub use error::{LoadProblem, Oddity, WorkflowLoadError, WorkflowWarning};
pub use interpret::{
    Finish, FlowAnomaly, FlowEvent, FlowEventKind, FlowRun, MayRetry, Next, Progress, Ready,
    RunError, StepFailure, StepOutcome, StepPath, StepTask,
};
pub use model_input::{ModelInput, TextPart};
pub use policies::{Compaction, CompactionMethod, GuardrailNames, Policies, StepRetry};

pub use crate::model::{DefinitionPath, DefinitionPathPart, Position};
pub use crate::services::WorkflowLimits;
