//! Conversion of model requests to the chat completions protocol.

use super::names::Names;
use super::provider_state;
use crate::agent::{
    ChatMessage, ChatRequest, Media, ModelError, Part, PartOrigin, Speaker, ToolCall, ToolChoice,
};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Settings for the JSON body of a model request. They depend on the endpoint and the model.
pub(in crate::agent) struct Form<'a> {
    pub(in crate::agent) names: &'a Names,
    /// The model that receives the request. The request contains only reasoning and provider state of this origin.
    pub(in crate::agent) origin: &'a PartOrigin,
    pub(in crate::agent) default_model: Option<&'a str>,
    /// The name of the model request's field with the maximum number of answer tokens: `max_completion_tokens` or `max_tokens`.
    pub(in crate::agent) max_tokens_field: &'static str,
    pub(in crate::agent) streams: bool,
    /// If `true`, consecutive messages of the role `user` are sent as one.
    pub(in crate::agent) joins_user_messages: bool,
}

impl Form<'_> {
    /// Returns the JSON body of a model request in the chat completions protocol.
    ///
    /// # Errors
    /// [`ModelError::Media`] if an image or a file was not read, and [`ModelError::Unsupported`] if a message of another role than
    /// `user` has one.
    pub(in crate::agent) fn body(&self, request: &ChatRequest) -> Result<Value, ModelError> {
        let messages = match self.joins_user_messages {
            true => Cow::Owned(ChatMessage::joined(&request.messages)),
            false => Cow::Borrowed(&*request.messages),
        };
        let messages = messages
            .iter()
            .map(|message| self.message(message, request));
        let messages = messages.collect::<Result<Value, _>>()?;
        let mut body = Map::new();
        let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
        set("messages", messages);
        if let Some(model) = request.model.as_deref().or(self.default_model) {
            set("model", json!(model));
        }
        if !request.tools.is_empty() {
            set("tools", self.tools(request));
            set("tool_choice", self.choice(&request.tool_choice));
        }
        if let Some(schema) = &request.response_schema {
            let schema =
                json!({"name": schema.name, "schema": schema.schema, "strict": schema.strict});
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
        Ok(Value::Object(body))
    }

    fn message(&self, message: &ChatMessage, request: &ChatRequest) -> Result<Value, ModelError> {
        if message.has_media() {
            return match message.speaker {
                Speaker::User => message_with_media(message, request),
                Speaker::System | Speaker::Assistant | Speaker::Tool => {
                    Err(ModelError::Unsupported {
                        provider: "the chat completions protocol",
                        what: "images and files in a message of another role than user",
                    })
                }
            };
        }
        let text = message.text();
        Ok(match message.speaker {
            Speaker::System => json!({"role": "system", "content": text}),
            Speaker::User => json!({"role": "user", "content": text}),
            Speaker::Assistant => self.assistant_message(message),
            Speaker::Tool => {
                // The protocol has no field for errors, so the text reports them.
                let content = match message.is_error() {
                    true => format!("error: {text}"),
                    false => text.into_owned(),
                };
                json!({"role": "tool", "tool_call_id": message.call_id(), "content": content})
            }
        })
    }

    /// Converts an earlier model answer to a message of the request. The message has the answer's reasoning and provider state only if the
    /// request goes to the same provider and model.
    fn assistant_message(&self, message: &ChatMessage) -> Value {
        let text = message.text();
        let calls = message.tool_calls();
        let mut fields = Map::new();
        fields.insert("role".to_owned(), "assistant".into());
        let content = (calls.is_empty() || !text.is_empty()).then_some(text);
        fields.insert("content".to_owned(), json!(content));
        if !calls.is_empty() {
            let calls = calls.into_iter().map(|call| self.call(call, message));
            fields.insert("tool_calls".to_owned(), calls.collect());
        }
        provider_state::restore(message, self.origin, &mut fields);
        Value::Object(fields)
    }

    fn call(&self, call: &ToolCall, message: &ChatMessage) -> Value {
        // Some endpoints parse the arguments of earlier calls and reject the whole conversation if one is not JSON.
        let arguments = match call.arguments.json() {
            Ok(_) if call.arguments.text().trim().is_empty() => "{}".to_owned(),
            Ok(_) => call.arguments.text().to_owned(),
            Err(_) => json!({"unreadable": call.arguments.text()}).to_string(),
        };
        let function =
            json!({"name": self.names.provider_name(&call.name), "arguments": arguments});
        let mut fields = Map::new();
        provider_state::restore_call(message, self.origin, &call.id, &mut fields);
        fields.insert("id".to_owned(), json!(call.id));
        fields.insert("type".to_owned(), "function".into());
        fields.insert("function".to_owned(), function);
        Value::Object(fields)
    }

    fn tools(&self, request: &ChatRequest) -> Value {
        let tools = request.tools.iter().map(|tool| {
            let function = json!({
                "name": self.names.provider_name(&tool.name),
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
                json!({"type": "function", "function": {"name": self.names.provider_name(name)}})
            }
        }
    }
}

/// Returns a user message with images or files, as a list of parts.
fn message_with_media(message: &ChatMessage, request: &ChatRequest) -> Result<Value, ModelError> {
    let url = |media: &Media| -> Result<String, ModelError> {
        let bytes = request.bytes_of(media)?;
        Ok(format!("data:{};base64,{bytes}", media.media_type))
    };
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => content.push(json!({"type": "text", "text": text})),
            Part::Data(data) => {
                let text = ChatMessage::data(data.clone()).text().into_owned();
                content.push(json!({"type": "text", "text": text}));
            }
            Part::Image(media) => {
                content.push(json!({"type": "image_url", "image_url": {"url": url(media)?}}));
            }
            Part::File(media) => {
                let name = media.name.as_deref().unwrap_or("file");
                let file = json!({"filename": name, "file_data": url(media)?});
                content.push(json!({"type": "file", "file": file}));
            }
            // User messages have none of these parts.
            Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) | Part::Opaque(_) => {}
        }
    }
    Ok(json!({"role": "user", "content": content}))
}
