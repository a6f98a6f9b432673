//! The serving side of models as tools: a tool that passes its input to a model.

use super::read::request_of;
use crate::agent::providers::completions::provider_state::PARTS;
use crate::agent::{ChatModel, ChatResponse, Part, StopReason, ToolCall, Usage};
use crate::error::permanent;
use crate::model::Json;
use crate::tool::{JsonTool, json_tool};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Creates a tool that serves a model. Agents of other services can then send model requests to the tool as breadcrumbs.
///
/// The input is a chat completion request: `messages`, and optionally `model`, `temperature`, `max_tokens`, `stop`, `tools`,
/// `tool_choice` and `response_format`. Other fields have no effect. The output has `content`, `finish_reason` and `usage`. If the model
/// calls tools, the output has `choices` and `usage`, with the calls in `choices[0].message.tool_calls`.
///
/// Reasoning and provider state are in `opaque_parts`, next to the content. Some models need them between tool calls, so the requester
/// should send them back in the assistant message of the next request.
///
/// The tool has a timeout of 120 s and a maximum output of 512 KiB; both can be changed. The tool is idempotent: a repeated call
/// costs tokens again but does no harm. So a request by breadcrumb is retried while the model is rate limited or unavailable.
/// A permanent error is the answer to the request.
///
/// Use it with [`ToolExecutor`](crate::tool::ToolExecutor), or in a
/// [`ToolDispatcher`](crate::tool::ToolDispatcher) with other tools. Each writer of
/// `tool.request.v1` in the store can use the model.
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::agent::{ScriptedModel, model_tool};
/// use universal_executor::tool::ToolExecutor;
/// use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let model = Arc::new(ScriptedModel::new(["Hello, Ann!"]));
/// let served = ToolExecutor::new(model_tool("llm", model), Arc::new(store.clone()))?;
/// let input = json!({"messages": [{"role": "user", "content": "I am Ann"}]});
/// let request = NewBreadcrumb::new("tool.request.v1").context(json!({"tool": "llm", "input": input}));
/// let request = store.create(request).await?;
/// served.process_event(&Event::created(&request)).await?;
///
/// let response = store.latest("tool.response.v1").await?.ok_or("no response")?;
/// assert_eq!(response.context["output"]["content"], "Hello, Ann!");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub fn model_tool(name: impl Into<String>, model: Arc<dyn ChatModel>) -> JsonTool {
    let description = "Calls a language model with a chat completion request.";
    let tool = json_tool(name, description, schema(), move |input, _| {
        let model = Arc::clone(&model);
        async move {
            let request = request_of(&Json::from(input)).map_err(permanent)?;
            let answer = model.chat(&request).await?;
            Ok(output_of(&answer))
        }
    });
    tool.idempotent()
        .timeout(Duration::from_secs(120))
        .max_output_bytes(512 << 10)
}

fn schema() -> Value {
    let text = || json!({"type": "string"});
    let list = |items: Value| json!({"type": "array", "items": items});
    json!({
        "type": "object",
        "properties": {
            "messages": list(json!({"type": "object", "properties": {"role": text()}, "required": ["role"]})),
            "model": text(),
            "temperature": {"type": "number"},
            "max_tokens": {"type": "integer"},
            "tools": list(json!({"type": "object"})),
        },
        "required": ["messages"],
    })
}

/// Returns a model answer as the output of the tool that serves the model.
pub(super) fn output_of(answer: &ChatResponse) -> Value {
    let reason = match answer.stop {
        StopReason::Finished => "stop",
        StopReason::ToolCalls => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::Other => "other",
    };
    let Usage {
        input_tokens,
        output_tokens,
        ..
    } = answer.usage;
    let usage = json!({"prompt_tokens": input_tokens, "completion_tokens": output_tokens});
    let private = answer.parts.iter().filter(|part| part.is_private());
    let private: Vec<_> = private.collect();
    let calls = answer.tool_calls();
    if calls.is_empty() {
        let mut output = json!({"content": answer.text(), "finish_reason": reason, "usage": usage});
        add_private(&mut output, &private);
        return output;
    }
    let calls: Vec<_> = calls.into_iter().map(call).collect();
    let mut message = json!({"role": "assistant", "content": answer.text(), "tool_calls": calls});
    add_private(&mut message, &private);
    let choice = json!({"index": 0, "message": message, "finish_reason": reason});
    json!({"choices": [choice], "usage": usage})
}

/// Adds the reasoning and the provider state of a model answer to the answer's message. The requester sends them back in the next request.
fn add_private(message: &mut Value, private: &[&Part]) {
    if let (Value::Object(fields), false) = (message, private.is_empty()) {
        fields.insert(PARTS.to_owned(), json!(private));
    }
}

fn call(call: &ToolCall) -> Value {
    // The arguments are passed on unchanged, even if they are invalid, so that the requester can report the error to the model.
    let function = json!({"name": call.name, "arguments": call.arguments.text()});
    json!({"id": call.id, "type": "function", "function": function})
}
