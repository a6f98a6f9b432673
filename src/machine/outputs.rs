use super::id::CallId;
use super::policy::Slot;
use super::size;
use crate::model::Json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an output takes besides its own bytes.
const OUTPUT: usize = 96;

/// The outputs of a run, by the tool that hands them in.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Outputs(BTreeMap<String, Output>);

/// A slot is claimed once a call is received, so that the second of two that run at the same time cannot win; the call
/// that was first decides with its answer whether the claim becomes an output or is given up.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Output {
    by: CallId,
    report: Json,
    accepted: bool,
}

impl Outputs {
    pub(super) fn is_claimed(&self, tool: &str) -> bool {
        self.0.contains_key(tool)
    }

    pub(super) fn claim(&mut self, tool: &str, by: &CallId, report: Json) {
        let output = Output {
            by: by.clone(),
            report,
            accepted: false,
        };
        self.0.insert(tool.to_owned(), output);
    }

    /// The call that may have claimed a slot succeeded.
    pub(super) fn accept(&mut self, by: &CallId) {
        for output in self.0.values_mut().filter(|output| output.by == *by) {
            output.accepted = true;
        }
    }

    /// The call that may have claimed a slot came to nothing.
    pub(super) fn release(&mut self, by: &CallId) {
        self.0
            .retain(|_, output| output.accepted || output.by != *by);
    }

    pub(super) fn accepted(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0
            .iter()
            .filter(|(_, output)| output.accepted)
            .map(|(tool, output)| (tool.as_str(), &output.report))
    }

    /// The required slots without an output.
    pub(super) fn missing(&self, slots: &[Slot]) -> Vec<String> {
        let is_there = |tool: &str| self.0.get(tool).is_some_and(|output| output.accepted);
        slots
            .iter()
            .filter(|slot| slot.required && !is_there(&slot.tool))
            .map(|slot| slot.tool.clone())
            .collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0
            .iter()
            .map(|(tool, output)| Self::cost(tool, &output.by, &output.report))
            .sum()
    }

    pub(super) fn cost(tool: &str, by: &CallId, report: &Json) -> usize {
        (OUTPUT + size::of_text(tool) + size::of_text(by.as_str())).saturating_add(report.size())
    }
}
