use super::id::CallId;
use super::policy::Slot;
use super::size;
use crate::model::Json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Overhead in bytes of each output in the saved state machine of an agent run.
const OUTPUT_BYTES: usize = 96;

/// The outputs of an agent run, by the name of the tool that submits each output.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Outputs(BTreeMap<String, Output>);

/// An output that a tool call of an agent run submits, and that the state machine accepts once the call has succeeded. The first
/// received call claims the output slot, so that a concurrent second call cannot win. The answer of the first call decides if the
/// claim becomes an output or is released.
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

    /// Accepts the output of a tool call that succeeded. Does nothing if the call has claimed no slot.
    pub(super) fn accept(&mut self, by: &CallId) {
        for output in self.0.values_mut().filter(|output| output.by == *by) {
            output.accepted = true;
        }
    }

    /// Releases the output that a failed or cancelled tool call claimed, so that another call can submit the output. Does nothing
    /// if the call has claimed no output.
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

    /// Returns the names of the tools that the agent must still call to submit its required outputs.
    pub(super) fn missing(&self, slots: &[Slot]) -> Vec<String> {
        let is_submitted = |tool: &str| self.0.get(tool).is_some_and(|output| output.accepted);
        slots
            .iter()
            .filter(|slot| slot.required && !is_submitted(&slot.tool))
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
        (OUTPUT_BYTES + size::of_text(tool) + size::of_text(by.as_str()))
            .saturating_add(report.size())
    }
}
