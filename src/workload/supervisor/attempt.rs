//! Execution of one turn of a session, from the read of the session log to the end of the turn.

use super::Restart;
use super::session_queue::{Job, Shared, TurnInput};
use crate::clock;
use crate::executor::ExecutionContext;
use crate::model::{Breadcrumb, Json, SESSION_TAG, Timestamp};
use crate::session_log::SessionError;
use crate::workflow::MayRetry;
use crate::workload::cx::WorkloadMessage;
use crate::workload::session::{Conversation, Log, LogEntry, SessionStore};
use crate::workload::turn::{PreparedTurn, TurnCancellation, TurnOutcome, TurnSession};
use crate::workload::turn_emitter::TurnEmitter;
use crate::workload::turn_status::TurnStatus;
use futures::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Schema of the trigger that holds the message of a supervised turn. No store contains such a breadcrumb.
const MESSAGE: &str = "workload.message.v1";

/// Maximum delay before a retry of a workload turn, unless the settings or the error request a longer delay. The
/// maximum exists because the session's other turns wait during the delay.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The input of one attempt of a session's turn.
struct AttemptInput {
    message: WorkloadMessage,
    trigger: Breadcrumb,
    context: ExecutionContext,
    /// The session's conversation, bound to the session log of the turn. After the deletion of the session, the
    /// conversation adds nothing. `entries_at_start` is the number of session log entries when the turn started.
    session: Conversation,
    entries_at_start: u64,
    /// The saved state from which the turn continues, if the turn was suspended.
    resumed: Option<Json>,
}

impl Shared {
    /// Runs a workload turn of a session, with retries.
    pub(super) async fn run(
        &self,
        session: &str,
        job: &Job,
        stop: &CancellationToken,
        emitter: &mut TurnEmitter,
    ) -> TurnOutcome {
        let Restart { attempts, delay } = self.settings.restart;
        let mut attempt = 1;
        // All attempts use the session of the first one: a session that was deleted in the meantime is not created
        // again.
        let mut session = SessionStore::new(Arc::clone(&self.store)).session(session);
        loop {
            let outcome = self.attempt(&mut session, job, stop, emitter).await;
            let TurnStatus::Failed { failure, retry } = &outcome.status else {
                return outcome;
            };
            let Some(requested) = delay_of(*retry).filter(|_| attempt < attempts.get()) else {
                return outcome;
            };
            let doubled = delay.saturating_mul(1 << (attempt - 1).min(16));
            let delay = doubled.min(delay.max(MAX_RETRY_DELAY)).max(requested);
            attempt += 1;
            emitter.restart(attempt, failure.clone(), delay);
            tokio::select! {
                biased;
                () = stop.cancelled() => return ended(emitter, TurnStatus::Cancelled),
                () = sleep(delay) => {}
            }
            self.count_restart();
        }
    }

