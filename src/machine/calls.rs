use super::call::{Answer, MachineCall};
use super::id::CallId;
use super::refusal::Refusal;
use super::size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What an id that is only remembered takes besides its own bytes.
const FORGOTTEN: usize = 1;

/// All calls of a run. Which there are at most is up to the machine; a run has few enough to walk through.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Calls {
    /// Those without an answer in the order requested, those with one in the order they were answered.
    known: Vec<Known>,
    /// Answered so long ago that only the id is left.
    forgotten: BTreeSet<CallId>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Known {
    call: MachineCall,
    phase: Phase,
}

/// How far a call is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Waits until the run goes on.
    Queued,
    Executing,
    Deferred,
    Answered(Answer),
    /// Answered while it was under way, and something may still be.
    Cancelled,
    /// Answered, and only the id is left.
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
    /// How many there were.
    pub(super) fn len(&self) -> usize {
        self.known.len() + self.forgotten.len()
    }

    pub(super) fn phase(&self, id: &CallId) -> Option<&Phase> {
        match self.find(id) {
            Some(known) => Some(&known.phase),
            None => self.forgotten.contains(id).then_some(&Phase::Forgotten),
        }
    }

    /// Whether the call that is known by this id is this very call. One of which only the id is left counts as it.
    pub(super) fn is_same(&self, call: &MachineCall) -> bool {
        self.find(&call.id).is_none_or(|known| known.call == *call)
    }

    pub(super) fn add(&mut self, call: MachineCall, phase: Phase) {
        self.known.push(Known { call, phase });
    }

    /// Those without an answer, in the order requested.
    pub(super) fn pending(&self) -> impl Iterator<Item = (&MachineCall, &Phase)> {
        self.known
            .iter()
            .filter(|known| !known.phase.is_answered())
            .map(|known| (&known.call, &known.phase))
    }

    /// Those with an answer of their own, in the order they were answered.
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

    /// Those of which something may still be under way although they were answered.
    pub(super) fn cancelled(&self) -> impl Iterator<Item = &CallId> {
        self.known
            .iter()
            .filter(|known| known.phase == Phase::Cancelled)
            .map(|known| &known.call.id)
    }

    /// The answer of a call that has one.
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
            self.known.push(Known { call, phase });
        } else if let Some(known) = self.known.get_mut(at) {
            known.phase = phase;
        }
    }

    /// Lets go of the call that was answered first, unless somebody needs it; says whether there was one.
    pub(super) fn forget_one(&mut self, needed: impl Fn(&CallId) -> bool) -> bool {
        let can_go = |known: &Known| known.phase.is_answered() && !needed(&known.call.id);
        let Some(at) = self.known.iter().position(can_go) else {
            return false;
        };
        let known = self.known.remove(at);
        self.forgotten.insert(known.call.id);
        true
    }

    /// The call that was answered last.
    pub(super) fn last_answered(&self) -> Option<&CallId> {
        let mut latest_first = self.known.iter().rev();
        latest_first
            .find(|known| known.phase.is_answered())
            .map(|known| &known.call.id)
    }

    pub(super) fn bytes(&self) -> usize {
        let forgotten = self.forgotten.iter();
        let ids: usize = forgotten
            .map(|id| FORGOTTEN + size::of_text(id.as_str()))
            .sum();
        self.known.iter().map(Known::bytes).sum::<usize>() + ids
    }

    pub(super) fn answered_bytes(&self) -> usize {
        self.known
            .iter()
            .filter(|known| known.phase.is_answered())
            .map(Known::bytes)
            .sum()
    }

    fn find(&self, id: &CallId) -> Option<&Known> {
        self.known.iter().find(|known| known.call.id == *id)
    }
}

impl Known {
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
