//! A request in the words of chat completions.

use super::names::Names;
use crate::agent::{ChatRequest, Message, Speaker, ToolCall, ToolChoice};
use serde_json::{Map, Value, json};

/// How the wire differs from one endpoint and call to the next.
pub(in crate::agent) struct Form<'a> {
    pub(in crate::agent) names: &'a Names,
    pub(in crate::agent) default_model: Option<&'a str>,
    /// `max_completion_tokens`, or `max_tokens`.
    pub(in crate::agent) max_tokens_field: &'static str,
    pub(in crate::agent) streams: bool,
}

impl Form<'_> {
    pub(in crate::agent) fn body(&self, request: &ChatRequest) -> Value {
        let messages = request.messages.iter().map(|one| self.message(one));
        let mut body = Map::new();
        let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
        set("messages", messages.collect());
        if let Some(model) = request.model.as_deref().or(self.default_model) {
            set("model", json!(model));
        }
        if !request.tools.is_empty() {
            set("tools", self.tools(request));
            set("tool_choice", self.choice(&request.tool_choice));
        }
        if let Some(wanted) = &request.response_schema {
            let schema =
                json!({"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict});
            set(
                "response_format",
                json!({"type": "json_schema", "json_schema": schema}),
            );
        }
        if let Some(temperature) = request.temperature {
            set("temperature", json!(temperature));
        }
        if let Some(tokens) = request.max_output_tokens {
            set(self.max_tokens_field, json!(tokens));
        }
        if !request.stop.is_empty() {
            set("stop", json!(request.stop));
        }
        if self.streams {
            set("stream", json!(true));
            set("stream_options", json!({"include_usage": true}));
        }
        Value::Object(body)
    }

    fn message(&self, message: &Message) -> Value {
        let text = &message.text;
        match message.speaker {
            Speaker::System => json!({"role": "system", "content": text}),
            Speaker::User => json!({"role": "user", "content": text}),
            Speaker::Assistant if message.tool_calls.is_empty() => {
                json!({"role": "assistant", "content": text})
            }
            Speaker::Assistant => {
                let calls: Vec<_> = message
                    .tool_calls
                    .iter()
                    .map(|one| self.call(one))
                    .collect();
                let text = (!text.is_empty()).then_some(text);
                json!({"role": "assistant", "content": text, "tool_calls": calls})
            }
            Speaker::Tool => {
                // The protocol has no field for it, so the model is told in words.
                let content = match message.is_error {
                    true => format!("error: {text}"),
                    false => text.clone(),
                };
                json!({"role": "tool", "tool_call_id": message.call_id, "content": content})
            }
        }
    }

    fn call(&self, call: &ToolCall) -> Value {
        // Some endpoints read the arguments of earlier calls and reject the whole conversation for one that is no JSON.
        let arguments = match call.arguments.json() {
            Ok(_) if call.arguments.text().trim().is_empty() => "{}".to_owned(),
            Ok(_) => call.arguments.text().to_owned(),
            Err(_) => json!({"unreadable": call.arguments.text()}).to_string(),
        };
        let function = json!({"name": self.names.there(&call.name), "arguments": arguments});
        json!({"id": call.id, "type": "function", "function": function})
    }

    fn tools(&self, request: &ChatRequest) -> Value {
        let tools = request.tools.iter().map(|tool| {
            let function = json!({
                "name": self.names.there(&tool.name),
                "description": tool.description,
                "parameters": tool.input_schema,
            });
            json!({"type": "function", "function": function})
        });
        tools.collect()
    }

    fn choice(&self, choice: &ToolChoice) -> Value {
        match choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => {
                json!({"type": "function", "function": {"name": self.names.there(name)}})
            }
        }
    }
}
