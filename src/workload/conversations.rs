//! The conversations of the agents in a run: each agent receives its earlier messages, and its new messages are saved.

use super::cx::RunCx;
use super::event::WorkloadEventKind;
use super::session::{Conversation, Log, LogEntry, compact_log, json_bytes, replay};
use crate::agent::compaction::CostCallback;
use crate::agent::{
    ChatMessage, Part, Provider, ProviderEvent, ProviderSession, ProviderTask, Speaker, ToolCall,
};
use crate::error::{BoxError, excerpt, permanent};
use crate::machine::{Answer, ResultDelivery, ToolArguments, ToolResult};
use crate::model::{Json, display_text};
use crate::request::agents;
use crate::session_log::{SessionError, digest};
use crate::workflow::{Answered, Assembly, Conversations, History, StepPath};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum size in bytes of one saved tool result. A session saves tool results for its later turns.
const MAX_RESULT_BYTES: usize = 16 << 10;

/// Maximum size in bytes of the tool calls and results that are saved for one agent that has not ended yet. The newest are
/// retained. They are saved next to the provider's conversation, and a log entry has room for them with the question and the
/// answer.
const MAX_TOOL_MESSAGES_BYTES: usize = 256 << 10;

/// Maximum number of attempts to add the answer of an agent to its conversation. If several answers are added at the
/// same time, one of them succeeds with each attempt.
const APPEND_ATTEMPTS: usize = 64;

/// The conversations of the agents in one workload run.
#[derive(Clone)]
pub(super) struct RunConversations {
    session: Conversation,
    cx: RunCx,
    assembly: Arc<Assembly>,
    /// Path of the agent step whose conversation is that of the whole session, or `None` if the run starts with a flow.
    speaker: Option<StepPath>,
    /// Digest of the name of the run that executes the workload turn, which identifies the turn in session logs.
    turn: String,
    /// The text of the user's message that the run processes. Any other input of an agent is data.
    user_message: Option<Arc<str>>,
}

impl RunConversations {
    pub(super) fn new(
        session: Conversation,
        cx: RunCx,
        assembly: Arc<Assembly>,
        (speaker, user_message): (Option<StepPath>, Option<Arc<str>>),
    ) -> Self {
        Self {
            turn: digest(&[cx.run()]),
            user_message,
            session,
            cx,
            assembly,
            speaker,
        }
    }

    fn is_speaker(&self, path: &StepPath) -> bool {
        self.speaker.as_ref() == Some(path)
    }

    /// Returns the earlier messages that an agent receives: the session's conversation, then the agent's own
    /// conversation. `history` limits their number.
    async fn earlier_messages(
        &self,
        path: &StepPath,
        history: History,
    ) -> Result<Vec<ChatMessage>, BoxError> {
        let limit = match history {
            History::None => return Ok(Vec::new()),
            History::All => u64::MAX,
            History::Last(limit) => limit,
        };
        let log = self.session.load().await?;
        let own = match self.is_speaker(path) {
            true => None,
            false => Some(self.session.load_child(path, &log).await?),
        };
        let mut shown = self.messages(&self.session, log, path).await?;
        if let Some(own) = own {
            let child = self.session.child(path);
            shown.extend(self.messages(&child, own, path).await?);
        }
        Ok(replay::last(shown, limit))
    }

    async fn messages(
        &self,
        session: &Conversation,
        log: Log,
        path: &StepPath,
    ) -> Result<Vec<ChatMessage>, BoxError> {
        // After a crash, a turn starts from the same messages as its first attempt, without a compaction.
        let is_repeated = log.turns().any(|turn| turn == self.turn);
        let policy = self.assembly.workflow().policies.compaction.as_ref();
        let Some(policy) = policy.filter(|_| !is_repeated) else {
            return Ok(log.without(&self.turn).messages());
        };
        let (model, guardrails) = (self.assembly.summariser(), self.assembly.guardrails());
        let (emitter, at) = (self.cx.emitter.clone(), path.clone());
        let report_usage: CostCallback = Arc::new(move |usage| {
            emitter.emit(&at, WorkloadEventKind::Asked);
            emitter.emit(&at, WorkloadEventKind::Usage(usage));
        });
        let (log, event) =
            compact_log(session, log, policy, model, guardrails, &report_usage).await?;
        if let Some(event) = event {
            self.cx.emitter.emit(path, event);
        }
        Ok(log.messages())
    }
}

