use super::Definition;
use super::cx::{RunCx, WorkloadMessage};
use super::event::WorkloadEventKind;
use super::scope::{CloseError, WorkloadScope};
use super::session::{Conversation, LogEntry};
use super::turn_emitter::TurnEmitter;
use super::turn_status::TurnStatus;
use crate::agent;
use crate::error::BoxError;
use crate::executor::ExecutionContext;
use crate::model::display_text;
use crate::services::Services;
use crate::store::BreadcrumbStore;
use crate::workflow::MayRetry;
use futures::{FutureExt as _, StreamExt as _};
use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The outcome of one turn of a workload.
///
/// `SupervisedTurn::outcome` of the feature `workloads` returns it. The same result is the last
/// event of the turn.
#[derive(Debug)]
#[non_exhaustive]
pub struct TurnOutcome {
    /// The name of the run that executed the workload turn.
    pub run: Arc<str>,
    /// The status of the workload turn at its end.
    pub status: TurnStatus,
    /// The workloads that could not be closed after the turn.
    ///
    /// `None` if all were closed. The status of the turn does not depend on it.
    pub not_closed: Option<CloseError>,
    /// The error that ended the turn's run, or `None` if the workload itself reported the end.
    pub(super) cause: Option<BoxError>,
    /// The panic with which the workload ended the turn's run.
    pub(super) panic: Option<Panic>,
}

/// The payload of a panic of a workload.
#[derive(Debug)]
pub(super) struct Panic(Mutex<Box<dyn Any + Send>>);

impl Panic {
    /// Panics in the caller of the turn, with the payload of the workload's panic.
    pub(super) fn resume(self) -> ! {
        resume_unwind(self.0.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TurnOutcome {
    /// Creates the outcome of a turn for which no workload was created.
    pub(super) fn of(run: &Arc<str>, status: TurnStatus) -> Self {
        Self {
            run: Arc::clone(run),
            status,
            not_closed: None,
            cause: None,
            panic: None,
        }
    }

    /// Creates the outcome of a turn that an error ended before a workload was created.
    pub(super) fn of_error(run: &Arc<str>, error: BoxError) -> Self {
        let status = TurnStatus::of_error(&error);
        Self {
            cause: Some(error),
            ..Self::of(run, status)
        }
    }

    /// Returns the output of a completed turn as text, or `None` if the turn did not complete. A string is returned as
    /// it is, any other value as JSON.
    ///
    /// Use it to answer a chat message. For structured output, match on [`status`](Self::status).
    #[must_use]
    pub fn final_text(&self) -> Option<String> {
        match &self.status {
            TurnStatus::Completed { output } => Some(display_text(output)),
            TurnStatus::Failed { .. } | TurnStatus::Suspended { .. } | TurnStatus::Cancelled => {
                None
            }
        }
    }
}

/// The inputs of a turn to run: definition, services, store, session and message.
pub(super) struct PreparedTurn<'t> {
    pub(super) definition: &'t dyn Definition,
    pub(super) services: &'t Services,
    pub(super) store: &'t Arc<dyn BreadcrumbStore>,
    pub(super) context: ExecutionContext,
    /// The session whose conversation the workload turn continues.
    pub(super) session: Option<TurnSession>,
    pub(super) message: WorkloadMessage,
    pub(super) cancellation: TurnCancellation<'t>,
}

/// The session of a turn, with the number of session log entries at the start of the turn.
#[derive(Clone, Debug)]
pub(super) struct TurnSession {
    pub(super) conversation: Conversation,
    /// Number of entries in the session log when the turn started.
    pub(super) entries_at_start: u64,
}

/// Cancellation of a turn from outside its workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnCancellation<'t> {
    pub(super) stop: &'t CancellationToken,
    /// Maximum time that a cancelled turn waits for its write to the session log, and that the workload may take to
    /// close.
    pub(super) close_timeout: Duration,
}

/// The result of a workload turn's run, before its messages are added to the session log.
struct RunResult {
    end: WorkloadEventKind,
    /// The chat messages of the run, to be added to the session log.
    messages: Vec<agent::ChatMessage>,
    /// The error that ended the turn's run, or `None` if the workload itself reported the end.
    cause: Option<BoxError>,
}

/// The result of a turn that was cancelled, panicked or failed before its workload reported the last event.
struct IncompleteRun {
    status: TurnStatus,
    /// The error of the store or the execution context that ended the workload turn. `None` if the turn ended for
    /// another reason.
    cause: Option<BoxError>,
    panic: Option<Panic>,
}

impl IncompleteRun {
    fn of_panic(panic: Box<dyn Any + Send>) -> Self {
        Self {
            panic: Some(Panic(Mutex::new(panic))),
            ..TurnStatus::panicked().into()
        }
    }

