//! Reader of the chat completion requests that a tool receives when it serves a model.

use crate::agent::{
    ChatMessage, ChatRequest, Part, ResponseSchema, ToolCall, ToolChoice, ToolSpec,
};
use crate::error::excerpt;
use crate::model::Json;
use serde::Deserialize;
use serde_json::{Value, json};

/// Error of a chat completion request that cannot be read. The message is for the author of the request.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum BadRequest {
    /// A field of the chat completion request is missing or has the wrong type.
    #[error("the tool input is not a chat completion request: {problem}")]
    Shape { problem: String },
    #[error(
        "message {number} of the chat completion request has the role {role:?}; use system, user, assistant or tool"
    )]
    Role { number: usize, role: String },
    #[error("field {field:?} of the chat completion request is {given:?}; use {expected}")]
    Choice {
        field: &'static str,
        given: String,
        expected: &'static str,
    },
}

#[derive(Deserialize)]
struct Body {
    messages: Vec<Said>,
    model: Option<String>,
    temperature: Option<f64>,
    #[serde(alias = "max_completion_tokens")]
    max_tokens: Option<u32>,
    stop: Option<OneOrMany>,
    tools: Option<Vec<Offered>>,
    tool_choice: Option<Choice>,
    response_format: Option<ResponseFormat>,
}

#[derive(Deserialize)]
struct Said {
    role: String,
    content: Option<Content>,
    tool_calls: Option<Vec<Called>>,
    tool_call_id: Option<String>,
    /// The reasoning and the provider state of an earlier model answer, which the requester sends back in the assistant message.
    opaque_parts: Option<Vec<Part>>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "the content of a message must be a string or a list of parts with a text"
)]
enum Content {
    Text(String),
    Parts(Vec<TextPart>),
}

#[derive(Deserialize)]
struct TextPart {
    text: String,
}

#[derive(Deserialize)]
struct Called {
    id: String,
    function: CalledFunction,
}

#[derive(Deserialize)]
struct CalledFunction {
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Deserialize)]
struct Offered {
    function: OfferedFunction,
}

#[derive(Deserialize)]
struct OfferedFunction {
    name: String,
    #[serde(default)]
    description: String,
    parameters: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "stop must be a string or a list of strings")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "tool_choice must be a string or an object with a function name"
)]
enum Choice {
    Word(String),
    Named { function: Name },
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<Schema>,
}

#[derive(Deserialize)]
struct Schema {
    name: String,
    schema: Value,
    #[serde(default)]
    strict: bool,
}

/// Parses the input of a tool call as a model request. The tool serves a model to other services.
///
/// # Errors
/// [`BadRequest`] with the field to correct.
pub(super) fn request_of(input: &Json) -> Result<ChatRequest, BadRequest> {
    let body: Body = input.parse().map_err(|error| BadRequest::Shape {
        problem: excerpt(&error.to_string(), 200).into_owned(),
    })?;
    let json = body.messages.into_iter().enumerate();
    let messages = json.map(|(at, json)| message(at + 1, json));
    let mut request = ChatRequest::new(messages.collect::<Result<_, _>>()?);
    request.model = body.model;
    request.temperature = body.temperature;
    request.max_output_tokens = body.max_tokens;
    request.stop = match body.stop {
        None => Vec::new(),
        Some(OneOrMany::One(text)) => vec![text],
        Some(OneOrMany::Many(texts)) => texts,
    };
    let tools = body.tools.unwrap_or_default().into_iter();
    request.tools = tools.map(tool).collect();
    request.tool_choice = body.tool_choice.map_or(Ok(ToolChoice::Auto), choice)?;
    request.response_schema = match body.response_format {
        None => None,
        Some(format) => response_schema(format)?,
    };
    Ok(request)
}

fn message(number: usize, json: Said) -> Result<ChatMessage, BadRequest> {
    let text = match json.content {
        None => String::new(),
        Some(Content::Text(text)) => text,
        Some(Content::Parts(parts)) => parts.into_iter().map(|part| part.text).collect(),
    };
    let calls = json.tool_calls.unwrap_or_default().into_iter();
    let calls =
        calls.map(|call| ToolCall::new(call.id, call.function.name, call.function.arguments));
    match &*json.role {
        "system" | "developer" => Ok(ChatMessage::system(text)),
        "user" => Ok(ChatMessage::user(text)),
        "assistant" => {
            let mut message = ChatMessage::calls(text, calls.collect());
            let private = json.opaque_parts.unwrap_or_default().into_iter();
            message.parts.extend(private.filter(Part::is_private));
            Ok(message)
        }
        "tool" => Ok(ChatMessage::tool_result(
            json.tool_call_id.unwrap_or_default(),
            text,
        )),
        other => Err(BadRequest::Role {
            number,
            role: excerpt(other, 80).into_owned(),
        }),
    }
}

fn tool(offered: Offered) -> ToolSpec {
    let OfferedFunction {
        name,
        description,
        parameters,
    } = offered.function;
    let parameters = parameters.unwrap_or_else(|| json!({"type": "object"}));
    ToolSpec::new(name, description, parameters)
}

fn choice(choice: Choice) -> Result<ToolChoice, BadRequest> {
    let word = match choice {
        Choice::Named { function } => return Ok(ToolChoice::Named(function.name)),
        Choice::Word(word) => word,
    };
    match &*word {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => Err(BadRequest::Choice {
            field: "tool_choice",
            given: excerpt(other, 80).into_owned(),
            expected: "auto, none, required or the name of a function",
        }),
    }
}

fn response_schema(format: ResponseFormat) -> Result<Option<ResponseSchema>, BadRequest> {
    match (&*format.kind, format.json_schema) {
        ("text", _) => Ok(None),
        ("json_object", _) => {
            let any = json!({"type": "object"});
            Ok(Some(ResponseSchema::new("answer", any).lenient()))
        }
        ("json_schema", Some(json_schema)) => {
            let schema = ResponseSchema::new(json_schema.name, json_schema.schema);
            Ok(Some(match json_schema.strict {
                true => schema,
                false => schema.lenient(),
            }))
        }
        (other, _) => Err(BadRequest::Choice {
            field: "response_format.type",
            given: excerpt(other, 80).into_owned(),
            expected: "text, json_object, or json_schema with the schema",
        }),
    }
}
