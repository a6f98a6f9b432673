//! Streamed answers: the wait for the first content before the caller receives the stream, and the outcome of the rest of the stream.

use super::driver::{Answered, Attempt, Entry};
use crate::agent::{AnsweredBy, ChatEvent, ChatRequest, ModelError};
use crate::clock::{later, within};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use std::collections::VecDeque;
use tokio::time::Instant;

/// A streamed answer whose first content has arrived.
pub(super) struct Opened {
    /// The events up to the first content.
    first: Vec<ChatEvent>,
    rest: BoxStream<'static, Result<ChatEvent, ModelError>>,
    started: Instant,
}

/// Opens a streamed answer of a model, and waits for its first content.
pub(super) fn open<'a>(
    entry: &'a Entry,
    request: &'a ChatRequest,
) -> BoxFuture<'a, Result<Opened, ModelError>> {
    let started = Instant::now();
    let policy = entry.policy;
    let limit = policy.first_event_timeout.min(policy.total_timeout);
    let opened = async move {
        let mut rest = entry.model.stream(request).await?;
        let mut usage = None;
        loop {
            let incomplete = || ModelError::Unavailable("the answer is incomplete".into());
            let event = rest.next().await.ok_or_else(incomplete)??;
            match event {
                // The last event with the usage counts, so the earlier ones are not retained.
                ChatEvent::Usage(_) => usage = Some(event),
                ChatEvent::AnsweredBy(_) => {}
                ChatEvent::Text(text) if text.is_empty() => {}
                ChatEvent::Text(_)
                | ChatEvent::ToolCall(_)
                | ChatEvent::Reasoning(_)
                | ChatEvent::Opaque(_)
                | ChatEvent::End(_) => {
                    let first = usage.into_iter().chain([event]).collect();
                    return Ok(Opened {
                        first,
                        rest,
                        started,
                    });
                }
            }
        }
    };
    let timed_out = || Err(ModelError::TimedOut { to: "answer" });
    async move { within(limit, opened).await.unwrap_or_else(timed_out) }.boxed()
}

/// Returns the stream for the caller. Its first event names the model that answers.
pub(super) fn stream(
    answered: Answered<Opened>,
) -> BoxStream<'static, Result<ChatEvent, ModelError>> {
    let Answered {
        answer,
        attempt,
        answered_by,
    } = answered;
    let deadline = later(answer.started, attempt.policy().total_timeout);
    let streamed = Streamed {
        ready: first_events(answered_by, answer.first),
        rest: answer.rest,
        attempt,
        deadline,
        has_ended: false,
    };
    stream::unfold(streamed, Streamed::next).fuse().boxed()
}

fn first_events(answered_by: AnsweredBy, first: Vec<ChatEvent>) -> VecDeque<ChatEvent> {
    let answered_by = ChatEvent::AnsweredBy(answered_by);
    [answered_by].into_iter().chain(first).collect()
}

/// A streamed answer that the caller receives.
struct Streamed {
    ready: VecDeque<ChatEvent>,
    rest: BoxStream<'static, Result<ChatEvent, ModelError>>,
    attempt: Attempt,
    deadline: Instant,
    /// If `true`, the answer is complete or has failed.
    has_ended: bool,
}

impl Streamed {
    async fn next(mut self) -> Option<(Result<ChatEvent, ModelError>, Self)> {
        if let Some(event) = self.ready.pop_front() {
            self.record(&event);
            return Some((Ok(event), self));
        }
        if self.has_ended {
            let core = self.attempt.core();
            // The attempt counts its tokens when it is dropped.
            drop(self);
            core.sync().await;
            return None;
        }
        let item = loop {
            let remaining = self.deadline.saturating_duration_since(Instant::now());
            let item = within(remaining, self.rest.next()).await;
            match item {
                Some(Some(Ok(ChatEvent::AnsweredBy(_)))) => {}
                Some(Some(item)) => break item,
                Some(None) => {
                    let error = ModelError::Unavailable("the answer is incomplete".into());
                    break Err(error);
                }
                None => break Err(ModelError::TimedOut { to: "continue" }),
            }
        };
        match &item {
            Ok(event) => self.record(event),
            Err(error) => {
                self.attempt.failed(error);
                self.has_ended = true;
            }
        }
        Some((item, self))
    }

    /// Records the token usage and the end of the answer.
    fn record(&mut self, event: &ChatEvent) {
        match event {
            ChatEvent::Usage(usage) => self.attempt.usage = *usage,
            ChatEvent::End(_) => {
                self.attempt.succeeded();
                self.has_ended = true;
            }
            ChatEvent::Text(_)
            | ChatEvent::ToolCall(_)
            | ChatEvent::Reasoning(_)
            | ChatEvent::Opaque(_)
            | ChatEvent::AnsweredBy(_) => {}
        }
    }
}
