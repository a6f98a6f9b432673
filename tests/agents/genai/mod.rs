//! Models of providers with protocols of their own, against a server on loopback that speaks those of Anthropic, Gemini
//! and Ollama, and misbehaves on command.

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

/// The protocols that the server speaks.
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

/// What a model makes of an answer of the server.
async fn answer(provider: &str, reply: Reply) -> Result<ChatResponse, ModelError> {
    let server = Server::start(reply).await;
    let answer = client(provider, &server).chat(&hello()).await;
    assert_eq!(server.seen().len(), 1, "nothing is tried again");
    answer
}
