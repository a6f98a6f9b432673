use super::Definition;
use super::cx::{RunCx, WorkloadMessage};
use super::event::WorkloadEventKind;
use super::scope::{CloseError, WorkloadScope};
use super::session::{Conversation, LogEntry};
use super::telling::Telling;
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
    /// The name of the turn's run.
    pub run: Arc<str>,
    /// The status of the turn at its end.
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
    /// Resumes the panic of a workload in the caller of the turn.
    pub(super) fn resume(self) -> ! {
        resume_unwind(self.0.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TurnOutcome {
    /// Returns the outcome of a turn for which no workload was created.
    pub(super) fn of(run: &Arc<str>, status: TurnStatus) -> Self {
        Self {
            run: Arc::clone(run),
            status,
            not_closed: None,
            cause: None,
            panic: None,
        }
    }

    /// Returns the outcome of a turn that an error ended before a workload was created.
    pub(super) fn broken(run: &Arc<str>, error: BoxError) -> Self {
        let status = TurnStatus::of_error(&error);
        Self {
            cause: Some(error),
            ..Self::of(run, status)
        }
    }

    /// Returns the output of a completed turn as text: a string as it is, any other value as JSON. Returns `None` for a
    /// turn that did not complete.
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
pub(super) struct TurnOf<'t> {
    pub(super) definition: &'t dyn Definition,
    pub(super) services: &'t Services,
    pub(super) store: &'t Arc<dyn BreadcrumbStore>,
    pub(super) context: ExecutionContext,
    /// The session whose conversation the turn continues.
    pub(super) session: Option<Place>,
    pub(super) message: WorkloadMessage,
    pub(super) halt: Halt<'t>,
}

/// The session of a turn, with the number of entries at the start of the turn.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) session: Conversation,
    /// Number of entries in the session when the turn started.
    pub(super) added: u64,
}

/// Cancellation of a turn from outside its workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halt<'t> {
    pub(super) stop: &'t CancellationToken,
    /// Maximum time that a cancelled turn waits for work that must not be interrupted.
    pub(super) patience: Duration,
}

/// The result of a turn's run, before its messages are added to the session.
struct Ran {
    end: WorkloadEventKind,
    /// The messages of the run, which the session stores.
    said: Vec<agent::ChatMessage>,
    /// The error that ended the turn's run, or `None` if the workload itself reported the end.
    cause: Option<BoxError>,
}

/// The result of a turn whose workload did not run to its end.
struct NotRun {
    status: TurnStatus,
    /// The error that ended the turn, from the store or the context. `None` if the turn ended for another reason.
    cause: Option<BoxError>,
    panic: Option<Panic>,
}

impl NotRun {
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

impl From<TurnStatus> for NotRun {
    fn from(status: TurnStatus) -> Self {
        Self {
            status,
            cause: None,
            panic: None,
        }
    }
}

impl From<TurnStatus> for Box<NotRun> {
    fn from(status: TurnStatus) -> Self {
        Self::new(status.into())
    }
}

impl TurnOf<'_> {
    /// Runs the turn: creates the workload, emits its events, adds the messages to the session, and closes the workload
    /// in any case. The caller emits the end of the turn.
    pub(super) async fn run(self, telling: &mut Telling) -> TurnOutcome {
        let halt = self.halt;
        let mut scope = WorkloadScope::default().close_timeout(halt.patience);
        let run = Arc::clone(telling.run());
        let place = self.session.clone();
        let work = AssertUnwindSafe(self.work(&mut scope, telling)).catch_unwind();
        let ran = tokio::select! {
            biased;
            () = halt.stop.cancelled() => Err(TurnStatus::Cancelled.into()),
            ran = work => ran.unwrap_or_else(|panic| Err(Box::new(NotRun::of_panic(panic)))),
        };
        let (ran, cause, panic) = match ran {
            Ok(Ran { end, said, cause }) => (Ok((end, said)), cause, None),
            Err(not_run) => {
                let NotRun {
                    status,
                    cause,
                    panic,
                } = *not_run;
                (Err(status), cause, panic)
            }
        };
        let settled = AssertUnwindSafe(settled(ran, place.as_ref(), &run, halt)).catch_unwind();
        let status = settled.await.unwrap_or_else(|_| TurnStatus::panicked());
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
        telling: &mut Telling,
    ) -> Result<Ran, Box<NotRun>> {
        let workload = scope
            .instantiate(self.definition, self.services, self.store)
            .map_err(|error| {
                TurnStatus::failed("not_made", error.to_string(), MayRetry::Elsewhere)
            })?;
        let mut cx = RunCx::new(Arc::clone(telling.run()), self.context);
        if let Some(parent) = telling.parent() {
            cx = cx.parent(Arc::clone(parent));
        }
        if let Some(place) = self.session {
            cx = cx.session(place.session);
        }
        let cx = cx.listeners(telling.sink().clone());
        let kept = cx.clone();
        let is_from_user = cx.context().is_from_user().await;
        let is_from_user =
            is_from_user.map_err(|error| Box::new(NotRun::of_error(error.into())))?;
        // Data of this turn is data in later turns too.
        let asked = match self.message.content.as_str() {
            Some(text) if is_from_user => agent::ChatMessage::user(text),
            Some(_) | None => agent::ChatMessage::data(self.message.content.clone()),
        };
        let mut events = workload.run(cx, Some(self.message));
        let mut end = WorkloadEventKind::Started;
        while let Some(event) = events.next().await {
            end = event.kind.clone();
            telling.tell(event);
        }
        drop(events);
        let mut said = vec![asked];
        said.extend(kept.kept());
        let cause = kept.cause();
        Ok(Ran { end, said, cause })
    }
}

/// Returns the status of a turn after its messages were added to the session.
async fn settled(
    ran: Result<(WorkloadEventKind, Vec<agent::ChatMessage>), TurnStatus>,
    place: Option<&Place>,
    run: &str,
    halt: Halt<'_>,
) -> TurnStatus {
    let (status, mut messages) = match ran {
        Ok((end, said)) => (TurnStatus::of_end(end), said),
        Err(status) => return status,
    };
    if let (TurnStatus::Completed { output }, Some(place)) = (&status, place) {
        messages.push(agent::ChatMessage::assistant(display_text(output)));
        let kept = place.keep(run, LogEntry::Said { messages }, halt).await;
        if let Err(not_kept) = kept {
            return not_kept;
        }
    }
    status
}

impl Place {
    /// Adds the entry of a turn to the session. Once started, the write is interrupted only if the turn is stopped and
    /// the store exceeds the timeout. Returns the status of a turn whose entry could not be added.
    pub(super) async fn keep(
        &self,
        run: &str,
        entry: LogEntry,
        halt: Halt<'_>,
    ) -> Result<(), TurnStatus> {
        let Halt { stop, patience } = halt;
        let log = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(TurnStatus::Cancelled),
            log = self.session.load() => log.map_err(TurnStatus::of_session)?,
        };
        // A compaction may have changed the log in the meantime, but the messages are the same.
        if log.added() != self.added {
            return Err(TurnStatus::of_session(self.session.conflict()));
        }
        let too_long = async {
            stop.cancelled().await;
            sleep(patience).await;
        };
        tokio::select! {
            biased;
            kept = self.session.append(&log, run, entry) => kept.map_err(TurnStatus::of_session),
            () = too_long => Err(TurnStatus::failed(
                "session",
                "the store timed out, so the session may or may not contain the turn",
                MayRetry::Never,
            )),
        }
    }
}
