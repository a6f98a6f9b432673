use super::call::{Answer, MachineCall};
use super::id::CallId;
use super::refusal::Refusal;
use super::size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Overhead in bytes of a discarded tool call's ID in the saved state machine of an agent run.
const FORGOTTEN_ID_BYTES: usize = 1;

/// All tool calls of one agent run. Linear searches are fast enough because the state machine limits the number of calls.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Calls {
    /// The tool calls of the agent run that the state machine still stores. Unanswered calls are in request order, answered calls in the
    /// order of their answers.
    known: Vec<CallRecord>,
    /// The IDs of tool calls that were answered and then discarded to save memory.
    forgotten: BTreeSet<CallId>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct CallRecord {
    call: MachineCall,
    phase: Phase,
}

/// The progress of one tool call of an agent run: queued, executing, deferred, cancelled or answered.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// The tool call arrived while the run was suspended, and waits for the run to resume.
    Queued,
    Executing,
    Deferred,
    Answered(Answer),
    /// The tool call was cancelled and answered while it executed, so its execution may not have stopped yet.
    Cancelled,
    /// The tool call was answered, and only its ID is retained.
    Forgotten,
}

impl Phase {
    fn is_answered(&self) -> bool {
        match self {
            Self::Answered(_) | Self::Cancelled | Self::Forgotten => true,
            Self::Queued | Self::Executing | Self::Deferred => false,
        }
    }
}

impl Calls {
    /// Returns the number of tool calls of the run, including discarded calls.
    pub(super) fn len(&self) -> usize {
        self.known.len() + self.forgotten.len()
    }

    pub(super) fn phase(&self, id: &CallId) -> Option<&Phase> {
        match self.find(id) {
            Some(known) => Some(&known.phase),
            None => self.forgotten.contains(id).then_some(&Phase::Forgotten),
        }
    }

    /// Returns `true` if `call` is equal to the stored tool call with the same ID. A discarded call counts as equal.
    pub(super) fn is_same(&self, call: &MachineCall) -> bool {
        self.find(&call.id).is_none_or(|known| known.call == *call)
    }

    pub(super) fn add(&mut self, call: MachineCall, phase: Phase) {
        self.known.push(CallRecord { call, phase });
    }

    /// Returns the tool calls without an answer, in request order.
    pub(super) fn pending(&self) -> impl Iterator<Item = (&MachineCall, &Phase)> {
        self.known
            .iter()
            .filter(|known| !known.phase.is_answered())
            .map(|known| (&known.call, &known.phase))
    }

    /// Returns the tool calls with a stored answer, in the order of their answers.
    pub(super) fn answered(&self) -> impl Iterator<Item = (&MachineCall, &Answer)> {
        self.known.iter().filter_map(|known| match &known.phase {
            Phase::Answered(answer) => Some((&known.call, answer)),
            Phase::Queued
            | Phase::Executing
            | Phase::Deferred
            | Phase::Cancelled
            | Phase::Forgotten => None,
        })
    }

    /// Returns the IDs of cancelled tool calls, whose execution may not have stopped yet.
    pub(super) fn cancelled(&self) -> impl Iterator<Item = &CallId> {
        self.known
            .iter()
            .filter(|known| known.phase == Phase::Cancelled)
            .map(|known| &known.call.id)
    }

    /// Returns the answer of a tool call, or `None` if the call is unknown or unanswered.
    pub(super) fn answer(&self, id: &CallId) -> Option<Answer> {
        match self.phase(id)? {
            Phase::Answered(answer) => Some(answer.clone()),
            Phase::Cancelled => Some(Refusal::Cancelled.answer()),
            Phase::Forgotten => Some(Refusal::Forgotten.answer()),
            Phase::Queued | Phase::Executing | Phase::Deferred => None,
        }
    }

    pub(super) fn set(&mut self, id: &CallId, phase: Phase) {
        let Some(at) = self.known.iter().position(|known| known.call.id == *id) else {
            return;
        };
        if phase.is_answered() {
            let call = self.known.remove(at).call;
            self.known.push(CallRecord { call, phase });
        } else if let Some(known) = self.known.get_mut(at) {
            known.phase = phase;
        }
    }

    /// Discards the oldest answered tool call for which `needed` returns `false`, and retains only the call's ID. Returns `false` if no
    /// call can be discarded.
    pub(super) fn discard_answered(&mut self, needed: impl Fn(&CallId) -> bool) -> bool {
        let can_discard = |known: &CallRecord| known.phase.is_answered() && !needed(&known.call.id);
        let Some(at) = self.known.iter().position(can_discard) else {
            return false;
        };
        let known = self.known.remove(at);
        self.forgotten.insert(known.call.id);
        true
    }

    /// Returns the ID of the tool call that was answered last.
    pub(super) fn last_answered(&self) -> Option<&CallId> {
        let mut latest_first = self.known.iter().rev();
        latest_first
            .find(|known| known.phase.is_answered())
            .map(|known| &known.call.id)
    }

    pub(super) fn bytes(&self) -> usize {
        let forgotten = self.forgotten.iter();
        let ids: usize = forgotten
            .map(|id| FORGOTTEN_ID_BYTES + size::of_text(id.as_str()))
            .sum();
        self.known.iter().map(CallRecord::bytes).sum::<usize>() + ids
    }

    pub(super) fn answered_bytes(&self) -> usize {
        self.known
            .iter()
            .filter(|known| known.phase.is_answered())
            .map(CallRecord::bytes)
            .sum()
    }

    fn find(&self, id: &CallId) -> Option<&CallRecord> {
        self.known.iter().find(|known| known.call.id == *id)
    }
}

impl CallRecord {
    fn bytes(&self) -> usize {
        let answer = match &self.phase {
            Phase::Answered(answer) => size::of_answer(answer),
            Phase::Queued
            | Phase::Executing
            | Phase::Deferred
            | Phase::Cancelled
            | Phase::Forgotten => 0,
        };
        size::of_call(&self.call) + answer
    }
}
