//! Helpers that apply a list of signals and print effects as short strings: `execute a`, `deliver a=ok b=cancelled`,
//! `finish with "bye"`.

mod bounds;
mod outputs;
mod properties;
mod recovery;
mod table;

use super::*;
use crate::model::Json;
use serde_json::json;

const REPORT: &str = "completion-report";

fn run() -> RunId {
    RunId::new("run")
}

fn machine(policy: Policy) -> Machine {
    Machine::new(run(), policy)
}

/// Applies signals and returns the effects of each.
fn feed(machine: &mut Machine, signals: impl IntoIterator<Item = Signal>) -> Vec<Vec<String>> {
    let steps = signals.into_iter();
    steps.map(|signal| step(machine, signal)).collect()
}

fn step(machine: &mut Machine, signal: Signal) -> Vec<String> {
    show(&machine.step(Input::new(&run(), signal)))
}

fn asks(id: &str, tool: &str, arguments: impl Into<ToolArguments>) -> Signal {
    Signal::ToolCallReceived {
        call: MachineCall::new(id, tool, arguments),
        more: false,
    }
}

fn received(id: &str) -> Signal {
    asks(id, "adder", json!({"n": 1}))
}

fn and_more(signal: Signal) -> Signal {
    match signal {
        Signal::ToolCallReceived { call, .. } => Signal::ToolCallReceived { call, more: true },
        other => panic!("the signal {other:?} is not a call"),
    }
}

fn ended(id: &str, outcome: impl Into<ToolOutcome>) -> Signal {
    Signal::ToolCallFinished {
        call_id: id.into(),
        outcome: outcome.into(),
    }
}

fn ok(id: &str) -> Signal {
    ended(id, Answer::success(json!("ok")))
}

fn err(id: &str) -> Signal {
    ended(id, Answer::error("tool_failed", "no such page"))
}

fn deferred(id: &str) -> Signal {
    ended(
        id,
        Deferral::Handoff {
            agent: "child".to_owned(),
            prompt: "go".to_owned(),
        },
    )
}

fn resolved(id: &str) -> Signal {
    Signal::DeferredResolved {
        call_id: id.into(),
        result: Answer::success(json!("child")),
    }
}

fn completed() -> Signal {
    Signal::AgentCompleted {
        output: json!("bye").into(),
    }
}

fn broke() -> Signal {
    Signal::AgentFailed {
        error: "died".to_owned(),
    }
}

fn show(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(show_one).collect()
}

fn show_one(effect: &Effect) -> String {
    match effect {
        Effect::Execute(call) => format!("execute {}", call.id),
        Effect::Deliver(results) => {
            let results: Vec<String> = results.iter().map(show_result).collect();
            format!("deliver {}", results.join(" "))
        }
        Effect::Defer { call_id, .. } => format!("defer {call_id}"),
        Effect::CancelCall(call_id) => format!("cancel {call_id}"),
        Effect::Remind { missing } => format!("remind {}", missing.join(" ")),
        Effect::Finish(exit) => match exit {
            Exit::WithOutput { output } => format!("finish with {output}"),
            Exit::WithoutOutput { missing, .. } => format!("finish without {}", missing.join(" ")),
            Exit::Error { error } => format!("finish failed: {error}"),
            Exit::Cancelled => "finish cancelled".to_owned(),
        },
        Effect::Report(anomaly) => match anomaly {
            MachineAnomaly::UnknownCall { call_id } => format!("report unknown {call_id}"),
            MachineAnomaly::DuplicateCompletion { call_id } => {
                format!("report duplicate {call_id}")
            }
            MachineAnomaly::ConflictingCall { call_id } => format!("report conflict {call_id}"),
            MachineAnomaly::NotDeferred { call_id } => format!("report not deferred {call_id}"),
            MachineAnomaly::AfterTerminal => "report after the end".to_owned(),
            MachineAnomaly::StaleRun { run } => format!("report stale {run}"),
        },
    }
}

/// Prints the value of a success (`a=ok`, `a=child`) or the code of an error (`a=cancelled`).
fn show_result(result: &ToolResult) -> String {
    let answer = match &result.answer {
        Answer::Success(value) => value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned),
        Answer::Error { code, .. } => code.clone(),
    };
    format!("{}={answer}", result.call_id)
}

fn show_state(machine: &Machine) -> String {
    match machine.state() {
        State::Idle => "idle".to_owned(),
        State::Running => "running".to_owned(),
        State::Suspended { deferred, behind } => {
            let behind = behind.iter().map(|one| format!(" {}", one.call_id));
            format!(
                "suspended {}{}",
                deferred.call_id,
                behind.collect::<String>()
            )
        }
        State::Complete { .. } => "complete".to_owned(),
        State::Failed { .. } => "failed".to_owned(),
    }
}
