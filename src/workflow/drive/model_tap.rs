//! Chat model with the settings of a workflow definition. The model reports its requests and answers as events.

use super::event::{Emitter, StepEventKind};
use crate::agent::compaction::CostCallback;
use crate::agent::{ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelError};
use crate::workflow::{ModelSpec, StepPath};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use std::sync::Arc;

/// A model that applies the settings in `models` to requests, and reports requests and answers to the receiver of the run's
/// events.
pub(super) struct TappedModel {
    pub(super) model: Arc<dyn ChatModel>,
    /// Settings of the model in the section `models`, or `None` for the default model of the services.
    pub(super) spec: Option<ModelSpec>,
    /// Receiver of the events of the model's requests and answers, or `None` if the run has no receiver.
    pub(super) listener: Option<Listener>,
}

/// Sender of the events of a step, or of an agent in a step, to the receiver of the flow run's events. Adds the step's path to
/// each event.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) emitter: Arc<Emitter>,
    pub(super) path: StepPath,
}

impl Listener {
    pub(super) fn report(&self, kind: StepEventKind) {
        self.emitter.send(&self.path, kind);
    }

    /// Returns a callback that reports the token usage of conversation summaries as events of the step. The callback reports a
    /// request and its usage, but no text, because a summary is not an answer of the step.
    pub(super) fn of_cost(self) -> CostCallback {
        Arc::new(move |usage| {
            self.report(StepEventKind::Asked);
            self.report(StepEventKind::Usage(usage));
        })
    }

    fn report_chat_event(&self, event: &ChatEvent) {
        match event {
            ChatEvent::Text(text) => self.report(StepEventKind::Text(text.clone())),
            ChatEvent::Usage(usage) => self.report(StepEventKind::Usage(*usage)),
            // The call itself is an event when it starts. Reasoning is not part of the answer.
            ChatEvent::ToolCall(_)
            | ChatEvent::Reasoning(_)
            | ChatEvent::Opaque(_)
            | ChatEvent::AnsweredBy(_)
            | ChatEvent::End(_) => {}
        }
    }
}

impl TappedModel {
    fn request(&self, request: &ChatRequest) -> ChatRequest {
        let mut request = request.clone();
        let Some(spec) = &self.spec else {
            return request;
        };
        request.model = request.model.or_else(|| spec.model.clone());
        request.temperature = request.temperature.or(spec.temperature);
        let most = spec.max_tokens;
        let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        request.max_output_tokens = request.max_output_tokens.or(most);
        request
    }
}

#[async_trait]
impl ChatModel for TappedModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let request = self.request(request);
        let Some(listener) = &self.listener else {
            return self.model.chat(&request).await;
        };
        listener.report(StepEventKind::Asked);
        let events = self.model.stream(&request).await?;
        let tapped = events.inspect(|event| {
            if let Ok(event) = event {
                listener.report_chat_event(event);
            }
        });
        ChatResponse::collect(tapped).await
    }

    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        self.model.stream(&self.request(request)).await
    }
}
