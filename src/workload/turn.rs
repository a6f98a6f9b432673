use super::arena::{Arena, CloseError};
use super::cx::{Message, RunCx, text_of};
use super::event::{WorkloadEvent, WorkloadEventKind};
use super::session::{LogEntry, Session};
use super::{Definition, Deps};
use crate::agent;
use crate::error::BoxError;
use crate::executor::ExecutionContext;
use crate::model::Json;
use crate::store::Wake;
use crate::workflow::{MayRetry, StepFailure};
use futures::{FutureExt as _, StreamExt as _};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// What a turn came to.
#[derive(Debug)]
#[non_exhaustive]
pub struct TurnOutcome {
    /// The run.
    pub run: Arc<str>,
    /// How it ended.
    pub status: TurnStatus,
    /// What could not be closed after it.
    pub not_closed: Option<CloseError>,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TurnStatus {
    /// It came to something.
    Completed {
        /// What it returned, else the last result of its steps.
        output: Json,
    },
    /// It failed.
    Failed {
        /// What went wrong.
        failure: StepFailure,
        /// Whether it may go better another time.
        retry: MayRetry,
    },
    /// It waits for others, or is due at once for another attempt.
    Suspended {
        /// What wakes it.
        wake: Wake,
        /// What it goes on with.
        state: Json,
    },
    /// It was stopped from outside.
    Cancelled,
}

impl TurnOutcome {
    /// What it came to as a text: a text as it is, anything else as JSON; none if it came to nothing.
    #[must_use]
    pub fn final_text(&self) -> Option<String> {
        match &self.status {
            TurnStatus::Completed { output } => Some(text_of(output)),
            TurnStatus::Failed { .. } | TurnStatus::Suspended { .. } | TurnStatus::Cancelled => {
                None
            }
        }
    }
}

impl TurnStatus {
    pub(super) fn failed(code: &str, message: impl Into<String>, retry: MayRetry) -> Self {
        Self::Failed {
            failure: StepFailure::new(code, message),
            retry,
        }
    }

    /// What a turn of code that panicked came to. Another time it may go better.
    pub(super) fn panicked() -> Self {
        let retry = MayRetry::After(std::time::Duration::ZERO);
        Self::failed("panic", "the workload panicked", retry)
    }

    pub(super) fn of_error(error: &BoxError) -> Self {
        Self::of_end(WorkloadEventKind::of_error(error))
    }

    /// What a turn came to by the last event of its run.
    fn of_end(end: WorkloadEventKind) -> Self {
        match end {
            WorkloadEventKind::Final { output } => Self::Completed { output },
            WorkloadEventKind::Error { failure, retry } => Self::Failed { failure, retry },
            WorkloadEventKind::Suspended { wake, state } => Self::Suspended { wake, state },
            WorkloadEventKind::Started
            | WorkloadEventKind::Step(_)
            | WorkloadEventKind::Asked
            | WorkloadEventKind::Text(_)
            | WorkloadEventKind::Usage(_)
            | WorkloadEventKind::Repaired { .. }
            | WorkloadEventKind::ToolCalled { .. }
            | WorkloadEventKind::ToolAnswered { .. }
            | WorkloadEventKind::Compacted { .. }
            | WorkloadEventKind::Missed { .. } => Self::failed(
                "broke_off",
                "the workload ended without saying what it came to",
                MayRetry::Never,
            ),
        }
    }
}

/// A turn to be run.
pub(super) struct TurnOf<'t> {
    pub(super) definition: &'t dyn Definition,
    pub(super) deps: &'t Deps,
    pub(super) run: Arc<str>,
    pub(super) parent: Option<Arc<str>>,
    pub(super) context: ExecutionContext,
    /// The session whose conversation it goes on with.
    pub(super) session: Option<Session>,
    pub(super) message: Message,
}

impl TurnOf<'_> {
    /// Runs it: makes the workload, tells what happens while it happens, adds what was said to the session, and closes all
    /// that was made, however it ends.
    pub(super) async fn run(
        self,
        sink: &mut (dyn FnMut(WorkloadEvent) + Send),
        stopped: impl Future<Output = ()> + Send,
    ) -> TurnOutcome {
        let mut arena = Arena::default();
        let run = Arc::clone(&self.run);
        let work = AssertUnwindSafe(self.work(&mut arena, sink)).catch_unwind();
        let status = tokio::select! {
            biased;
            () = stopped => TurnStatus::Cancelled,
            status = work => status.unwrap_or_else(|_| TurnStatus::panicked()),
        };
        let not_closed = arena.close().await.err();
        if let Some(error) = &not_closed {
            tracing::warn!(run = &*run, "{error}");
        }
        TurnOutcome {
            run,
            status,
            not_closed,
        }
    }

    async fn work(
        self,
        arena: &mut Arena,
        sink: &mut (dyn FnMut(WorkloadEvent) + Send),
    ) -> TurnStatus {
        let workload = match arena.instantiate(self.definition, self.deps) {
            Ok(workload) => workload,
            Err(error) => {
                return TurnStatus::failed("not_made", error.to_string(), MayRetry::Elsewhere);
            }
        };
        // What is added in the end is added to what was there when it began.
        let held = match &self.session {
            None => None,
            Some(session) => match session.taken_up(&self.context).await {
                Ok(held) => Some(held),
                Err(error) => return TurnStatus::of_error(&error.into()),
            },
        };
        let mut cx = RunCx::new(Arc::clone(&self.run), self.context);
        if let Some(parent) = self.parent {
            cx = cx.parent(parent);
        }
        if let Some((session, _)) = &held {
            cx = cx.session(session.clone());
        }
        let kept = cx.clone();
        let asked = self.message.text();
        let mut events = workload.run(cx, Some(self.message));
        let mut last = WorkloadEventKind::Started;
        while let Some(event) = events.next().await {
            last = event.kind.clone();
            sink(event);
        }
        drop(events);
        let status = TurnStatus::of_end(last);
        if let (TurnStatus::Completed { output }, Some((session, log))) = (&status, held) {
            let mut messages = vec![agent::Message::user(asked)];
            messages.extend(kept.kept());
            messages.push(agent::Message::assistant(text_of(output)));
            let said = LogEntry::Said { messages };
            // The speaker's conversation may have been made shorter meanwhile.
            let log = match session.load().await {
                Ok(newer) if newer.added() == log.added() => newer,
                Ok(_) => log,
                Err(error) => return TurnStatus::of_error(&error.into()),
            };
            if let Err(error) = session.append(&log, &self.run, said).await {
                return TurnStatus::of_error(&error.into());
            }
        }
        status
    }
}
