//! Events of an agent run for the client that follows the chat turn.

use super::{Answer, MachineCall, Run, ToolResult};
use crate::executor::Record;
use std::mem;

impl Run<'_> {
    /// Adds an event about a tool call for the client that follows the chat turn.
    pub(super) fn record_call(&mut self, call: &MachineCall) {
        if self.context.turn_events().is_some() {
            self.unsent_events.push(Record::ToolCalled {
                call: call.id.to_string(),
                tool: call.tool.clone(),
            });
        }
    }

    /// Adds events about the results of tool calls for the client that follows the chat turn.
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

    /// Adds an event for the client that follows the chat turn: the last answer was invalid, so the run requests another model
    /// answer.
    pub(super) fn record_repair(&mut self) {
        if self.context.turn_events().is_some() {
            self.unsent_events.push(Record::Repeated);
        }
    }

    /// Sends the added events to the client that follows the chat turn.
    pub(super) fn send_events(&mut self) {
        let unsent_events = mem::take(&mut self.unsent_events);
        if let Some(events) = self.context.turn_events() {
            unsent_events
                .into_iter()
                .for_each(|record| events.add(record));
        }
    }
}
