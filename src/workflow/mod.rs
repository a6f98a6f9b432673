//! Flows: agents, tools, models and people in steps, defined in JSON or YAML and run by a pure interpreter.
//!
//! A [`WorkloadExecutor`](crate::workload::WorkloadExecutor) makes a workflow an executor. [`Assembly::drive`] runs a flow within any
//! run, and reports its events meanwhile. An [`Assembly`] is a definition together with the [`Services`](crate::Services) that it
//! names.
//!
//! # The interpreter
//! A definition is read once ([`Workflow::from_json`]) into a form in which every name is resolved and nothing is cyclic.
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
//! run.tell(&search.path, search.attempt, StepOutcome::TimedOut); // tried again, since it has three attempts
//!
//! // The worker crashes here. Another one reads the progress and learns what is under way.
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
//! At the top stand `name`, `description`, `models` ([`ModelSpec`]), `prompts` (texts), `schemas` (JSON Schemas), `tools`
//! ([`WorkflowToolSpec`]), `agents` ([`AgentSpec`]), `flows` and `policies` ([`Policies`]), each but the first two an object by
//! name. A flow has `steps`, and `description`, `input` and `output` (names of schemas) if wanted. Unknown fields and names
//! are errors. A definition can name only what it has itself, and those who drive it only let it have what they know.
//! `docs/workflow.schema.json` is the JSON Schema of definitions, for editors; with the feature `schema` `Workflow::json_schema`
//! gives it. `examples/workloads/` has a file for each construct.
//!
//! # Steps
//! A step is an object with one of these fields. Any may have an `id`, which is its part of the [path](StepPath), `as`, the
//! variable that takes its result (the `id` if absent), and a `comment`.
//!
//! | field | what it does | beside it |
//! |---|---|---|
//! | `agent`, `tool` | runs the one of that name | `input`; all that the flow was given if absent |
//! | `model` | asks the model of that name | `input` ([task and data](#instructions-and-data-of-a-model-step)), `prompt`, `output` (a schema) |
//! | `wait_for` | waits for a breadcrumb: `schema_name`, `any_tags`, `all_tags`, `context_match` | |
//! | `ask` | asks people this question | `of` (who may answer), `output` (a schema) |
//! | `emit` | writes a breadcrumb: `schema_name`, `title`, `tags`, `context` | |
//! | `flow` | runs another flow, with variables of its own; what that returns is the result | `input` |
//! | `parallel` | runs branches side by side: steps, or `{"id", "input", "steps"}` | `join` |
//! | `for_each` | runs `steps` for each item of a list, so many `at_once` (8) | `item` (its variable), `join` |
//! | `loop` | repeats steps at most `max` times, `until` a condition holds | |
//! | `if` | runs `then` or `else` | |
//! | `match` | runs the first of `cases` that fits, `{"is": value, "then": ..}` or `{"op", "value", "then"}`, or `else` | |
//! | `try` | runs steps, and `on_failure` if one of them fails | |
//! | `set` | sets variables | |
//! | `return` | ends the flow with a value | |
//! | `fail` | fails with a message | `code` |
//!
//! The first six may have `retry` (a number of attempts, or [`StepRetry`]) and `timeout_seconds`; all but the last three may
//! have `escalate`: what happens if their result is not what it should be, `{"when": condition, ..}` with `return` (ends the
//! flow), `continue` (another result), `abort` (fails) or `steps`. The first whose condition holds of `result` takes it up.
//!
//! `join` is `all` (each has to end, and to succeed), `fail_fast` (the same, but a failure cancels the others) or `first`
//! (the first success cancels the others). Results are a list in the order of branches and items, under `first` just that
//! one. `parallel` waits for `all` by default, `for_each` is `fail_fast`.
//!
//! # Variables
//! `${path}` in a value is a variable, or what is at a JSONPath in it: `${draft}`, `${draft.pages[0]}`. Alone in a text it keeps
//! its type, within a text it is written out. With `?` before the brace it may be absent, and is null then; else the step
//! fails. `$${` is a `${` that means nothing. A condition is `{"path", "op", "value"}` as in a subscription, its path
//! beginning with a variable, or `all`, `any` or `not` of such.
//!
//! Besides those that steps set there are `input`, `last` (the last result), `item` and `index` in `for_each`, `iteration` in
//! `loop`, `error` (`code`, `message`, `step`) in `on_failure`, and `result` in `escalate`. Branches and items of `for_each`
//! see the variables outside of them and keep their own to themselves.
//!
//! # Hints
//! Data enters a flow as its `llm_hints` shape it, because every value of a flow can reach a model. This
//! applies to the input from a trigger, the breadcrumb that `wait_for` returns, the answer of a person and the result of a
//! tool of another service. Own hints of a breadcrumb take precedence over the hints of its schema. Conditions, tools and the
//! saved state of the run see the shaped data too. Whether a breadcrumb matches `wait_for`, and whether an answer fits its
//! schema, is decided on the whole breadcrumb.
//!
//! A tool that needs an excluded field reads it from a breadcrumb:
//! [`ToolContext::context`](crate::tool::ToolContext::context) has the trigger, and
//! [`ToolContext::store`](crate::tool::ToolContext::store) the others. Hints that cannot be used withhold all data of the
//! breadcrumb: the step, or the run if the breadcrumb is its trigger, fails with the code `withheld` and a message that names
//! the hint. So does a step whose answer is excluded as a whole, and one whose approval has changed arguments that are excluded.
//! Any other approval or rejection counts in any case.
//!
//! # Instructions and data of a model step
//! A model step sends its `prompt` as the system message and a text `input` as the user message. Both are instructions. The
//! value of each variable is data: it is in a fenced section, as in the [context of an agent](crate::executor::ModelContext::render),
//! and the text has `[data NAME]` in its place. An `input` that is one variable, a list or an object is data as a whole. The one
//! exception: in a turn of a [workload](crate::workload), an `input` that equals the text of the user's message is sent as the
//! user's message.
//!
//! # What answers `wait_for`
//! The oldest breadcrumb that is what the step waits for, of those written after the trigger, and after the newest such breadcrumb
//! that the steps before it wrote, one after another, by what they `emit` and by what their agents write. What answered one of
//! those steps counts no more, unless it was changed since. So nothing is missed that comes before the step begins, in another
//! order than it is waited for, or while its worker is gone; a breadcrumb answers one of such steps, and what
//! they write themselves answers none. This holds of the newest 32 breadcrumbs of a schema that the steps wrote or waited for: what
//! is older than those answers nothing. Steps side by side are all answered by the same one, and what one of them emits may
//! answer another; so it is with the steps of a graph, also where one depends on the other. What a tool wrote may answer too. Where
//! this is not intended, use tags or `context_match` with a value of the run. Outside of a run, in a `Supervisor`, a breadcrumb that
//! was not in the store at the start of the flow counts as written after it.
//!
//! # Graphs
//! A flow whose steps have `depends_on`, or that says `"dag": true`, is a graph: each step has an `id`, runs an agent, tool,
//! model or flow, and begins once all have ended that it depends on, by name or by using their results: `${fetch.pages}`. If
//! any fails, the flow fails. Its result is that of the step on which no other depends, or an object of all of these by id.
//!
//! # Promises
//! - **Each attempt is handed out once**, and each step that was handed out is told of or cancelled.
//! - **A finished step is never run again.** After a restart [`FlowRun::outstanding`] returns the steps that were in flight, with
//!   the same idempotency keys.
//! - **The same inputs give the same run**, its events included, which are well nested and numbered without gaps.
//! - **Everything is bounded**: steps of a definition and of a run, depth, items, and the size of values.
//!
//! # What a driver does
//! Steps that are ready are done side by side, up to 32 at a time, within the run of the executor: nothing is spawned. The run
//! is saved before a step begins and after it has ended. A step that may have been begun by a worker that is gone is begun
//! again, but for a call of a tool that is not [idempotent](crate::tool::RetrySafety::Idempotent): its outcome is unknown,
//! and the step fails with `outcome_unknown`. Such a tool is not called again after its time was up either, and one that runs
//! at most once after no failure.
//!
//! Agents go on within their conversation, after a crash and in each attempt that `retry` gives them, together with the agents
//! that they asked: only what failed is done again, which is asking the model. A call whose result is there is not made
//! again, and of one that was under way the same holds as of a step. So no attempt makes a second call of a tool that runs at
//! most once, and what an agent may spend is for all attempts together.
//!
//! An attempt at a run that came further makes way for another one if it is not the first, or if a fifth of the time is over
//! that the profile gives it (an hour): the run is suspended before the next step begins, and due at once, and its attempts and
//! its time count anew. So a run may lose a worker every now and then, and may take longer than its time, as long as its steps
//! end: one that begins while nothing else is at work has four fifths of the time, and is cut off after that.
//!
//! What is at work ends before. If that takes long (a twentieth of the time), the others go on beside it and wait again a fifth
//! later; when four fifths are over none begins any more. So a step that begins beside others may have no more than one fifth
//! left. A run that loses three workers (by default) before it can make way, mostly at the same step, is a `crash_loop`.
//! Where the store has no ledger no attempt makes way.
//!
//! An error of the store that may pass ends an attempt, and not the steps at work beside, nor the agents that others have
//! asked: they have a minute to end, and what they come to is kept for the next attempt. That is tried again for a minute if
//! the store cannot keep it. What it refuses to write for an agent, and what hints withhold from one, fails the step.
//!
//! An agent works on what the step gives it, as its trigger. The agents in `use` and `delegate` of it work within the same
//! run. What they ask people, and tools that are served elsewhere, is asked by breadcrumbs, as of any agent. A breadcrumb that
//! a step emits gets a tag `step:<id>`, by which it is known after a crash and to further attempts, so that it is written once;
//! what others gave that tag is none of the step's.
//!
//! While nothing is at work the run is suspended: for people and breadcrumbs, for delays of more than five seconds, while it is
//! [paused](Control::Pause). People and breadcrumbs are waited for a week if the step has no `timeout_seconds`.
//!
//! What is kept of a run takes no more than 1 MiB: its variables, and the conversations of the agents at work. Where it would take
//! more, the step under way fails whose part is the largest, with the code `too_large`, which `try` takes up as any other, and so
//! does one of which something nests deeper than can be kept. A run that is paused meanwhile goes on until there is room. Where a
//! definition has nothing but steps that the interpreter does, others have their turn after each 256 of them.
//!
//! Where the requests of an agent at work become longer than the `at_tokens` of `policies.compaction`, what is oldest of what it has
//! said and read is left out or summed up before its model is asked again; what it was asked stays, and each call stays with its
//! result. This is done if it brings the request below `at_tokens`, or leaves out half as much as that at least: where what has to
//! stay is too long by itself, no summary is asked for with each turn. Of what is too long to be shown for a summary (512 KiB) a
//! model is shown the first quarter, with an earlier summary and what was wanted, and of the rest the end. A summary passes the
//! guardrails `output` of the definition, or is not used, and what it cost is told as [`StepEventKind::Usage`]. Where none can
//! be had the conversation stays, and none is asked for before there is half of `at_tokens` more.
//!
//! # Questions to people
//! A step that asks writes a `human.request.v1` with the tag `request:<requestId>`. Its context has `kind` (`question`), `question`,
//! `requestId` (the ticket of its [`Suspended`](FlowEventKind::Suspended)), `requestedBy`, `expires_at`, and where the definition
//! says so `of` (who may answer) and `schema` (what the answer has to be). So
//! [`recent("human.request.v1", n)`](crate::BreadcrumbStoreExt::recent) is what people were asked.
//!
//! [`Questions`](crate::client::Questions) answers it in the name of a person. A service that has no more than the store can write
//! the answer itself, a `human.response.v1` with the tag `request:<requestId>`:
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
//! An answer of a person outside of `of`, an answer that does not fit the schema, a late answer and an answer of an executor have no
//! effect and are no error: the step continues to wait. [`Questions`](crate::client::Questions) refuses such answers. Where the
//! call of a tool step needs an approval, by a [rule](crate::tool::Approval) of the tool or by `"approval": true`, the question is of
//! the kind `approval`, and is answered with `approved`, as that of [an agent](crate::agent#people). The people and the time of the
//! rules apply, and the timeout of the step ends the wait, too. A person can change the arguments, which then take the place of the
//! step's `input`.
//!
//! # Definitions that change
//! A run goes on with the definition that it began with. That is kept in the store as a `workflow.kept.v1`, once for all its
//! runs, when the first of them is saved, if it takes no more than 512 KiB; its tag is `definition:<hash>`, and only what has
//! that hash is believed. So a worker that was given a new definition ends runs of the old one as they began, with the tools
//! and models that are registered now; what they write has to be among the schemas that the new one may write. If the old one
//! is not there, or names what is not registered any more, the run ends with the code `refused`, which says so: ask for a new
//! run. A kept definition can be deleted when no run of it is left.
//!
//! # What a step costs
//! Beside its work a step of a flow costs some 9 microseconds in memory and 80 in a file (SQLite that does not wait for the disk),
//! where it is saved twice; 1 microsecond of that is the interpreter. These are the best rounds of `cargo bench --features
//! sqlite,workflows --bench flow` with fifty steps, on two shared cores under load.
//!
//! # What it does not do
//! `history` has a meaning only within a session, and only [workloads](crate::workload) have sessions. Without a session, an agent
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