#[async_trait]
impl Conversations for RunConversations {
    fn around(
        &self,
        path: &StepPath,
        history: History,
        provider: Arc<dyn Provider>,
    ) -> Arc<dyn Provider> {
        Arc::new(HistoryProvider {
            conversations: self.clone(),
            path: path.clone(),
            history,
            provider,
        })
    }

    async fn answered(&self, path: &StepPath, answered: Answered<'_>) -> Result<(), BoxError> {
        let tool_messages = match answered.session {
            Some(saved) => {
                saved
                    .parse::<SavedSession>()
                    .map_err(permanent)?
                    .tool_messages
            }
            None => Vec::new(),
        };
        if self.is_speaker(path) {
            self.cx.set_tool_messages(tool_messages);
            return Ok(());
        }
        let texts = (answered.asked.as_str(), self.user_message.as_deref());
        let question = match texts {
            // A text that another agent wrote is data, also if it repeats the user.
            (Some(input), Some(message)) if input == message && answered.request.is_empty() => {
                ChatMessage::user(input)
            }
            (Some(_) | None, _) => ChatMessage::data(answered.asked.clone()),
        };
        let mut messages = vec![question];
        messages.extend(tool_messages);
        let answer = agents::answer_value(answered.answer);
        messages.push(ChatMessage::assistant(display_text(&answer)));
        let session = self.session.child(path);
        let entry = LogEntry::Said { messages };
        let (turn, part) = (self.cx.run(), answered.request);
        for _ in 0..APPEND_ATTEMPTS {
            let log = session.load().await?;
            match session.add(&log, turn, part, entry.clone()).await {
                Err(SessionError::Conflict { .. }) => {}
                added => return Ok(added?),
            }
        }
        Err(session.conflict().into())
    }

    fn is_over(&self, error: &BoxError) -> bool {
        let session_error = error.downcast_ref::<SessionError>();
        session_error.is_some_and(|error| match error {
            SessionError::Deleted { .. } | SessionError::Unreadable { .. } => true,
            SessionError::Conflict { .. } | SessionError::Store { .. } => false,
        })
    }
}

/// A model provider that adds the earlier messages of the session to the task of its agent.
struct HistoryProvider {
    conversations: RunConversations,
    path: StepPath,
    history: History,
    provider: Arc<dyn Provider>,
}

impl HistoryProvider {
    async fn with_history(&self, mut task: ProviderTask) -> Result<ProviderTask, BoxError> {
        let shown = self
            .conversations
            .earlier_messages(&self.path, self.history)
            .await?;
        // After the author's instructions, before the context and the message to answer.
        let mut messages = task.messages.iter();
        let at = messages.position(|message| message.speaker != Speaker::System);
        let at = at.unwrap_or(task.messages.len());
        task.messages.splice(at..at, shown);
        Ok(task)
    }
}

#[async_trait]
impl Provider for HistoryProvider {
    fn delivery(&self) -> ResultDelivery {
        self.provider.delivery()
    }

    fn asks_by_breadcrumb(&self) -> bool {
        self.provider.asks_by_breadcrumb()
    }

    async fn start(&self, task: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError> {
        let task = self.with_history(task).await?;
        let inner = self.provider.start(task).await?;
        let tool_messages = Vec::new();
        Ok(Box::new(RecordingSession {
            inner,
            tool_messages,
        }))
    }

    async fn resume(
        &self,
        task: ProviderTask,
        saved: Json,
    ) -> Result<Box<dyn ProviderSession>, BoxError> {
        let SavedSession {
            inner,
            tool_messages,
        } = saved.parse().map_err(permanent)?;
        let task = self.with_history(task).await?;
        let inner = self.provider.resume(task, inner).await?;
        Ok(Box::new(RecordingSession {
            inner,
            tool_messages,
        }))
    }
}

/// The saved state of a `RecordingSession` provider session: the state of the inner session, and the messages with the
/// agent's tool calls and their results.
#[derive(Deserialize, Serialize)]
struct SavedSession {
    inner: Json,
    #[serde(rename = "said")]
    tool_messages: Vec<ChatMessage>,
}

/// A session of an agent's model provider that also records the agent's tool calls and their results.
struct RecordingSession {
    inner: Box<dyn ProviderSession>,
    tool_messages: Vec<ChatMessage>,
}

#[async_trait]
impl ProviderSession for RecordingSession {
    async fn next(&mut self) -> Result<ProviderEvent, BoxError> {
        let event = self.inner.next().await?;
        if let ProviderEvent::Calls { calls, answer, .. } = &event {
            let calls = calls.iter().map(|call| {
                let arguments = match &call.arguments {
                    ToolArguments::Json(json) => json.to_string(),
                    ToolArguments::Unreadable { text, .. } => text.clone(),
                };
                ToolCall::new(call.id.to_string(), call.tool.as_str(), arguments)
            });
            let mut message = match answer {
                Some(answer) => answer.clone(),
                None => ChatMessage::calls("", calls.collect()),
            };
            // Later turns see the calls and the final answer, not the remarks in between.
            message.parts.retain(|part| !matches!(part, Part::Text(_)));
            self.tool_messages.push(message);
            truncate(&mut self.tool_messages, MAX_TOOL_MESSAGES_BYTES);
        }
        Ok(event)
    }

