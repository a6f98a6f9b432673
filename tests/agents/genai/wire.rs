//! Answers in each provider's wire format.

use crate::server::{Reply, head};
use serde_json::{Value, json};

/// Returns a complete answer with this text in a provider's wire format.
pub(crate) fn text(provider: &str, text: &str) -> String {
    match provider {
        "anthropic" => {
            let half = text.len() / 2;
            let half = (half..).find(|at| text.is_char_boundary(*at)).unwrap();
            let (one, other) = text.split_at(half);
            anthropic(&[begin(), said(0, &[one, other]), end("end_turn")])
        }
        "gemini" => gemini(&[&json!([{"text": text}])], Some("STOP")),
        _ => ollama(&[
            json!({"message": {"role": "assistant", "content": text}, "done": false}),
            done("stop"),
        ]),
    }
}

/// Returns a complete answer that calls two tools, `a` with 1 and `b` with 2.
pub(crate) fn calls(provider: &str) -> String {
    match provider {
        "anthropic" => anthropic(&[
            begin(),
            said(0, &["I look."]),
            called(1, "t1", "a", &["{\"n\"", ": 1}"]),
            called(2, "t2", "b", &["{\"n\": 2}"]),
            end("tool_use"),
        ]),
        "gemini" => gemini(
            &[
                &json!([{"text": "I look."}]),
                &json!([
                    {"functionCall": {"name": "a", "args": {"n": 1}}},
                    {"functionCall": {"name": "b", "args": {"n": 2}}},
                ]),
            ],
            Some("STOP"),
        ),
        _ => ollama(&[
            json!({"message": {"role": "assistant", "content": "I look."}, "done": false}),
            json!({"message": {"role": "assistant", "content": "", "tool_calls": [
                {"function": {"name": "a", "arguments": {"n": 1}}},
                {"function": {"name": "b", "arguments": {"n": 2}}},
            ]}, "done": false}),
            done("stop"),
        ]),
    }
}

/// Returns a provider's response, with a body in these pieces.
pub(crate) fn reply(provider: &str, pieces: &[&[u8]]) -> Reply {
    let head = head(200, kind(provider), &[], None).into_bytes();
    let pieces = pieces.iter().map(|piece| piece.to_vec());
    Reply::Bytes([head].into_iter().chain(pieces).collect())
}

pub(crate) fn kind(provider: &str) -> &'static str {
    match provider {
        "ollama" => "application/x-ndjson",
        _ => "text/event-stream",
    }
}

pub(crate) fn anthropic(parts: &[Vec<Value>]) -> String {
    let events = parts.iter().flatten().map(|data| {
        let kind = data["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {data}\n\n")
    });
    events.collect()
}

pub(crate) fn begin() -> Vec<Value> {
    let usage = json!({"input_tokens": 9, "output_tokens": 1});
    vec![
        json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}}),
        json!({"type": "ping"}),
    ]
}

pub(crate) fn said(index: usize, pieces: &[&str]) -> Vec<Value> {
    let deltas = pieces
        .iter()
        .map(|piece| json!({"type": "text_delta", "text": piece}));
    block(index, &json!({"type": "text", "text": ""}), deltas)
}

pub(crate) fn called(index: usize, id: &str, name: &str, pieces: &[&str]) -> Vec<Value> {
    let deltas = pieces
        .iter()
        .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
    let call = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
    block(index, &call, deltas)
}

fn block(index: usize, block: &Value, deltas: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut events =
        vec![json!({"type": "content_block_start", "index": index, "content_block": block})];
    events.extend(
        deltas.map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})),
    );
    events.push(json!({"type": "content_block_stop", "index": index}));
    events
}

pub(crate) fn end(reason: &str) -> Vec<Value> {
    vec![
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ]
}

/// Returns one event per item. The last event also has the finish reason and the token usage.
pub(crate) fn gemini(parts: &[&Value], reason: Option<&str>) -> String {
    let last = parts.len() - 1;
    let events = parts.iter().enumerate().map(|(index, parts)| {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        let mut event = json!({});
        if index == last {
            if let Some(reason) = reason {
                candidate["finishReason"] = json!(reason);
            }
            event["usageMetadata"] =
                json!({"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11});
        }
        event["candidates"] = json!([candidate]);
        format!("data: {event}\r\n\r\n")
    });
    events.collect()
}

pub(crate) fn ollama(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

pub(crate) fn done(reason: &str) -> Value {
    let message = json!({"role": "assistant", "content": ""});
    json!({"message": message, "done": true, "done_reason": reason, "prompt_eval_count": 9, "eval_count": 2})
}
