use super::event::WorkloadEventKind;
use super::session::Conversation;
use super::sink::Sink;
use super::stream::{EventStream, Outlet};
use crate::agent;
use crate::error::BoxError;
use crate::executor::ExecutionContext;
use crate::model::{Json, display_text};
use crate::workflow::StepPath;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// What a workload is told.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkloadMessage {
    /// A text, or anything else that is JSON.
    pub content: Json,
    /// Who says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The flow to start, if a request names one.
    #[serde(skip)]
    pub(super) flow: Option<String>,
    /// If `true`, the progress of the run is stored as breadcrumbs.
    #[serde(skip)]
    pub(super) tells: bool,
    /// The words of the user, if the content has more than these.
    #[serde(skip)]
    pub(super) words: Option<String>,
}

impl WorkloadMessage {
    /// A message.
    #[must_use]
    pub fn new(content: impl Into<Json>) -> Self {
        Self {
            content: content.into(),
            ..Self::default()
        }
    }

    /// Sets who says it.
    #[must_use]
    pub fn by(mut self, name: impl Into<String>) -> Self {
        self.from = Some(name.into());
        self
    }

    /// Returns the content as text: a string as it is, any other value as JSON.
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

/// What a run of a workload works with. A clone is another handle on the same run.
#[derive(Clone, Debug)]
pub struct RunCx {
    context: ExecutionContext,
    session: Option<Conversation>,
    run: Arc<str>,
    pub(super) outlet: Outlet,
    said: Arc<Mutex<Vec<agent::ChatMessage>>>,
    /// The error that ended the run, if the workload did not end it.
    cause: Arc<Mutex<Option<BoxError>>>,
}

impl RunCx {
    /// What a run of this name works with, which belongs to no session.
    ///
    /// The context has what the workload is set off by, keeps its progress if it belongs to a run of an executor, and has the
    /// [state](ExecutionContext::with_resumed) that a suspended run goes on with.
    #[must_use]
    pub fn new(run: impl Into<Arc<str>>, context: ExecutionContext) -> Self {
        let run = run.into();
        Self {
            outlet: Outlet::new(Arc::clone(&run), None),
            context,
            session: None,
            run,
            said: Arc::default(),
            cause: Arc::default(),
        }
    }

    /// Sets the run that this one belongs to.
    #[must_use]
    pub fn parent(mut self, run: impl Into<Arc<str>>) -> Self {
        self.outlet = Outlet::new(Arc::clone(&self.run), Some(run.into()));
        self
    }

    /// Sets who hears of runs within this one.
    pub(super) fn listeners(mut self, sink: Sink) -> Self {
        self.outlet.listeners = sink;
        self
    }

    /// Sets the session whose conversation the run goes on with.
    #[must_use]
    pub fn session(mut self, session: Conversation) -> Self {
        self.session = Some(session);
        self
    }

    /// The name of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// What the workload is set off by, and what keeps its progress.
    #[must_use]
    pub fn context(&self) -> &ExecutionContext {
        &self.context
    }

    /// The session whose conversation the run goes on with; none if it stands alone. Only the turn itself adds to it while it runs:
    /// whatever else does, the workload included, makes it fail with a conflict.
    #[must_use]
    pub fn session_of(&self) -> Option<&Conversation> {
        self.session.as_ref()
    }

    /// Tells of something in a step, once there is room for it. That a run begins or ends is told by beginning or ending it, so
    /// that is not told.
    pub async fn tell(&self, path: &StepPath, kind: WorkloadEventKind) {
        if !kind.is_end() && !kind.begins() {
            self.outlet.tell_in_turn(path, kind).await;
        }
    }

    /// Tells more of the text of the answer, once there is room for it.
    pub async fn say(&self, text: impl Into<String>) {
        let kind = WorkloadEventKind::Text(text.into());
        self.tell(&StepPath::new(""), kind).await;
    }

    /// The stream of a run that this work is: what the workload returns. The work ends with the last event.
    pub fn stream<'w>(
        &self,
        work: impl Future<Output = WorkloadEventKind> + Send + 'w,
    ) -> EventStream<'w> {
        EventStream::new(self.outlet.clone(), work)
    }

    /// Keeps the calls of tools, and what they came to, for the session: they stand between the message and the answer.
    pub(super) fn keep(&self, messages: Vec<agent::ChatMessage>) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = messages;
    }

    /// Returns the last event of a run that an error ended, and keeps the error for the executor of the run.
    pub(super) fn broken(&self, error: BoxError) -> WorkloadEventKind {
        let end = WorkloadEventKind::of_error(&error);
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        end
    }

    pub(super) fn cause(&self) -> Option<BoxError> {
        self.cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    pub(super) fn kept(&self) -> Vec<agent::ChatMessage> {
        std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