    async fn deliver(&mut self, results: Vec<ToolResult>) -> Result<(), BoxError> {
        let calls = self
            .tool_messages
            .iter()
            .rev()
            .find(|one| !one.tool_calls().is_empty());
        let calls = calls.cloned();
        self.tool_messages.extend(results.iter().map(|result| {
            let id = model_call_id(calls.as_ref(), &result.call_id.to_string());
            match &result.answer {
                Answer::Success(output) => {
                    let text = display_text(output);
                    ChatMessage::tool_result(id, excerpt(&text, MAX_RESULT_BYTES))
                }
                Answer::Error { code, message } => {
                    let text = format!("{code}: {message}");
                    ChatMessage::tool_error(id, excerpt(&text, MAX_RESULT_BYTES))
                }
            }
        }));
        truncate(&mut self.tool_messages, MAX_TOOL_MESSAGES_BYTES);
        self.inner.deliver(results).await
    }

    async fn tell(&mut self, message: String) -> Result<(), BoxError> {
        self.inner.tell(message).await
    }

    async fn answer(&mut self, answer: Answer) -> Result<(), BoxError> {
        self.inner.answer(answer).await
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }

    fn save(&self) -> Result<Json, BoxError> {
        let saved = SavedSession {
            inner: self.inner.save()?,
            tool_messages: self.tool_messages.clone(),
        };
        Ok(Json::from_text(serde_json::to_string(&saved)?)?)
    }
}

/// Converts the ID that a run gave a tool call to the ID that the model gave the call in its answer. The run's ID is the number
/// of the answer, a colon and the model's ID.
fn model_call_id(answer: Option<&ChatMessage>, id: &str) -> String {
    let calls = answer.map(ChatMessage::tool_calls).unwrap_or_default();
    let has = |id: &str| calls.iter().any(|call| call.id == id);
    match id.split_once(':') {
        Some((_, own)) if has(own) && !has(id) => own.to_owned(),
        Some(_) | None => id.to_owned(),
    }
}

/// Removes the oldest messages of an agent until the rest has at most `limit` bytes. The results of a removed call are
/// removed too.
fn truncate(messages: &mut Vec<ChatMessage>, limit: usize) {
    let mut size: usize = messages.iter().map(json_bytes).sum();
    let mut removed = 0;
    for message in &*messages {
        if size <= limit && message.speaker != Speaker::Tool {
            break;
        }
        size = size.saturating_sub(json_bytes(message));
        removed += 1;
    }
    messages.drain(..removed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_calls_of_an_agent_are_retained_with_their_results() {
        let round = |number: usize| {
            let id = number.to_string();
            let call = ToolCall::new(id.clone(), "page", json!({}));
            let page = ChatMessage::tool_result(id, "x".repeat(1_000));
            [ChatMessage::calls("", vec![call]), page]
        };
        let all: Vec<ChatMessage> = (0..10).flat_map(round).collect();

        for (limit, retained) in [(usize::MAX, 10), (5_000, 4), (1_300, 1), (500, 0)] {
            let mut messages = all.clone();
            truncate(&mut messages, limit);
            assert_eq!(
                messages,
                all.get(20 - 2 * retained..).unwrap_or_default(),
                "{limit}"
            );
        }
    }
}
