//! The part of a session's conversation that a model sees. No I/O.

use crate::agent::{ChatMessage, Speaker};

/// Removes unanswered tool calls, and tool results without a call, from the messages of a conversation. Model providers
/// reject such messages.
pub(super) fn well_formed(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut valid: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    let mut remaining = messages.into_iter().peekable();
    while let Some(mut message) = remaining.next() {
        match message.speaker {
            // The call of this result does not directly precede it.
            Speaker::Tool => continue,
            Speaker::System | Speaker::User | Speaker::Assistant => {}
        }
        let mut results = Vec::new();
        if !message.tool_calls().is_empty() {
            while let Some(result) = remaining.next_if(|next| next.speaker == Speaker::Tool) {
                results.push(result);
            }
        }
        let answers = |id: &str| {
            let mut matching = results.iter().filter(|result| result.call_id() == Some(id));
            matching.next().is_some() && matching.next().is_none()
        };
        message.retain_calls(|call| answers(&call.id));
        let calls = message.tool_calls().into_iter();
        let mut called: Vec<String> = calls.map(|call| call.id.clone()).collect();
        let distinct = called.len();
        called.sort();
        called.dedup();
        if called.len() < distinct {
            message.retain_calls(|_| false);
            called.clear();
        }
        results.retain(|result| {
            let id = result.call_id().unwrap_or_default();
            called.iter().any(|called| called == id)
        });
        if !(message.is_without_content() && message.speaker == Speaker::Assistant) {
            valid.push(message);
            valid.append(&mut results);
        }
    }
    valid
}

/// Returns at most the last `limit` messages of a conversation, from the first message of a user on.
pub(in crate::workload) fn last(mut messages: Vec<ChatMessage>, limit: u64) -> Vec<ChatMessage> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let cut = messages.len().saturating_sub(limit);
    let mut valid = messages.split_off(cut);
    if cut > 0 {
        let first = valid
            .iter()
            .position(|message| message.speaker == Speaker::User);
        valid.drain(..first.unwrap_or(valid.len()));
    }
    valid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ToolCall;
    use proptest::prelude::*;
    use serde_json::json;

    fn any_message() -> impl Strategy<Value = ChatMessage> {
        let id = prop::sample::select(vec!["1", "2", "3"]);
        prop_oneof![
            ".{0,3}".prop_map(ChatMessage::user),
            ".{0,3}".prop_map(ChatMessage::assistant),
            (".{0,3}", prop::collection::vec(id.clone(), 1..4)).prop_map(|(text, ids)| {
                let calls = ids
                    .into_iter()
                    .map(|id| ToolCall::new(id, "tool", json!({})));
                ChatMessage::calls(text, calls.collect())
            }),
            id.prop_map(|id| ChatMessage::tool_result(id, "result")),
        ]
    }

    proptest! {
        #[test]
        fn each_call_that_is_shown_has_its_result_right_after_it(
            messages in prop::collection::vec(any_message(), 0..24),
            limit in 1_u64..20,
        ) {
            for shown in [well_formed(messages.clone()), last(well_formed(messages), limit)] {
                let mut open: Vec<&str> = Vec::new();
                for message in &shown {
                    if message.speaker == Speaker::Tool {
                        let id = message.call_id().unwrap();
                        let position = open.iter().position(|open| *open == id);
                        prop_assert!(position.is_some(), "{shown:?}");
                        open.remove(position.unwrap());
                    } else {
                        prop_assert!(open.is_empty(), "{shown:?}");
                        open = message.tool_calls().iter().map(|call| call.id.as_str()).collect();
                    }
                }
                prop_assert!(open.is_empty(), "{shown:?}");
            }
        }
    }

    #[test]
    fn a_call_without_a_result_is_omitted_and_its_message_text_is_retained() {
        let calls =
            |text: &str| ChatMessage::calls(text, vec![ToolCall::new("1", "search", json!({}))]);
        let messages = vec![
            ChatMessage::user("Hi"),
            calls("I look."),
            ChatMessage::assistant("Done."),
            calls(""),
        ];

        let shown = well_formed(messages);

        let texts: Vec<_> = shown.iter().map(ChatMessage::text).collect();
        assert_eq!(texts, ["Hi", "I look.", "Done."]);
        assert!(shown.iter().all(|message| message.tool_calls().is_empty()));
    }

    #[test]
    fn the_last_messages_begin_with_one_from_outside() {
        let messages = ["a", "b"]
            .map(|text| [ChatMessage::user(text), ChatMessage::assistant(text)])
            .concat();

        assert_eq!(last(messages.clone(), 3).len(), 2);
        assert_eq!(last(messages.clone(), 4), messages);
        assert_eq!(last(messages, 1), []);
    }
}
