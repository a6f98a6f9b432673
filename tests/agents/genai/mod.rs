//! Models of providers with their own protocols, against a loopback server that implements the protocols of Anthropic, Gemini
//! and Ollama, and fails on demand.

mod agent;
mod failures;
mod requests;
mod secrets;
mod streams;
pub(crate) mod wire;

use universal_executor::agent::{
    ChatMessage, ChatModel, ChatRequest, ChatResponse, GenaiModel, GenaiModelBuilder, ModelError,
    Secret,
};

use crate::server::{Reply, Server};

const KEY: &str = "sk-planted-4711";

/// The providers whose protocols the server implements.
const PROVIDERS: [&str; 3] = ["anthropic", "gemini", "ollama"];

fn builder(provider: &str, server: &Server) -> GenaiModelBuilder {
    GenaiModel::builder(provider, "tiny")
        .base_url(server.base_url())
        .key(Secret::new(KEY))
}

fn client(provider: &str, server: &Server) -> GenaiModel {
    builder(provider, server).build().unwrap()
}

fn hello() -> ChatRequest {
    ChatRequest::new(vec![ChatMessage::user("Hello")])
}

/// Returns the result of a model for one reply of the server.
async fn answer(provider: &str, reply: Reply) -> Result<ChatResponse, ModelError> {
    let server = Server::start(reply).await;
    let answer = client(provider, &server).chat(&hello()).await;
    assert_eq!(server.requests().len(), 1, "the client must not retry");
    answer
}
