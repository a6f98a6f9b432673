//! The tool calls of an agent's run as a pure state machine: no I/O, no clock, no ids of its own.
//!
//! Agents ask for tools in two ways. The response of an API has some calls, and the next request takes all results
//! together; a CLI agent calls back for each tool and waits. Both drive one [`Machine`]: what happens is an [`Input`],
//! what is to be done about it a list of [`Effect`]s. It can be saved at every step ([`Machine`] is plain data), and
//! [`Machine::outstanding`] says what to do again after a restart.
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
//! // The model asks for a tool.
//! let call = MachineCall::new("call-1", "adder", json!({"a": 1, "b": 2}));
//! let received = Signal::ToolCallReceived { call: call.clone(), more: false };
//! assert_eq!(machine.step(Input::new(&run, received)), [Effect::Execute(call)]);
//!
//! // The worker crashes here. Another one reads the machine back and learns what is under way.
//! let saved = serde_json::to_string(&machine)?;
//! let mut machine: Machine = serde_json::from_str(&saved)?;
//! assert!(matches!(machine.outstanding().as_slice(), [Effect::Execute(_)]));
//!
//! // The tool has a result, and nothing else is missing.
//! let finished = Signal::ToolCallFinished { call_id: "call-1".into(), outcome: Answer::success(json!(3)).into() };
//! let result = ToolResult { call_id: "call-1".into(), answer: Answer::success(json!(3)) };
//! assert_eq!(machine.step(Input::new(&run, finished)), [Effect::Deliver(vec![result])]);
//!
//! // The model has said what it has to say.
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
//! | a call that is new | `Execute` | waits in the queue or is refused ([`WhileSuspended`]) |
//! | a call that is known, sent again | its caller hears what the first one hears; nothing is executed | the same |
//! | another call with a known id | `Report`, and an error for its caller | the same |
//! | a call finished with an answer | the machine stores and delivers the answer ([`ResultDelivery`]) | the same; a batch waits for the deferred call too |
//! | a call finished deferred | `Suspended`, `Defer`; other calls go on or are cancelled ([`Siblings`]) | waits behind the deferral that was first |
//! | a call finished that is unknown, or has finished | `Report` | `Report` |
//! | the deferred call is resolved | `Report` | its answer is delivered; then the deferral behind it, or `Running` and the queue |
//! | the agent completed | `CancelCall` of what is pending; `Complete`, or `Running` and `Remind` if an output is missing | the same |
//! | the agent failed, or the run is cancelled | `CancelCall` of what is pending; `Failed` | the same |
//!
//! `Complete` and `Failed` absorb everything with a `Report`, as every state does with an input of another run.
//!
//! # Promises
//! - **Each call executes once.** A call is its id and its payload: tool and arguments, equal as JSON. Sent again while
//!   it is under way, after it finished or after it was forgotten it is never executed again. What was under way when a
//!   worker was lost is the exception: [`Machine::outstanding`] asks for it again.
//! - **Each caller is answered once.** A caller is one [`Signal::ToolCallReceived`] of the run, so a call that was sent
//!   twice has two. Whoever waits at the end hears `cancelled`, as does whoever comes after it.
//! - **A batch is in the order requested**, callers that were refused included.
//! - **Outputs stay**, in every state.
//! - **Everything is bounded** by [`MachineLimits`]. A call or result over a limit becomes an error result.
//!
//! # Turns
//! Under [`ResultDelivery::Batch`] a turn starts with the first call after a delivery. It ends once a call was received without
//! [`more`](Signal::ToolCallReceived) and all calls have an answer. A driver sets `more` on all calls of a response but
//! the last, since a tool could finish before the next call is received.
//!
//! # Refused calls
//! A call whose arguments are [`Unreadable`](ToolArguments::Unreadable), that is over a limit, or that claims a slot which
//! is taken is answered with an error result and not known afterwards: nothing was executed, so the same id may be used
//! for another attempt. [`ToolArguments::parse`] reads arguments outside of the machine, so that the code that stores the
//! transcript has the text too.
//!
//! # Outputs
//! A [`Slot`] is claimed when a call of its tool is received, so of two at the same time the second is refused, also
//! while the first is deferred. The arguments become the output once the call succeeds. If it fails or is cancelled the
//! slot is free again. A run that completes without a required output is reminded ([`Policy::reminders`]) and then ends
//! as [`Exit::WithoutOutput`].
//!
//! # What it does not do
//! It knows no permissions, retries, timeouts or agents: the driver executes, waits and gives the child of a handoff
//! permissions of its own. A call of another run is reported and not answered, since this run has no such caller.

mod call;
mod calls;
mod end;
mod id;
mod outputs;
mod policy;
mod protocol;
mod receive;
mod refusal;
mod room;
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
