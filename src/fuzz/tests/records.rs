//! JSON, events and breadcrumbs from outside.

use crate::fuzz::vocabulary::{BREADCRUMB, EVENT, HINTS};
use crate::fuzz::{Bytes, CONTEXT, Tape, any_json, bytes, structured};
use crate::model::{MAX_DEPTH, RESERVED_KEY, sorted_text};
use crate::{Breadcrumb, Event, Json, NewBreadcrumb, Patch};
use serde_json::Value;

/// Maximum length of an error message in bytes.
const MAX_MESSAGE: usize = 1_000;

/// Returns the number of levels of lists and objects.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Returns `true` if an object has the key that `serde_json` treats specially.
fn has_reserved_key(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_reserved_key),
        Value::Object(fields) => {
            fields.contains_key(RESERVED_KEY) || fields.values().any(has_reserved_key)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn json(tape: &mut Tape) -> String {
    let mut text = String::new();
    match tape.below(4) {
        0 => any_json(tape, &mut text),
        1 => HINTS.write(tape, &mut text),
        _ => CONTEXT.write(tape, &mut text),
    }
    pad(tape, &mut text, Json::MAX_BYTES);
    text
}

/// Sometimes pads JSON with spaces to a length of one byte below, at or one byte above a limit.
fn pad(tape: &mut Tape, text: &mut String, limit: usize) {
    if tape.once_in(100) {
        let (name, size) = *tape.pick(&[
            ("whole text - 1", limit - 1),
            ("whole text", limit),
            ("whole text + 1", limit + 1),
        ]);
        if text.len() + 2 <= size {
            tape.note(name);
            let spaces = " ".repeat(size - text.len() - 2);
            *text = format!("[{text}{spaces}]");
        }
    }
}

fn is_read_whole_or_refused(text: &String) -> bool {
    let typed = serde_json::from_slice::<Json>(text.as_bytes());
    let json = match Json::from_text(text.clone()) {
        Ok(json) => json,
        Err(error) => {
            assert!(error.to_string().len() < MAX_MESSAGE, "{error}");
            assert!(typed.is_err(), "only one way reads {text}");
            return false;
        }
    };
    assert_eq!(json.size(), text.trim().len());
    assert!(depth(&json) <= MAX_DEPTH);
    assert_eq!(json, typed.unwrap());
    assert!(text.len() <= Json::MAX_BYTES && !has_reserved_key(&json));

    let printed = json.to_string();
    assert_eq!(Json::from_text(printed).unwrap(), json);
    // Printed numbers can be longer, so the string form of a value can exceed the limit.
    if let Ok(again) = Json::from_text(Value::clone(&json).to_string()) {
        assert_eq!(again, json);
    }
    assert_eq!(
        sorted_text(&json),
        sorted_text(&Json::from(Value::clone(&json)))
    );
    if let Ok(stored) = json.canonical(Json::MAX_BYTES) {
        assert!(
            !stored.to_string().contains("\\u0000") || stored.to_string().contains("\\\\u0000")
        );
        assert!(!stored.to_string().contains('\n') && stored.size() <= Json::MAX_BYTES);
        assert_eq!(stored.canonical(Json::MAX_BYTES).unwrap(), stored);
    }
    for path in ["a", "$..a", "a.b[0]", "$.a[?(@.b == 1)]"] {
        assert!(
            json.text(path)
                .is_none_or(|found| found.len() <= text.len())
        );
    }
    true
}

#[test]
fn any_json_is_read_whole_or_refused() {
    structured(json, is_read_whole_or_refused);
}

fn event(tape: &mut Tape) -> Bytes {
    let mut text = EVENT.text(tape);
    pad(tape, &mut text, Event::MAX_CONTEXT_BYTES);
    bytes(tape, &text)
}

fn is_an_event_or_refused(text: &Bytes) -> bool {
    let Ok(event) = serde_json::from_slice::<Event>(text) else {
        return false;
    };
    let context = event.context.as_ref().map(Json::to_string);
    assert!(context.is_none_or(|text| text.len() <= Event::MAX_CONTEXT_BYTES));

    let written = serde_json::to_vec(&event).unwrap();
    let again: Event = serde_json::from_slice(&written).unwrap();
    assert_eq!(again, event);
    assert!(event.envelope().context.is_none());
    true
}

#[test]
fn any_event_is_read_or_refused_and_stays_the_same_when_written() {
    structured(event, is_an_event_or_refused);
}

fn breadcrumb(tape: &mut Tape) -> Bytes {
    let text = BREADCRUMB.text(tape);
    bytes(tape, &text)
}

fn is_a_breadcrumb_or_refused(text: &Bytes) -> bool {
    let stored = serde_json::from_slice::<Breadcrumb>(text);
    if let Ok(read) = &stored {
        let written = serde_json::to_vec(read).unwrap();
        assert_eq!(
            serde_json::from_slice::<Breadcrumb>(&written).unwrap(),
            *read
        );
        assert!(read.size() <= text.len() * 2);
    }
    if let Ok(read) = serde_json::from_slice::<NewBreadcrumb>(text) {
        let written = serde_json::to_vec(&read).unwrap();
        assert_eq!(
            serde_json::from_slice::<NewBreadcrumb>(&written).unwrap(),
            read
        );
    }
    if let Ok(read) = serde_json::from_slice::<Patch>(text) {
        let written = serde_json::to_vec(&read).unwrap();
        assert_eq!(serde_json::from_slice::<Patch>(&written).unwrap(), read);
    }
    stored.is_ok()
}

#[test]
fn any_breadcrumb_is_read_or_refused_and_stays_the_same_when_written() {
    structured(breadcrumb, is_a_breadcrumb_or_refused);
}
