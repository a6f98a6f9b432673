//! The side that serves a model.

use super::read::request_of;
use crate::agent::providers::completions::thoughts::PARTS;
use crate::agent::{ChatModel, ChatResponse, Part, StopReason, ToolCall, Usage};
use crate::error::permanent;
use crate::model::Json;
use crate::tool::{JsonTool, json_tool};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A model as a tool, so that agents of other services reach it by breadcrumbs.
///
/// The input has the words of chat completions: `messages`, and if wanted `model`, `temperature`, `max_tokens`, `stop`,
/// `tools`, `tool_choice` and `response_format`; what else there is has no effect. The output has `content`,
/// `finish_reason` and `usage`; if the model calls tools, `choices` and `usage`, with the calls in
/// `choices[0].message.tool_calls`. Reasoning and state of the model are in `opaque_parts`, next to the content; a caller that
/// sends them back in the message of the answer keeps models working that need them between tool calls.
///
/// A call may take 120 s and its output 512 KiB, both of which can be set. It is idempotent: asking twice does no harm but
/// costs twice. So a request by a breadcrumb is tried again while the model is rate limited or unavailable, and what
/// waiting cannot mend is answered with an error.
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
    let description = "Asks a language model, in the words of chat completions.";
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

/// An answer as the output of a tool.
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

/// Adds the reasoning and the state of the model, which the caller sends back with its next request.
fn add_private(message: &mut Value, private: &[&Part]) {
    if let (Value::Object(fields), false) = (message, private.is_empty()) {
        fields.insert(PARTS.to_owned(), json!(private));
    }
}

fn call(call: &ToolCall) -> Value {
    // As the model wrote them, also if they are broken: whoever asked has to see that.
    let function = json!({"name": call.name, "arguments": call.arguments.text()});
    json!({"id": call.id, "type": "function", "function": function})
}
