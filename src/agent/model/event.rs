use super::{Arguments, ChatResponse, StopReason, ToolCall, Usage};
use crate::agent::ModelError;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChatEvent {
    /// More of the text.
    Text(String),
    /// More of a call.
    ToolCall(ToolCallDelta),
    /// What the answer cost; the last one counts.
    Usage(Usage),
    /// The answer is whole. Nothing follows.
    End(StopReason),
}

/// More of a call: the first piece of each has its id and name, all of them some of its arguments.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolCallDelta {
    /// Which call of the answer, from 0. A call begins only after the one before it has begun.
    pub index: usize,
    /// The id, once.
    pub id: Option<String>,
    /// The name of the tool, once.
    pub name: Option<String>,
    /// What comes next in the text of the arguments.
    pub arguments: String,
}

impl ToolCallDelta {
    /// The first piece of a call.
    #[must_use]
    pub fn first(index: usize, id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            index,
            id: Some(id.into()),
            name: Some(name.into()),
            arguments: String::new(),
        }
    }

    /// A later piece of a call.
    #[must_use]
    pub fn more(index: usize, arguments: impl Into<String>) -> Self {
        Self {
            index,
            arguments: arguments.into(),
            ..Self::default()
        }
    }
}

/// Puts the events of an answer together, within its limits.
#[derive(Debug, Default)]
pub(in crate::agent) struct Collector {
    text: String,
    calls: Vec<Call>,
    usage: Usage,
    stop: Option<StopReason>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Collector {
    pub(in crate::agent) fn push(&mut self, event: ChatEvent) -> Result<(), ModelError> {
        if self.stop.is_some() {
            return Err(ModelError::bad_answer("it goes on after its end"));
        }
        match event {
            ChatEvent::Text(text) => {
                self.grow(text.len())?;
                self.text.push_str(&text);
            }
            ChatEvent::ToolCall(delta) => self.call(delta)?,
            ChatEvent::Usage(usage) => self.usage = usage,
            ChatEvent::End(stop) => self.stop = Some(stop),
        }
        Ok(())
    }

    pub(in crate::agent) fn finish(self) -> Result<ChatResponse, ModelError> {
        let stop = self
            .stop
            .ok_or_else(|| ModelError::Unavailable("the answer broke off".into()))?;
        let tool_calls = self
            .calls
            .into_iter()
            .map(|call| ToolCall {
                id: call.id,
                name: call.name,
                arguments: Arguments::from_text(call.arguments),
            })
            .collect();
        Ok(ChatResponse {
            text: self.text,
            tool_calls,
            usage: self.usage,
            stop,
        })
    }

    fn call(&mut self, delta: ToolCallDelta) -> Result<(), ModelError> {
        let (id, name) = (delta.id.unwrap_or_default(), delta.name.unwrap_or_default());
        self.grow(id.len() + name.len() + delta.arguments.len())?;
        if delta.index >= ChatResponse::MAX_TOOL_CALLS {
            let limit = ChatResponse::MAX_TOOL_CALLS;
            return Err(ModelError::TooLarge {
                what: "the number of tool calls",
                limit,
            });
        }
        if delta.index == self.calls.len() {
            self.calls.push(Call::default());
        }
        let call = self
            .calls
            .get_mut(delta.index)
            .ok_or_else(|| ModelError::bad_answer("a piece belongs to no tool call"))?;
        call.id.push_str(&id);
        call.name.push_str(&name);
        call.arguments.push_str(&delta.arguments);
        Ok(())
    }

    fn grow(&mut self, by: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(by);
        if self.bytes > ChatResponse::MAX_BYTES {
            return Err(ModelError::TooLarge {
                what: "the answer in bytes",
                limit: ChatResponse::MAX_BYTES,
            });
        }
        Ok(())
    }
}

/// An answer taken apart, so that putting it together gives the same.
pub(super) fn pieces(response: ChatResponse) -> Vec<ChatEvent> {
    let mut events = Vec::with_capacity(3 + 2 * response.tool_calls.len());
    if !response.text.is_empty() {
        events.push(ChatEvent::Text(response.text));
    }
    for (index, call) in response.tool_calls.into_iter().enumerate() {
        let first = ToolCallDelta::first(index, call.id, call.name);
        events.push(ChatEvent::ToolCall(first));
        let more = ToolCallDelta::more(index, String::from(call.arguments));
        events.push(ChatEvent::ToolCall(more));
    }
    events.push(ChatEvent::Usage(response.usage));
    events.push(ChatEvent::End(response.stop));
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn collected(events: impl IntoIterator<Item = ChatEvent>) -> Result<ChatResponse, ModelError> {
        let mut collector = Collector::default();
        for event in events {
            collector.push(event)?;
        }
        collector.finish()
    }

    #[test]
    fn a_malformed_call_does_not_lose_its_siblings() {
        let response = ChatResponse::calling(vec![
            ToolCall::new("1", "a", "{\"cut\": ".to_owned()),
            ToolCall::new("2", "b", json!({"n": 1})),
        ]);

        let again = collected(response.clone().into_events()).unwrap();

        assert_eq!(again, response);
        assert!(again.tool_calls[0].arguments.json().is_err());
        assert_eq!(again.tool_calls[1].arguments.json().unwrap()["n"], 1);
    }

    #[test]
    fn an_answer_that_breaks_off_is_not_taken_for_a_whole_one() {
        let error = collected([ChatEvent::Text("The answer is not ".into())]).unwrap_err();

        assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
    }

    #[test]
    fn the_limits_of_an_answer_hold() {
        let piece = || ChatEvent::Text("x".repeat(1 << 20));
        let long = collected((0..5).map(|_| piece())).unwrap_err();
        let calls = (0..=ChatResponse::MAX_TOOL_CALLS)
            .map(|index| ChatEvent::ToolCall(ToolCallDelta::first(index, "id", "name")));
        let many = collected(calls).unwrap_err();

        assert!(matches!(long, ModelError::TooLarge { .. }), "{long:?}");
        assert!(matches!(many, ModelError::TooLarge { .. }), "{many:?}");
    }

    #[test]
    fn a_piece_of_a_call_that_never_began_is_refused() {
        let error = collected([ChatEvent::ToolCall(ToolCallDelta::more(3, "{"))]).unwrap_err();

        assert!(matches!(error, ModelError::BadAnswer { .. }), "{error:?}");
    }

    #[test]
    fn nothing_follows_the_end() {
        let end = ChatEvent::End(StopReason::Finished);
        let error = collected([end, ChatEvent::Text("more".into())]).unwrap_err();

        assert!(matches!(error, ModelError::BadAnswer { .. }), "{error:?}");
    }

    proptest! {
        #[test]
        fn an_answer_taken_apart_and_put_together_is_the_same(
            text in ".{0,40}",
            calls in prop::collection::vec((".{0,8}", ".{0,8}", ".{0,20}"), 0..4),
            tokens in any::<(u64, u64)>(),
        ) {
            let calls = calls.into_iter().map(|(id, name, text)| ToolCall::new(id, name, text)).collect();
            let mut response = ChatResponse::calling(calls).with_usage(Usage::new(tokens.0, tokens.1));
            response.text = text;

            prop_assert_eq!(collected(response.clone().into_events()).unwrap(), response);
        }
    }
}
