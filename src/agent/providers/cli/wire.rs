//! JSON messages between an agent run and its program. The module does no I/O and reads no clock.

use super::CliError;
use crate::agent::{ChatMessage, ProviderTask, ResponseSchema, ToolSpec};
use crate::error::excerpt;
use crate::machine::{Answer, MachineCall, RunId, ToolArguments};
use crate::model::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Maximum size in bytes of a call ID, and of a tool name, that an agent's program sends in a tool call.
const MAX_NAME_BYTES: usize = 256;

/// Maximum size in bytes of the JSON parse error in the response to a malformed tool call.
const MAX_PROBLEM_BYTES: usize = 256;

/// The saved state of a session with an agent's program.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Saved {
    /// The number of starts of the agent's program in this run.
    pub(super) runs: u64,
    /// The last answer of the agent's program.
    pub(super) last: Option<String>,
    /// The run's message to the agent's external program at its next start, such as a correction request, or `None` once the
    /// program has answered it.
    pub(super) message: Option<String>,
}

impl Saved {
    pub(super) fn read(saved: &Json) -> Result<Self, CliError> {
        saved.parse().map_err(CliError::UnreadableState)
    }

    pub(super) fn write(&self) -> Json {
        json!({"runs": self.runs, "last": self.last, "message": self.message}).into()
    }
}

/// The JSON document that an agent's program receives on its standard input.
#[derive(Serialize)]
struct Document<'a> {
    run: &'a RunId,
    model: Option<&'a str>,
    temperature: Option<f64>,
    messages: &'a [ChatMessage],
    tools: &'a [ToolSpec],
    response_schema: Option<&'a ResponseSchema>,
    resumed: Option<Resumed<'a>>,
    message: Option<&'a str>,
}

/// The part of an external program's input about its earlier starts in this run: their number, the last answer, and the finished
/// tool calls.
#[derive(Serialize)]
struct Resumed<'a> {
    runs: u64,
    last: Option<&'a str>,
    calls: Vec<Value>,
}

/// Returns a finished tool call with its answer as JSON for the input of the agent's external program.
fn call_json((call, answer): &(MachineCall, Answer)) -> Value {
    let mut json = self::answer(answer);
    if let Value::Object(fields) = &mut json {
        fields.insert("id".to_owned(), call.id.as_str().into());
        fields.insert("tool".to_owned(), (&*call.tool).into());
        if let ToolArguments::Json(arguments) = &call.arguments {
            fields.insert("arguments".to_owned(), (**arguments).clone());
        }
    }
    json
}

/// Returns the JSON document for the standard input of the agent's external program. `messages` and `message` have passed the
/// input guardrails.
pub(super) fn document(
    task: &ProviderTask,
    saved: &Saved,
    messages: &[ChatMessage],
    message: Option<&str>,
) -> Result<Vec<u8>, serde_json::Error> {
    let resumed = Resumed {
        runs: saved.runs,
        last: saved.last.as_deref(),
        calls: task.made.iter().map(call_json).collect(),
    };
    let document = Document {
        run: &task.run,
        model: task.model.as_deref(),
        temperature: task.temperature,
        messages,
        tools: &task.tools,
        response_schema: task.response_schema.as_ref(),
        resumed: (saved.runs > 0).then_some(resumed),
        message,
    };
    serde_json::to_vec(&document)
}

pub(super) fn tools(task: &ProviderTask) -> Vec<u8> {
    json!({"tools": task.tools}).to_string().into_bytes()
}

/// A tool call as an agent's program sends it in JSON. Unknown fields are ignored, for later versions.
#[derive(Deserialize)]
struct SentCall<'a> {
    id: String,
    tool: String,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// Reads a tool call of an agent's program. Arguments that are not valid JSON do not fail the request: the model receives their problem as
/// the result of the call.
///
/// # Errors
/// The problem, for the program.
pub(super) fn read_call(body: &[u8]) -> Result<MachineCall, String> {
    let sent: SentCall<'_> = serde_json::from_slice(body).map_err(|error| {
        let problem = error.to_string();
        let problem = excerpt(&problem, MAX_PROBLEM_BYTES);
        format!("the body must be {EXPECTED}: {problem}")
    })?;
    for (field, text) in [("id", &sent.id), ("tool", &sent.tool)] {
        if text.is_empty() || text.len() > MAX_NAME_BYTES {
            return Err(format!(
                "{field:?} must have 1 to {MAX_NAME_BYTES} bytes, but has {}",
                text.len()
            ));
        }
        // Stores replace U+0000, so the saved call would have another ID than the call that is sent again.
        if let Some((at, control)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(format!(
                "{field:?} has the control character U+{:04X} at byte {at}; send it without control characters",
                u32::from(control)
            ));
        }
    }
    Ok(MachineCall::new(
        sent.id,
        sent.tool,
        arguments(sent.arguments)?,
    ))
}

const EXPECTED: &str = r#"JSON like {"id": "1", "tool": "search", "arguments": {}}"#;

fn arguments(sent: &RawValue) -> Result<ToolArguments, String> {
    let text = sent.get();
    match text.bytes().next() {
        Some(b'{') => Ok(ToolArguments::parse(text)),
        // A string with the text of a model, which may or may not be JSON.
        Some(b'"') => {
            let written: String = serde_json::from_str(text).map_err(|error| error.to_string())?;
            Ok(ToolArguments::parse(&written))
        }
        Some(_) | None => Err(
            r#""arguments" must be an object, or a string with the JSON of an object"#.to_owned(),
        ),
    }
}

