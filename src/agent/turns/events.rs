//! Progress events of an agent run for the chat client whose message the run answers.

use super::{Answer, MachineCall, Run, ToolResult};
use crate::executor::Record;
use std::mem;

impl Run<'_> {
    /// Adds a progress event about a tool call, for the chat client whose message the run answers.
    pub(super) fn record_call(&mut self, call: &MachineCall) {
        if self.context.turn_events().is_some() {
            self.unsent_events.push(Record::ToolCalled {
                call: call.id.to_string(),
                tool: call.tool.clone(),
            });
        }
    }

    /// Adds progress events about the results of tool calls, for the chat client whose message the run answers.
    pub(super) fn record_results(&mut self, results: &[ToolResult]) {
        if self.context.turn_events().is_none() {
            return;
        }
        self.unsent_events.extend(results.iter().map(|result| {
            let is_error = match &result.answer {
                Answer::Success(_) => false,
                Answer::Error { .. } => true,
            };
            let call = result.call_id.to_string();
            Record::ToolAnswered { call, is_error }
        }));
    }

    /// Adds a progress event for the chat client whose message the run answers: the last model answer was invalid, so the run
    /// requests another one.
    pub(super) fn record_repair(&mut self) {
        if self.context.turn_events().is_some() {
            self.unsent_events.push(Record::Repeated);
        }
    }

    /// Sends the collected progress events to the chat client whose message the run answers.
    pub(super) fn send_events(&mut self) {
        let unsent_events = mem::take(&mut self.unsent_events);
        if let Some(events) = self.context.turn_events() {
            unsent_events
                .into_iter()
                .for_each(|record| events.add(record));
        }
    }
}
