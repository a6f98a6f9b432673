//! The model's reasoning and the provider's opaque state in the chat completions protocol. They are fields of a message and of
//! its tool calls, and only the endpoint that wrote them understands them.

use crate::agent::{ChatEvent, ChatMessage, ModelError, Opaque, PartOrigin, Reasoning};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Names of the fields in which a chat completions message contains the model's reasoning text.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// Name of the field in which a chat completions message contains a list of the model's thoughts. A thought can be encrypted or
/// signed.
const DETAILS: &str = "reasoning_details";

/// Name of the field in which a tool that serves a model returns, in a chat completions message, the model's reasoning and
/// provider state.
pub(in crate::agent) const PARTS: &str = "opaque_parts";

/// The standard fields of a tool call in the chat completions protocol. All other fields are provider state.
const KNOWN: [&str; 4] = ["id", "index", "type", "function"];

/// Fields of an entry in `reasoning_details` whose text a streamed answer splits into pieces.
const STREAMED_FIELDS: [&str; 3] = ["text", "summary", "data"];

/// The fields with reasoning and provider state in a chat completions message, or in one piece of a streamed message.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) reasoning_content: Option<Value>,
    pub(super) reasoning: Option<Value>,
    pub(super) reasoning_details: Option<Value>,
    pub(super) opaque_parts: Option<Value>,
}

impl Fields {
    /// Returns the size in bytes of the fields with reasoning and provider state.
    pub(super) fn size(&self) -> usize {
        let fields = [
            &self.reasoning_content,
            &self.reasoning,
            &self.reasoning_details,
            &self.opaque_parts,
        ];
        let sizes = fields.into_iter().map(|field| size_of(field.as_ref()));
        sizes.sum()
    }
}

/// Returns the size in bytes of a JSON value in a model answer.
pub(super) fn size_of(value: Option<&Value>) -> usize {
    value.map_or(0, |value| match value {
        Value::String(text) => text.len(),
        Value::Null => 0,
        Value::Object(fields) if fields.is_empty() => 0,
        value @ (Value::Object(_) | Value::Array(_) | Value::Bool(_) | Value::Number(_)) => {
            value.to_string().len()
        }
    })
}

/// Collector of the provider state of one model answer. The answer arrives whole or in pieces.
#[derive(Debug)]
pub(super) struct ProviderState {
    origin: PartOrigin,
    details: Vec<Value>,
    parts: Vec<Value>,
    /// The provider state of the tool calls in the answer, by call ID.
    calls: BTreeMap<String, Map<String, Value>>,
}

impl ProviderState {
    pub(super) fn new(origin: PartOrigin) -> Self {
        Self {
            origin,
            details: Vec::new(),
            parts: Vec::new(),
            calls: BTreeMap::new(),
        }
    }

    /// Reads the reasoning and the provider state in the message of a model answer, or in a piece of a streamed message.
    /// Reasoning is returned as an event, and [`finish`](Self::finish) returns the provider state.
    pub(super) fn read(&mut self, fields: Fields) -> Option<ChatEvent> {
        if let Some(Value::Array(details)) = fields.reasoning_details {
            for detail in details {
                self.detail(detail);
            }
        }
        if let Some(Value::Array(parts)) = fields.opaque_parts {
            self.parts.extend(parts);
        }
        // An endpoint that sends both sends the same text twice.
        let fields = [fields.reasoning_content, fields.reasoning];
        let mut texts = REASONING.into_iter().zip(fields);
        texts.find_map(|(field, text)| match text {
            Some(Value::String(text)) if !text.is_empty() => {
                let reasoning = Reasoning::new(text, field, self.origin.clone());
                Some(ChatEvent::Reasoning(reasoning))
            }
            Some(
                Value::String(_)
                | Value::Null
                | Value::Array(_)
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Object(_),
            )
            | None => None,
        })
    }

    /// Adds a thought of the model, or adds a piece to the thought with the same index and type.
    fn detail(&mut self, detail: Value) {
        let same = |known: &&mut Value| {
            let field = |name: &str| (known.get(name), detail.get(name));
            let (index, kind) = (field("index"), field("type"));
            index.0.is_some() && index.0 == index.1 && kind.0 == kind.1
        };
        let known = self.details.iter_mut().find(same);
        let (Some(Value::Object(known)), Value::Object(addition)) = (known, &detail) else {
            self.details.push(detail);
            return;
        };
        for (name, addition) in addition {
            match (known.get_mut(name), addition) {
                (Some(Value::String(text)), Value::String(addition))
                    if STREAMED_FIELDS.contains(&&**name) =>
                {
                    text.push_str(addition);
                }
                (Some(_), Value::Null) => {}
                (Some(_) | None, addition) => {
                    known.insert(name.clone(), addition.clone());
                }
            }
        }
    }

    /// Reads the provider state in the fields of a tool call.
    pub(super) fn read_call(&mut self, call_id: &str, fields: Map<String, Value>) {
        let is_state =
            |(name, value): &(String, Value)| !value.is_null() && !KNOWN.contains(&&**name);
        let mut fields = fields.into_iter().filter(is_state).peekable();
        if fields.peek().is_some() {
            let known = self.calls.entry(call_id.to_owned()).or_default();
            known.extend(fields);
        }
    }

    /// Returns the provider state of the model answer as events.
    ///
    /// # Errors
    /// [`ModelError::BadAnswer`] if the state nests too deep to be saved.
    pub(super) fn finish(self) -> Result<Vec<ChatEvent>, ModelError> {
        let mut state = Vec::new();
        for (field, values) in [(DETAILS, self.details), (PARTS, self.parts)] {
            if !values.is_empty() {
                let value = Value::Array(values);
                state.push(Opaque::new(field, value, self.origin.clone()));
            }
        }
        for (call_id, fields) in self.calls {
            for (field, value) in fields {
                let opaque = Opaque::new(field, value, self.origin.clone());
                state.push(opaque.of_call(&*call_id));
            }
        }
        match state.iter().all(Opaque::is_flat) {
            true => Ok(state.into_iter().map(ChatEvent::Opaque).collect()),
            false => Err(ModelError::bad_answer("the provider state nests too deep")),
        }
    }
}

/// Adds the reasoning and the provider state of an earlier model answer to its message in the next request.
///
/// The text of the reasoning is sent only with tool calls. Models need it there, and some endpoints reject it elsewhere.
pub(super) fn restore(message: &ChatMessage, origin: &PartOrigin, fields: &mut Map<String, Value>) {
    let calls_tools = !message.tool_calls().is_empty();
    for reasoning in message.reasoning(origin).filter(|_| calls_tools) {
        if !REASONING.contains(&&*reasoning.field) {
            continue;
        }
        let field = fields.entry(&*reasoning.field);
        if let Value::String(text) = field.or_insert_with(|| Value::from("")) {
            text.push_str(&reasoning.text);
        }
    }
    for opaque in message.opaque(origin, None) {
        if [DETAILS, PARTS].contains(&&*opaque.field) {
            fields.insert(opaque.field.clone(), Value::clone(&opaque.value));
        }
    }
}

/// Adds the provider state of an earlier tool call to the call in the next request.
pub(super) fn restore_call(
    message: &ChatMessage,
    origin: &PartOrigin,
    call_id: &str,
    fields: &mut Map<String, Value>,
) {
    for opaque in message.opaque(origin, Some(call_id)) {
        if !KNOWN.contains(&&*opaque.field) {
            fields.insert(opaque.field.clone(), Value::clone(&opaque.value));
        }
    }
}