    /// Runs one attempt of a turn, after waiting until the number of running turns is below the maximum.
    async fn attempt(
        &self,
        session: &mut Conversation,
        job: &Job,
        stop: &CancellationToken,
        emitter: &mut TurnEmitter,
    ) -> TurnOutcome {
        let permit = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            permit = self.permits.acquire() => permit.ok(),
        };
        if permit.is_none() {
            return ended(emitter, TurnStatus::Cancelled);
        }
        // A store may panic too, before the workload is created and after it is closed.
        let once = AssertUnwindSafe(self.run_once(session, job, stop, emitter));
        let outcome = once.catch_unwind().await;
        outcome.unwrap_or_else(|_| ended(emitter, TurnStatus::panicked()))
    }

    async fn run_once(
        &self,
        session: &mut Conversation,
        job: &Job,
        stop: &CancellationToken,
        emitter: &mut TurnEmitter,
    ) -> TurnOutcome {
        let input = tokio::select! {
            biased;
            () = stop.cancelled() => return ended(emitter, TurnStatus::Cancelled),
            input = self.attempt_input(session, job) => input,
        };
        let input = match input {
            Ok(Ok(input)) => input,
            Ok(Err(refused)) => return ended(emitter, refused),
            Err(error) => return ended(emitter, TurnStatus::of_session(error)),
        };
        let AttemptInput {
            message,
            trigger,
            context,
            session: conversation,
            entries_at_start,
            resumed,
        } = input;
        session.clone_from(&conversation);
        // A turn that continues has the name of the suspended turn.
        let run: Arc<str> = trigger.id.to_string().into();
        if !emitter.name(&run) {
            return ended(emitter, not_suspended());
        }
        let cancellation = TurnCancellation {
            stop,
            close_timeout: self.settings.close_timeout,
        };
        let turn_session = TurnSession {
            conversation,
            entries_at_start,
        };
        let turn = PreparedTurn {
            definition: &*self.definition,
            services: &self.services,
            store: &self.store,
            context,
            session: Some(turn_session.clone()),
            message: message.clone(),
            cancellation,
        };
        let mut outcome = turn.run(emitter).await;
        let entry = suspension_entry(&outcome.status, resumed.as_ref(), message, trigger);
        if let Some(entry) = entry
            && let Err(unsaved) = turn_session.save_entry(&run, entry, cancellation).await
        {
            match &outcome.status {
                // The error of the turn is more useful, and the turn can still be given up.
                TurnStatus::Failed { .. } => unsaved.log_unsaved(&run),
                TurnStatus::Suspended { .. }
                | TurnStatus::Completed { .. }
                | TurnStatus::Cancelled => outcome.status = unsaved,
            }
        }
        outcome
    }

    /// Returns the input of a turn attempt, or the status of a turn that cannot start.
    async fn attempt_input(
        &self,
        session: &Conversation,
        job: &Job,
    ) -> Result<Result<AttemptInput, TurnStatus>, SessionError> {
        let log: Log = session.load().await?;
        let failed = |code, message| Ok(Err(TurnStatus::failed(code, message, MayRetry::Never)));
        match (&job.input, log.entries().last()) {
            (
                TurnInput::Resume,
                Some(LogEntry::Suspended {
                    message,
                    trigger,
                    state,
                }),
            ) => {
                let context = ExecutionContext::for_trigger((**trigger).clone());
                Ok(Ok(AttemptInput {
                    message: message.clone(),
                    trigger: (**trigger).clone(),
                    context: context
                        .with_resumed(state.clone(), None)
                        .with_from_user(is_text(message)),
                    entries_at_start: log.added(),
                    resumed: Some(state.clone()),
                    session: session.bind(log).await?.0,
                }))
            }
            (TurnInput::Resume, Some(LogEntry::Said { .. }) | None) => Ok(Err(not_suspended())),
            (TurnInput::Message(_), Some(LogEntry::Suspended { .. })) => failed(
                "suspended",
                "the previous turn of the session is suspended; resume it, or give it up",
            ),
            (TurnInput::Message(message), Some(LogEntry::Said { .. }) | None) => {
                let now = Timestamp::from_micros(clock::wall_micros());
                let new = message
                    .breadcrumb(MESSAGE)
                    .tag(format!("{SESSION_TAG}{}", session.id()));
                let trigger = new.first_version(job.id, now);
                let context = ExecutionContext::for_trigger(trigger.clone());
                Ok(Ok(AttemptInput {
                    message: message.clone(),
                    context: context.with_from_user(is_text(message)),
                    trigger,
                    entries_at_start: log.added(),
                    resumed: None,
                    session: session.bind(log).await?.0,
                }))
            }
        }
    }
}

/// Returns `true` if the content of a message to the workload is a string. Only a string counts as a user's text. Any
/// other content is data.
fn is_text(message: &WorkloadMessage) -> bool {
    message.content.is_string()
}

/// Returns the session log entry for the start or the end of a turn's suspension, or `None` if the turn adds no such
/// entry.
fn suspension_entry(
    status: &TurnStatus,
    resumed: Option<&Json>,
    message: WorkloadMessage,
    trigger: Breadcrumb,
) -> Option<LogEntry> {
    match status {
        // The log already contains a turn that is suspended with the same state.
        TurnStatus::Suspended { state, .. } if resumed != Some(state) => {
            Some(LogEntry::Suspended {
                message,
                trigger: Box::new(trigger),
                state: state.clone(),
            })
        }
        TurnStatus::Failed {
            retry: MayRetry::Never,
            ..
        } if resumed.is_some() => {
            let messages = Vec::new();
            Some(LogEntry::Said { messages })
        }
        TurnStatus::Suspended { .. }
        | TurnStatus::Failed { .. }
        | TurnStatus::Completed { .. }
        | TurnStatus::Cancelled => None,
    }
}

fn not_suspended() -> TurnStatus {
    let message = "no turn of the session is suspended";
    TurnStatus::failed("not_suspended", message, MayRetry::Never)
}

fn ended(emitter: &TurnEmitter, status: TurnStatus) -> TurnOutcome {
    TurnOutcome::of(emitter.run(), status)
}

/// Returns the minimum delay before a retry of a workload turn, or `None` if the turn would fail again.
fn delay_of(retry: MayRetry) -> Option<Duration> {
    match retry {
        MayRetry::After(delay) => Some(delay),
        MayRetry::Never | MayRetry::Elsewhere => None,
    }
}
