//! Where the conversation of a run is and what comes next: no I/O, no clock.

use super::calls;
use super::spent::Spent;
use crate::agent::output::Output;
use crate::agent::{
    AgentDefinition, AgentRunError, ChatResponse, Message, StopReason, ToolCall as ModelCall,
};
use crate::error::{BoxError, excerpt};
use crate::machine::{
    Answer, CallId, Effect, Input, Limits, Machine, Policy, Signal, ToolCall, ToolResult,
};
use crate::model::Json;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// All that another attempt needs to go on.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Progress {
    machine: Machine,
    /// What was said since the trigger was shown.
    said: Vec<Message>,
    pub(super) spent: Spent,
    /// How often the model was told that its answer is not the output that was asked for.
    repairs: u32,
    /// Whether the last answer came to the limit of tokens.
    cut_off: bool,
}

/// What comes next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// The model is asked.
    Ask,
    /// These calls have no result yet.
    Call(Vec<ToolCall>),
    /// There is an answer.
    Done,
}

impl Progress {
    /// How often a model may mend an answer.
    const MOST_REPAIRS: u32 = 1;

    /// A run that has not begun.
    pub(super) fn new(run: &str) -> Self {
        // Results stay in the conversation, so no answered call has to be kept beside it. While a turn goes on they are
        // in both, and the rest of what a store keeps is for what was said before.
        let limits = Limits {
            answered_bytes: 0,
            bytes: 384 << 10,
            ..Limits::default()
        };
        Self {
            machine: Machine::new(run, Policy::batch().limits(limits)),
            said: Vec::new(),
            spent: Spent::default(),
            repairs: 0,
            cut_off: false,
        }
    }

    pub(super) fn next(&self) -> Next {
        if self.machine.exit().is_some() {
            return Next::Done;
        }
        let calls: Vec<_> = self.machine.pending().cloned().collect();
        match calls.is_empty() {
            true => Next::Ask,
            false => Next::Call(calls),
        }
    }

    /// What was said since the trigger was shown.
    pub(super) fn said(&self) -> &[Message] {
        &self.said
    }

    /// Takes an answer of the model.
    ///
    /// # Errors
    /// The model wants to go on and may not.
    pub(super) fn hear(
        &mut self,
        answer: &ChatResponse,
        definition: &AgentDefinition,
        output: Option<&Output>,
    ) -> Result<(), AgentRunError> {
        self.spent.add(answer);
        self.said.push(answer.message());
        self.cut_off = answer.stop == StopReason::MaxTokens;
        if !answer.tool_calls.is_empty() {
            self.spent.check(definition)?;
            self.receive(&answer.tool_calls);
            return Ok(());
        }
        let Some(Err(problem)) = output.map(|output| output.read(&answer.text)) else {
            let output = Value::Null.into(); // it is what was said last
            self.step(Signal::AgentCompleted { output });
            return Ok(());
        };
        if self.repairs >= Self::MOST_REPAIRS || self.spent.check(definition).is_err() {
            return Err(bad_output(problem, &answer.text));
        }
        self.repairs += 1;
        let repair = format!(
            "That is not the output that was asked for: {problem}. Answer again, with nothing but the JSON."
        );
        self.said.push(Message::user(repair));
        Ok(())
    }

    /// Takes the result of a call. Once there are all of a turn, they are said in the order of the calls.
    pub(super) fn finish(&mut self, call_id: CallId, answer: Answer) {
        let outcome = answer.into();
        let results = self.step(Signal::ToolCallFinished { call_id, outcome });
        self.tell(results);
    }

    fn receive(&mut self, asked: &[ModelCall]) {
        let mut results = Vec::new();
        for (place, call) in asked.iter().enumerate() {
            let is_last = place + 1 == asked.len();
            let call = match is_last && self.cut_off {
                true => calls::cut_off(self.spent.turns, call),
                false => calls::of_model(self.spent.turns, call),
            };
            let more = !is_last;
            results.extend(self.step(Signal::ToolCallReceived { call, more }));
        }
        self.tell(results);
    }

    /// Lets the machine take a step, and gives what it delivers. Which calls are to be made is read of the machine, and
    /// what does not fit is answered by it with an error result.
    fn step(&mut self, signal: Signal) -> Vec<ToolResult> {
        let input = Input::new(self.machine.run(), signal);
        let mut delivered = Vec::new();
        for effect in self.machine.step(input) {
            match effect {
                Effect::Deliver(results) => delivered.extend(results),
                Effect::Execute(_)
                | Effect::Defer { .. }
                | Effect::CancelCall(_)
                | Effect::Remind { .. }
                | Effect::Finish(_)
                | Effect::Report(_) => {}
            }
        }
        delivered
    }

    fn tell(&mut self, mut results: Vec<ToolResult>) {
        if results.is_empty() || self.machine.pending().next().is_some() {
            return;
        }
        let asked = self.said.last();
        let asked = asked.map_or_else(Vec::new, |message| message.tool_calls.clone());
        for call in asked {
            let id = calls::id(self.spent.turns, &call);
            let place = results.iter().position(|result| result.call_id == id);
            let answer = match place {
                Some(place) => results.remove(place).answer,
                // The machine had no room to keep even the refusal until the others were there.
                None => Answer::error("too_large", "the call finds no room in this run"),
            };
            self.said.push(calls::message(&call.id, answer));
        }
    }

    /// The answer, as a response has it.
    ///
    /// # Errors
    /// [`AgentRunError::BadOutput`] if the definition has changed since the model answered.
    pub(super) fn response(&self, output: Option<&Output>) -> Result<Value, AgentRunError> {
        let text = self.said.last().map_or("", |message| &*message.text);
        let mut response = json!({"status": "success", "message": text, "usage": self.spent});
        let output = output.map(|output| output.read(text)).transpose();
        let output = output.map_err(|problem| bad_output(problem, text))?;
        if let Value::Object(fields) = &mut response {
            if let Some(output) = output {
                fields.insert("output".to_owned(), output.into_value());
            }
            if self.cut_off {
                fields.insert("truncated".to_owned(), true.into());
            }
        }
        Ok(response)
    }

    /// As it is saved.
    ///
    /// # Errors
    /// [`AgentRunError::StateTooLarge`].
    pub(super) fn to_json(&self) -> Result<Json, BoxError> {
        let text = serde_json::to_string(self)?;
        let (size, limit) = (text.len(), Json::MAX_BYTES);
        if size > limit {
            return Err(AgentRunError::StateTooLarge { size, limit }.into());
        }
        Ok(Json::from_text(text)?)
    }
}

fn bad_output(problem: String, text: &str) -> AgentRunError {
    const KEPT: usize = 2048;
    let raw = excerpt(text, KEPT).into_owned();
    AgentRunError::BadOutput { problem, raw }
}
