//! Sizes in bytes of JSON of tool calls, answers and deferrals in the saved state machine of an agent run.

use super::call::{Answer, Deferral, MachineCall, ToolArguments};
use super::policy::MachineLimits;
use crate::model::Json;
use serde_json::Value;

/// Overhead in bytes of a tool call in the saved state machine: field names, and space for an error that refuses the call.
const CALL_BYTES: usize = 448;

/// Overhead in bytes of a deferred tool call in the saved state machine of an agent run.
const DEFERRAL_BYTES: usize = 96;

/// Returns the size of `text` as a JSON string, in bytes.
pub(super) fn of_text(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        0x20.. => 1,
    };
    text.bytes().map(escaped).sum::<usize>() + 2
}

pub(super) fn of_call(call: &MachineCall) -> usize {
    let arguments = match &call.arguments {
        ToolArguments::Json(json) => json.size(),
        ToolArguments::Unreadable { text, problem } => of_text(text) + of_text(problem),
    };
    (CALL_BYTES + of_text(call.id.as_str()) + of_text(&call.tool)).saturating_add(arguments)
}

pub(super) fn of_answer(answer: &Answer) -> usize {
    match answer {
        Answer::Success(json) => json.size(),
        Answer::Error { code, message } => of_text(code) + of_text(message),
    }
}

pub(super) fn of_deferral(deferral: &Deferral) -> usize {
    let content = match deferral {
        Deferral::Handoff { agent, prompt } => of_text(agent) + of_text(prompt),
        Deferral::PlannerOutput(plan) => plan.size(),
        Deferral::Other { kind, payload } => of_text(kind).saturating_add(payload.size()),
    };
    content.saturating_add(DEFERRAL_BYTES)
}

/// Returns a JSON value in the canonical form in which stores save it, so that comparisons have the same result before and after a restart.
/// Returns `None` if the value is larger or deeper than the limits.
pub(super) fn stored_form(json: &Json, limits: &MachineLimits) -> Option<Json> {
    let json = json.canonical(limits.item_bytes).ok()?;
    is_within(&json, MachineLimits::DEPTH).then_some(json)
}

/// Returns `true` if a JSON value nests at most `levels` deep. Stops at that depth.
fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels
            .checked_sub(1)
            .is_some_and(|below| items.iter().all(|item| is_within(item, below))),
        Value::Object(fields) => levels
            .checked_sub(1)
            .is_some_and(|below| fields.values().all(|field| is_within(field, below))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
