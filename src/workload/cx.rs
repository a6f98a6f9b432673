use super::event::WorkloadEventKind;
use super::session::Conversation;
use super::sink::Sink;
use super::stream::{EventStream, RunEmitter};
use crate::agent;
use crate::error::BoxError;
use crate::executor::ExecutionContext;
use crate::model::{Json, display_text};
use crate::workflow::StepPath;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// A message for a workload: the input of one turn.
///
/// A string converts to a message. The content of a message is the input of a flow.
///
/// ```
/// use universal_executor::workload::WorkloadMessage;
///
/// let message = WorkloadMessage::from("Hi").by("ann");
/// assert_eq!(message.text(), "Hi");
/// assert_eq!(message.from.as_deref(), Some("ann"));
/// ```
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkloadMessage {
    /// The content of the message to the workload: a string, or any other JSON value.
    pub content: Json,
    /// The name of the author of the message to the workload, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The name of the requested flow, or `None` to start the workload's default flow or agent.
    #[serde(skip)]
    pub(super) flow: Option<String>,
    /// If `true`, the progress of the run that the message starts is stored as breadcrumbs.
    #[serde(skip)]
    pub(super) stores_progress: bool,
    /// The text that the user wrote, if the content of the message to the workload has other data too.
    #[serde(skip)]
    pub(super) user_text: Option<String>,
}

impl WorkloadMessage {
    /// Creates a message for a workload, without an author.
    #[must_use]
    pub fn new(content: impl Into<Json>) -> Self {
        Self {
            content: content.into(),
            ..Self::default()
        }
    }

    /// Sets the name of the author of the message to the workload.
    #[must_use]
    pub fn by(mut self, name: impl Into<String>) -> Self {
        self.from = Some(name.into());
        self
    }

    /// Returns the content of the message to the workload as text: a string as it is, any other value as JSON.
    #[must_use]
    pub fn text(&self) -> String {
        display_text(&self.content)
    }
}

impl From<&str> for WorkloadMessage {
    fn from(text: &str) -> Self {
        Self::new(Value::from(text))
    }
}

impl From<String> for WorkloadMessage {
    fn from(text: String) -> Self {
        Self::new(Value::from(text))
    }
}

/// Handle with which a workload accesses its current run: the trigger, the session and the stream of events. A clone is another
/// handle on the same run.
///
/// A workload receives it in [`Workload::run`](super::Workload::run). It emits text with
/// [`say`](Self::say) and other events with [`tell`](Self::tell), and returns its stream with
/// [`stream`](Self::stream). A program that runs a [`Workload`](super::Workload) itself creates the
/// context with [`new`](Self::new).
#[derive(Clone, Debug)]
pub struct RunCx {
    context: ExecutionContext,
    session: Option<Conversation>,
    run: Arc<str>,
    pub(super) emitter: RunEmitter,
    tool_messages: Arc<Mutex<Vec<agent::ChatMessage>>>,
    /// The error that ended the workload run, or `None` if the workload itself reported the end.
    cause: Arc<Mutex<Option<BoxError>>>,
}

impl RunCx {
    /// Creates the context of a workload run, without a session.
    ///
    /// `context` has the trigger of the workload and the [state](ExecutionContext::with_resumed) of a suspended run
    /// that continues. It saves the progress of the run if it belongs to a run of an executor.
    #[must_use]
    pub fn new(run: impl Into<Arc<str>>, context: ExecutionContext) -> Self {
        let run = run.into();
        Self {
            emitter: RunEmitter::new(Arc::clone(&run), None),
            context,
            session: None,
            run,
            tool_messages: Arc::default(),
            cause: Arc::default(),
        }
    }

    /// Sets the outer run within which this workload run was started.
    #[must_use]
    pub fn parent(mut self, run: impl Into<Arc<str>>) -> Self {
        self.emitter = RunEmitter::new(Arc::clone(&self.run), Some(run.into()));
        self
    }

    /// Sets the listeners for the events of inner runs, which start within this workload run.
    pub(super) fn listeners(mut self, sink: Sink) -> Self {
        self.emitter.listeners = sink;
        self
    }

    /// Sets the session whose conversation the workload run continues.
    #[must_use]
    pub fn session(mut self, session: Conversation) -> Self {
        self.session = Some(session);
        self
    }

    /// Returns the name that identifies the workload run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the execution context of the workload run, for access to its trigger and for saving its progress.
    #[must_use]
    pub fn context(&self) -> &ExecutionContext {
        &self.context
    }

    /// Returns the session whose conversation the run continues, or `None` for a run without a session.
    ///
    /// Only the turn itself may add to the session while the turn runs. If another writer adds an entry, including the
    /// workload, the turn fails with a conflict.
    #[must_use]
    pub fn session_of(&self) -> Option<&Conversation> {
        self.session.as_ref()
    }

    /// Adds an event of a step to the event stream of the workload run. Waits while the buffer of the stream is full.
    /// Ignores start and end events, because the stream emits these itself.
    ///
    /// # Cancel safety
    /// If the future is dropped while it waits, the event is not emitted.
    pub async fn tell(&self, path: &StepPath, kind: WorkloadEventKind) {
        if !kind.is_end() && !kind.begins() {
            self.emitter.emit_with_backpressure(path, kind).await;
        }
    }

    /// Emits a further part of the text of the run's answer. Waits while the buffer of the stream is full.
    ///
    /// The output of the run is separate, and does not contain these parts.
    ///
    /// # Cancel safety
    /// If the future is dropped while it waits, the text is not emitted.
    pub async fn say(&self, text: impl Into<String>) {
        let kind = WorkloadEventKind::Text(text.into());
        self.tell(&StepPath::new(""), kind).await;
    }

    /// Returns the event stream of a workload run that executes the future `work`, in the form that
    /// [`Workload::run`](super::Workload::run) returns. The output of `work` is the last event.
    pub fn stream<'w>(
        &self,
        work: impl Future<Output = WorkloadEventKind> + Send + 'w,
    ) -> EventStream<'w> {
        EventStream::new(self.emitter.clone(), work)
    }

    /// Stores the run's tool calls and their results for the session log, where they follow the user's message.
    pub(super) fn set_tool_messages(&self, messages: Vec<agent::ChatMessage>) {
        *self
            .tool_messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = messages;
    }

    /// Creates the last event of a workload run that an error ended, and stores the error for the executor of the run.
    pub(super) fn fail(&self, error: BoxError) -> WorkloadEventKind {
        let end = WorkloadEventKind::of_error(&error);
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        end
    }

    pub(super) fn take_cause(&self) -> Option<BoxError> {
        self.cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    pub(super) fn take_tool_messages(&self) -> Vec<agent::ChatMessage> {
        std::mem::take(
            &mut *self
                .tool_messages
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}