/// Returns the response body with the result of a tool call from the agent's external program.
pub(super) fn answer(answer: &Answer) -> Value {
    match answer {
        Answer::Success(output) => json!({"status": "success", "output": output}),
        Answer::Error { code, message } => error(code, message),
    }
}

pub(super) fn error(code: &str, message: &str) -> Value {
    json!({"status": "error", "code": code, "error": message})
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(value: &Value) -> Result<MachineCall, String> {
        read_call(value.to_string().as_bytes())
    }

    #[test]
    fn arguments_are_an_object_or_the_text_of_a_model() {
        let object = read(&json!({"id": "1", "tool": "add", "arguments": {"a": 1}})).unwrap();
        let text = read(&json!({"id": "1", "tool": "add", "arguments": "{\"a\": 1}"})).unwrap();
        let none = read(&json!({"id": "1", "tool": "add", "arguments": ""})).unwrap();

        assert_eq!(object, MachineCall::new("1", "add", json!({"a": 1})));
        assert_eq!(text, object);
        assert_eq!(none, MachineCall::new("1", "add", json!({})));
    }

    #[test]
    fn invalid_json_arguments_retain_their_text() {
        let call = read(&json!({"id": "1", "tool": "add", "arguments": "{\"a\": "})).unwrap();

        let ToolArguments::Unreadable { text, .. } = call.arguments else {
            panic!("{call:?}");
        };
        assert_eq!(text, "{\"a\": ");
    }

    #[test]
    fn an_invalid_call_is_refused_with_the_problem() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        let refused = [
            (
                json!({"tool": "add", "arguments": {}}),
                "missing field `id`",
            ),
            (json!({"id": "1", "arguments": {}}), "missing field `tool`"),
            (
                json!({"id": "1", "tool": "add"}),
                "missing field `arguments`",
            ),
            (
                json!({"id": 1, "tool": "add", "arguments": {}}),
                "expected a string",
            ),
            (
                json!({"id": "", "tool": "add", "arguments": {}}),
                "\"id\" must have 1 to 256 bytes",
            ),
            (
                json!({"id": "1", "tool": long, "arguments": {}}),
                "\"tool\" must have 1 to 256 bytes",
            ),
            (
                json!({"id": "a\u{0}b", "tool": "add", "arguments": {}}),
                "\"id\" has the control character U+0000 at byte 1",
            ),
            (
                json!({"id": "1", "tool": "é\u{85}", "arguments": {}}),
                "\"tool\" has the control character U+0085 at byte 2",
            ),
            (
                json!({"id": "1", "tool": "add", "arguments": [1]}),
                "must be an object",
            ),
            (
                json!({"id": "1", "tool": "add", "arguments": null}),
                "must be an object",
            ),
            (json!([]), "must be JSON like"),
        ];

        for (sent, problem) in refused {
            let json = read(&sent).unwrap_err();
            assert!(json.contains(problem), "{sent} is refused with {json}");
        }
    }

    #[test]
    fn a_call_that_nests_too_deep_is_taken_and_has_unreadable_arguments() {
        let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        let body = format!(r#"{{"id": "1", "tool": "add", "arguments": {deep}}}"#);

        let call = read_call(body.as_bytes()).unwrap();

        assert!(matches!(call.arguments, ToolArguments::Unreadable { .. }));
    }

    #[test]
    fn saved_state_survives_a_round_trip() {
        let saved = Saved {
            runs: 2,
            last: Some("no".into()),
            message: Some("try again".into()),
        };

        assert_eq!(Saved::read(&saved.write()).unwrap(), saved);
        assert!(Saved::read(&json!({"turns": []}).into()).is_err());
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn any_bytes_are_a_call_or_refused_in_few_words(
            body in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                r#"[{}\[\]":,a-z0-9\\ ]{0,80}"#.prop_map(String::into_bytes),
            ],
        ) {
            if let Err(problem) = read_call(&body) {
                prop_assert!(problem.len() < 1000, "{problem}");
            }
        }

        #[test]
        fn a_call_is_read_as_it_was_sent(id in "\\PC{1,60}", tool in "\\PC{1,60}", text in any::<String>()) {
            let sent = json!({"id": id, "tool": tool, "arguments": {"text": text}});

            let call = read(&sent).unwrap();

            prop_assert_eq!(call, MachineCall::new(id, tool, json!({"text": text})));
        }

        #[test]
        fn a_call_that_breaks_off_is_refused(cut in 0_usize..40) {
            let whole = br#"{"id": "1", "tool": "add", "arguments": {}}"#;

            prop_assert!(read_call(&whole[..cut]).is_err());
        }
    }

    fn sent(tape: &mut crate::fuzz::Tape) -> crate::fuzz::Bytes {
        let text = crate::fuzz::SENT_CALL.text(tape);
        crate::fuzz::bytes(tape, &text)
    }

    fn is_a_call_or_refused(body: &crate::fuzz::Bytes) -> bool {
        match read_call(body) {
            Ok(call) => {
                let names = [call.id.as_str(), &*call.tool];
                assert!(
                    names
                        .iter()
                        .all(|name| !name.is_empty() && name.len() <= MAX_NAME_BYTES)
                );
                assert!(!names.iter().any(|name| name.contains(char::is_control)));
                true
            }
            Err(problem) => {
                assert!(problem.len() < 1_000, "{problem}");
                false
            }
        }
    }

    #[test]
    fn any_call_that_a_program_sends_is_read_or_refused() {
        crate::fuzz::structured(sent, is_a_call_or_refused);
    }
}
