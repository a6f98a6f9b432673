//! The OpenAI-compatible client, against a loopback server that implements the protocol and fails on demand.

mod embeddings;
mod failures;
mod requests;
mod secrets;
mod streams;

use serde_json::{Value, json};
use universal_executor::agent::{
    ChatMessage, ChatRequest, ChatResponse, ModelError, OpenAiCompatible, OpenAiCompatibleBuilder,
    Secret,
};

use crate::server::Server;

const KEY: &str = "sk-planted-4711";

fn client(server: &Server) -> OpenAiCompatible {
    builder(server).build().unwrap()
}

fn builder(server: &Server) -> OpenAiCompatibleBuilder {
    OpenAiCompatible::builder(server.base_url())
        .key(Secret::new(KEY))
        .model("tiny")
}

fn hello() -> ChatRequest {
    ChatRequest::new(vec![ChatMessage::user("Hello")])
}

/// Returns a complete response with this text.
fn completion(text: &str) -> Value {
    json!({
        "id": "1", "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    })
}

async fn streamed(
    model: &OpenAiCompatible,
    request: &ChatRequest,
) -> Result<ChatResponse, ModelError> {
    use universal_executor::agent::ChatModel;
    ChatResponse::collect(model.stream(request).await?).await
}
