//! State machine without side effects for the tool calls of one agent run. It does no I/O, reads no clock and generates no IDs.
//!
//! Use this to write a driver for an agent: code that executes tools and talks to a model. Agents request tools in two ways.
//! An API response contains several calls, and the next request returns all results together. A CLI agent makes a callback
//! for each tool and waits for its result. Both kinds of driver use a [`Machine`]: each event is an [`Input`], and
//! [`Machine::step`] returns the [`Effect`]s that the driver carries out. A [`Machine`] is plain data that can be saved after
//! every step, and [`Machine::outstanding`] returns the effects to repeat after a restart.
//!
//! ```
//! use serde_json::json;
//! use universal_executor::machine::{
//!     Answer, Effect, Exit, Input, Machine, Policy, RunId, Signal, MachineCall, ToolResult,
//! };
//!
//! let run = RunId::new("run-1");
//! let mut machine = Machine::new(run.clone(), Policy::batch());
//!
//! // The model requests a tool.
//! let call = MachineCall::new("call-1", "adder", json!({"a": 1, "b": 2}));
//! let received = Signal::ToolCallReceived { call: call.clone(), more: false };
//! assert_eq!(machine.step(Input::new(&run, received)), [Effect::Execute(call)]);
//!
//! // The worker crashes here. Another worker loads the machine and receives the calls in progress.
//! let saved = serde_json::to_string(&machine)?;
//! let mut machine: Machine = serde_json::from_str(&saved)?;
//! assert!(matches!(machine.outstanding().as_slice(), [Effect::Execute(_)]));
//!
//! // The tool returns a result, and no other call is pending.
//! let finished = Signal::ToolCallFinished { call_id: "call-1".into(), outcome: Answer::success(json!(3)).into() };
//! let result = ToolResult { call_id: "call-1".into(), answer: Answer::success(json!(3)) };
//! assert_eq!(machine.step(Input::new(&run, finished)), [Effect::Deliver(vec![result])]);
//!
//! // The model finishes.
//! let completed = Signal::AgentCompleted { output: json!("It is 3.").into() };
//! let exit = Exit::WithOutput { output: json!("It is 3.").into() };
//! assert_eq!(machine.step(Input::new(&run, completed)), [Effect::Finish(exit)]);
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! # States
//!
//! | input | `Idle`, `Running` | `Suspended` |
//! |---|---|---|
//! | a new call | `Execute` | the call is queued or refused ([`WhileSuspended`]) |
//! | a known call, sent again | the second caller receives the same answer as the first; nothing is executed | the same |
//! | a different call with a known ID | `Report`, and an error for its caller | the same |
//! | a call finished with an answer | the machine stores and delivers the answer ([`ResultDelivery`]) | the same; a batch also waits for the deferred call |
//! | a call finished as deferred | `Suspended`, `Defer`; other calls continue or are cancelled ([`Siblings`]) | the deferral is queued behind the first one |
//! | an unknown call, or one that had finished, is finished | `Report` | `Report` |
//! | the deferred call is resolved | `Report` | `Deliver` of its answer; then the next deferral, or `Running` and `Execute` of the queued calls |
//! | the agent completed | `CancelCall` for calls in progress; `Complete`, or `Running` and `Remind` if an output is missing | the same |
//! | the agent failed, or the run is cancelled | `CancelCall` for calls in progress; `Failed` | the same |
//!
//! In `Complete` and `Failed`, every input leads to a `Report`. In every state, an input for another run leads to a `Report`.
//!
//! # Promises
//! - **Each call executes once.** The ID and the payload (tool and arguments, compared as JSON) identify a call. A call that
//!   is sent again while it executes, after it finished or after its answer was forgotten is not executed again. The
//!   exception is a lost worker: [`Machine::outstanding`] returns the calls in progress for another execution.
//! - **Each caller is answered once.** Each [`Signal::ToolCallReceived`] of the run is one caller, so a call that was sent
//!   twice has two callers. When the run ends, the callers of unfinished calls receive `cancelled`, and so do later callers.
//! - **A batch is in request order**, refused callers included.
//! - **Accepted outputs remain** available in every state.
//! - **Memory is bounded** by [`MachineLimits`]. A call or result over a limit becomes an error result.
//!
//! # Turns
//! Under [`ResultDelivery::Batch`] a turn starts with the first call after a delivery. It ends once a call was received without
//! [`more`](Signal::ToolCallReceived) and all calls have an answer. A driver sets `more` on all calls of a response except
//! the last, because a tool can finish before the driver passes on the next call.
//!
//! # Refused calls
//! A refused call receives an error result. The machine refuses a call with [`Unreadable`](ToolArguments::Unreadable) arguments,
//! a call over a limit, and a call whose slot is claimed. Nothing is executed and the call is not recorded, so another attempt may
//! use the same ID. [`ToolArguments::parse`] reads arguments outside the machine, so that the code that stores the transcript also
//! has the original string.
//!
//! # Outputs
//! The first call of a [`Slot`]'s tool claims the slot. A second call is refused, also while the first is deferred. The
//! arguments become the output once the call succeeds. If the call fails or is cancelled, the slot is free again. If a run
//! completes without a required output, the machine reminds the agent up to [`Policy::reminders`] times. After that, the run
//! ends as [`Exit::WithoutOutput`].
//!
//! # Out of scope
//! The machine has no permissions, retries, timeouts or child agents. The driver executes tools, waits for deferred answers
//! and sets the permissions of the child of a handoff. A call of another run is reported but not answered, because its caller
//! does not belong to this run.

mod call;
mod calls;
mod end;
mod id;
mod memory;
mod outputs;
mod policy;
mod protocol;
mod receive;
mod refusal;
mod run;
mod size;
mod state;
mod step;
mod turn;

pub use call::{Answer, Deferral, MachineCall, ToolArguments, ToolOutcome, ToolResult};
pub use id::{CallId, RunId};
pub use policy::{MachineLimits, Policy, ResultDelivery, Siblings, Slot, WhileSuspended};
pub use protocol::{Effect, Exit, Input, MachineAnomaly, Signal};
pub use run::Machine;
pub use state::{DeferredCall, State};

#[cfg(test)]
mod tests;