    fn of_error(error: BoxError) -> Self {
        let status = TurnStatus::of_error(&error);
        Self {
            cause: Some(error),
            ..status.into()
        }
    }
}

impl From<TurnStatus> for IncompleteRun {
    fn from(status: TurnStatus) -> Self {
        Self {
            status,
            cause: None,
            panic: None,
        }
    }
}

impl From<TurnStatus> for Box<IncompleteRun> {
    fn from(status: TurnStatus) -> Self {
        Self::new(status.into())
    }
}

impl PreparedTurn<'_> {
    /// Runs the turn: creates the workload, emits its events, adds the messages to the session, and closes the workload
    /// in any case. The caller emits the end of the turn.
    pub(super) async fn run(self, emitter: &mut TurnEmitter) -> TurnOutcome {
        let cancellation = self.cancellation;
        let mut scope = WorkloadScope::default().close_timeout(cancellation.close_timeout);
        let run = Arc::clone(emitter.run());
        let session = self.session.clone();
        let work = AssertUnwindSafe(self.work(&mut scope, emitter)).catch_unwind();
        let result = tokio::select! {
            biased;
            () = cancellation.stop.cancelled() => Err(TurnStatus::Cancelled.into()),
            result = work => result.unwrap_or_else(|panic| Err(Box::new(IncompleteRun::of_panic(panic)))),
        };
        let (result, cause, panic) = match result {
            Ok(RunResult {
                end,
                messages,
                cause,
            }) => (Ok((end, messages)), cause, None),
            Err(incomplete_run) => {
                let IncompleteRun {
                    status,
                    cause,
                    panic,
                } = *incomplete_run;
                (Err(status), cause, panic)
            }
        };
        let saved = AssertUnwindSafe(save_turn(result, session.as_ref(), &run, cancellation))
            .catch_unwind();
        let status = saved.await.unwrap_or_else(|_| TurnStatus::panicked());
        let not_closed = scope.close().await.err();
        if let Some(error) = &not_closed {
            error.log(Some(&run));
        }
        TurnOutcome {
            run,
            status,
            not_closed,
            cause,
            panic,
        }
    }

    async fn work(
        self,
        scope: &mut WorkloadScope,
        emitter: &mut TurnEmitter,
    ) -> Result<RunResult, Box<IncompleteRun>> {
        let workload = scope
            .instantiate(self.definition, self.services, self.store)
            .map_err(|error| {
                TurnStatus::failed("not_made", error.to_string(), MayRetry::Elsewhere)
            })?;
        let mut cx = RunCx::new(Arc::clone(emitter.run()), self.context);
        if let Some(parent) = emitter.parent() {
            cx = cx.parent(Arc::clone(parent));
        }
        if let Some(session) = self.session {
            cx = cx.session(session.conversation);
        }
        let cx = cx.listeners(emitter.sink().clone());
        let run_cx = cx.clone();
        let is_from_user = cx.context().is_from_user().await;
        let is_from_user =
            is_from_user.map_err(|error| Box::new(IncompleteRun::of_error(error.into())))?;
        // Data of this turn is data in later turns too.
        let input = match self.message.content.as_str() {
            Some(text) if is_from_user => agent::ChatMessage::user(text),
            Some(_) | None => agent::ChatMessage::data(self.message.content.clone()),
        };
        let mut events = workload.run(cx, Some(self.message));
        let mut end = WorkloadEventKind::Started;
        while let Some(event) = events.next().await {
            end = event.kind.clone();
            emitter.emit(event);
        }
        drop(events);
        let mut messages = vec![input];
        messages.extend(run_cx.take_tool_messages());
        let cause = run_cx.take_cause();
        Ok(RunResult {
            end,
            messages,
            cause,
        })
    }
}

/// Adds the messages of a completed turn to the session log, and returns the final status of the turn.
async fn save_turn(
    result: Result<(WorkloadEventKind, Vec<agent::ChatMessage>), TurnStatus>,
    session: Option<&TurnSession>,
    run: &str,
    cancellation: TurnCancellation<'_>,
) -> TurnStatus {
    let (status, mut messages) = match result {
        Ok((end, messages)) => (TurnStatus::of_end(end), messages),
        Err(status) => return status,
    };
    if let (TurnStatus::Completed { output }, Some(session)) = (&status, session) {
        messages.push(agent::ChatMessage::assistant(display_text(output)));
        let saved = session
            .save_entry(run, LogEntry::Said { messages }, cancellation)
            .await;
        if let Err(unsaved) = saved {
            return unsaved;
        }
    }
    status
}

impl TurnSession {
    /// Adds the entry of a turn to the session log. Once started, the write is interrupted only if the turn is stopped
    /// and the store exceeds the timeout. Returns the status of a turn whose entry could not be added.
    pub(super) async fn save_entry(
        &self,
        run: &str,
        entry: LogEntry,
        cancellation: TurnCancellation<'_>,
    ) -> Result<(), TurnStatus> {
        let TurnCancellation {
            stop,
            close_timeout,
        } = cancellation;
        let log = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(TurnStatus::Cancelled),
            log = self.conversation.load() => log.map_err(TurnStatus::of_session)?,
        };
        // A compaction may have changed the log in the meantime, but the messages are the same.
        if log.added() != self.entries_at_start {
            return Err(TurnStatus::of_session(self.conversation.conflict()));
        }
        let too_long = async {
            stop.cancelled().await;
            sleep(close_timeout).await;
        };
        tokio::select! {
            biased;
            saved = self.conversation.append(&log, run, entry) => saved.map_err(TurnStatus::of_session),
            () = too_long => Err(TurnStatus::failed(
                "session",
                "the store timed out, so the session may or may not contain the turn",
                MayRetry::Never,
            )),
        }
    }
}
