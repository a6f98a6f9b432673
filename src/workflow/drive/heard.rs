//! A model of which somebody hears what it says, and which writes no more than its definition lets it.

use super::event::{Emitter, StepEventKind};
use crate::agent::{ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelError};
use crate::workflow::StepPath;
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use std::sync::Arc;

pub(super) struct Heard {
    pub(super) model: Arc<dyn ChatModel>,
    pub(super) max_tokens: Option<u32>,
    /// None if nobody listens.
    pub(super) by: Option<Listener>,
}

/// Where something is told, and as happening where.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) emitter: Arc<Emitter>,
    pub(super) path: StepPath,
}

impl Listener {
    pub(super) fn tell(&self, kind: StepEventKind) {
        self.emitter.tell(&self.path, kind);
    }

    fn hear(&self, event: &ChatEvent) {
        match event {
            ChatEvent::Text(text) => self.tell(StepEventKind::Text(text.clone())),
            ChatEvent::Usage(usage) => self.tell(StepEventKind::Usage(*usage)),
            // Calls are told when they are made.
            ChatEvent::ToolCall(_) | ChatEvent::End(_) => {}
        }
    }
}

impl Heard {
    fn request(&self, request: &ChatRequest) -> ChatRequest {
        let mut request = request.clone();
        request.max_output_tokens = request.max_output_tokens.or(self.max_tokens);
        request
    }
}

#[async_trait]
impl ChatModel for Heard {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let request = self.request(request);
        let Some(by) = &self.by else {
            return self.model.chat(&request).await;
        };
        by.tell(StepEventKind::Asked);
        let events = self.model.stream(&request).await?;
        let heard = events.inspect(|event| {
            if let Ok(event) = event {
                by.hear(event);
            }
        });
        ChatResponse::collect(heard).await
    }

    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        self.model.stream(&self.request(request)).await
    }
}
