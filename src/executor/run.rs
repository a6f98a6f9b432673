//! One run from claim to commit: acts on what the pure functions decide.

use super::bound::{Terms, admit};
use super::context::Resumed;
use super::decide::{self, Attempt, Next, Refusal, Start};
use super::error::ExecutorError;
use super::handle::{CancelGuard, RunHandle};
use super::heartbeat;
use super::outcome::{Failure, Outcome, Response, Suspension};
use super::profile::hex;
use super::provenance::{Stamp, claimed_lineage, claims_to_be_from};
use super::{Profile, UniversalExecutor};
use crate::error::BoxError;
use crate::model::{Breadcrumb, Event, EventKind, Route, dismantle, is_too_deep};
use crate::store::{
    Claim, Commit, DeadLetter, FailureClass, Lease, Lineage, RunEnd, RunLedger, RunRef, Saved,
    StoreError, Write,
};
use futures::FutureExt as _;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument as _, field};

pub(super) async fn process<E: UniversalExecutor + ?Sized>(
    executor: &E,
    event: &Event,
) -> Result<Outcome, ExecutorError> {
    match executor.subscriptions().route(event) {
        Route::Unmatched => return Ok(Outcome::Unmatched),
        Route::Context => return Ok(Outcome::ContextNoted),
        Route::Trigger { .. } | Route::NeedsContext => {}
    }
    let span = tracing::info_span!(
        "event",
        executor = executor.id(),
        trigger = %event.breadcrumb_id,
        version = event.version,
        outcome = field::Empty,
    );
    async {
        let outcome = claim_and_run(executor, event).await;
        let name = outcome
            .as_ref()
            .map_or_else(ExecutorError::code, Outcome::name);
        tracing::Span::current().record("outcome", name);
        outcome
    }
    .instrument(span)
    .await
}

async fn claim_and_run<E: UniversalExecutor + ?Sized>(
    executor: &E,
    event: &Event,
) -> Result<Outcome, ExecutorError> {
    let run = RunRef::of(executor.id(), event).lasting(executor.profile().lease);
    let ledger = executor.store().ledger();
    let claim = match ledger {
        Some(ledger) => ledger
            .claim(&run, None)
            .await
            .map_err(store_error("claim the run"))?,
        None => unclaimed(run),
    };
    match Held::from_claim(executor, ledger, claim) {
        Ok(held) => held.process(event).await,
        Err(outcome) => Ok(outcome),
    }
}

/// What stands in for a claim where there is no ledger.
fn unclaimed(run: RunRef) -> Claim {
    let origin = Lineage::origin(run.trigger_id);
    let now = crate::model::Timestamp::from_micros(crate::clock::wall_micros());
    Claim::Granted {
        lease: Lease::new(run, 0, now),
        attempt: 1,
        lineage: origin,
        state: None,
    }
}

fn store_error(operation: &'static str) -> impl FnOnce(StoreError) -> ExecutorError {
    move |source| match source {
        StoreError::LeaseLost { run } => ExecutorError::LeaseLost { run },
        source => ExecutorError::Store { operation, source },
    }
}

/// A run that this call may end.
struct Held<'e, E: ?Sized> {
    executor: &'e E,
    ledger: Option<&'e dyn RunLedger>,
    lease: Lease,
    attempt: u32,
    lineage: Lineage,
    saved: Option<Saved>,
    claimed: Instant,
}

/// What went wrong with a run that is still held.
struct Broken {
    error: ExecutorError,
    /// Whether `execute` was called.
    started: bool,
    trigger: Option<Arc<Breadcrumb>>,
}

impl From<ExecutorError> for Broken {
    fn from(error: ExecutorError) -> Self {
        Self {
            error,
            started: false,
            trigger: None,
        }
    }
}

/// What `execute` and `respond` came to.
enum Answer {
    Response(Response),
    Suspension(Box<Suspension>),
}

impl<'e, E: UniversalExecutor + ?Sized> Held<'e, E> {
    fn from_claim(
        executor: &'e E,
        ledger: Option<&'e dyn RunLedger>,
        claim: Claim,
    ) -> Result<Self, Outcome> {
        match claim {
            Claim::Granted {
                lease,
                attempt,
                lineage,
                state,
            } => Ok(Self {
                executor,
                ledger,
                lease,
                attempt,
                lineage,
                saved: state,
                claimed: Instant::now(),
            }),
            Claim::Own => Err(Outcome::OwnBreadcrumb),
            Claim::Done { state, written } => Err(Outcome::AlreadyDone { state, written }),
            Claim::Running { until } => Err(Outcome::InProgress { until }),
            Claim::Suspended { until } => Err(Outcome::Suspended {
                until,
                written: Vec::new(),
            }),
            Claim::Superseded => Err(Outcome::Superseded),
        }
    }

    async fn process(mut self, event: &Event) -> Result<Outcome, ExecutorError> {
        match self.run(event).await {
            Ok(outcome) => Ok(outcome),
            // What is rare is boxed, so that it takes no room in the future of what is common.
            Err(broken) => Box::pin(self.end_or_retry(broken)).await,
        }
    }

    async fn run(&mut self, event: &Event) -> Result<Outcome, Broken> {
        let executor = self.executor;
        let Some((kind, trigger)) = self.read_trigger(event).await? else {
            return Ok(Box::pin(self.skip("gone", Outcome::Gone)).await?);
        };
        let route = executor.subscriptions().route_breadcrumb(kind, &trigger);
        let Route::Trigger { subscription } = route else {
            return Ok(Box::pin(self.skip("unmatched", Outcome::Unmatched)).await?);
        };
        if trigger.version > event.version
            && let Some(outcome) = Box::pin(self.move_on_to(&trigger)).await?
        {
            return Ok(outcome);
        }
        if self.ledger.is_none() {
            if claims_to_be_from(&trigger, executor.id()) {
                return Ok(Outcome::OwnBreadcrumb);
            }
            self.lineage = claimed_lineage(&trigger);
        }
        if let Some(refusal) = self.refusal(&trigger) {
            return Ok(Box::pin(self.refuse(refusal, &trigger)).await?);
        }
        let subscription = executor.subscriptions().as_slice().get(subscription);
        let alias = subscription.and_then(|subscription| subscription.key.clone());
        let stamp = Stamp::new(executor.id(), executor.profile(), &trigger, &self.lineage);
        let stamp = Arc::new(stamp);
        let broken = |(error, started)| Broken {
            error,
            started,
            trigger: Some(Arc::clone(&trigger)),
        };
        let answer = self.answer(&trigger, alias, &stamp).await.map_err(broken)?;
        self.record(answer, &stamp)
            .await
            .map_err(|error| broken((error, true)))
    }

    /// The breadcrumb the event announces, in that version or a later one, and what happened to it; none if it is
    /// gone.
    async fn read_trigger(
        &self,
        event: &Event,
    ) -> Result<Option<(EventKind, Arc<Breadcrumb>)>, ExecutorError> {
        let store = self.executor.store();
        // A store that may not see its own writes yet gets part of the lease to find what it announced.
        let patience = self.lease.run.lease / 2;
        let mut pause = Duration::from_millis(100);
        loop {
            match store.get(event.breadcrumb_id).await {
                Ok(found) if found.version >= event.version => {
                    return Ok(Some((kind_of_living(event, &found), found)));
                }
                Ok(found) => {
                    return Err(ExecutorError::StaleRead {
                        id: found.id,
                        expected: event.version,
                        found: found.version,
                    });
                }
                Err(StoreError::NotFound { tombstone, .. }) if event.kind == EventKind::Deleted => {
                    let tombstone = tombstone.filter(|found| found.version >= event.version);
                    return Ok(tombstone.map(|tombstone| (EventKind::Deleted, tombstone)));
                }
                Err(StoreError::NotFound { .. })
                    if store.capabilities().reads_own_writes
                        || self.claimed.elapsed() + pause > patience =>
                {
                    return Ok(None);
                }
                Err(StoreError::NotFound { .. }) => sleep(pause).await,
                Err(error) => return Err(store_error("read the trigger")(error)),
            }
            pause *= 2;
        }
    }

    /// Claims the run of a newer version of the trigger in the place of this one, which ends as superseded.
    async fn move_on_to(&mut self, trigger: &Breadcrumb) -> Result<Option<Outcome>, ExecutorError> {
        let newer =
            RunRef::of(self.executor.id(), &Event::updated(trigger)).lasting(self.lease.run.lease);
        let claim = match self.ledger {
            Some(ledger) => {
                let claim = ledger.claim(&newer, Some(self.lease.clone())).await;
                claim.map_err(store_error("claim the newer run"))?
            }
            None => unclaimed(newer),
        };
        if let Claim::Done { .. } | Claim::Running { .. } | Claim::Suspended { .. } = claim {
            return Ok(Some(Outcome::Superseded));
        }
        match Self::from_claim(self.executor, self.ledger, claim) {
            Ok(held) => {
                *self = held;
                Ok(None)
            }
            Err(outcome) => Ok(Some(outcome)),
        }
    }

    /// Whether the run may not run: the chain is too long, or too many attempts were made.
    fn refusal(&self, trigger: &Breadcrumb) -> Option<Refusal> {
        let start = Start {
            attempt: self.attempt,
            abandoned: self.lease.abandoned,
            hops: self.lineage.hops,
            is_dead_letter: trigger.schema_name.as_deref() == Some(DeadLetter::SCHEMA),
        };
        decide::before_start(self.executor.profile(), start)
    }

    async fn refuse(
        &self,
        refusal: Refusal,
        trigger: &Arc<Breadcrumb>,
    ) -> Result<Outcome, ExecutorError> {
        match refusal {
            Refusal::Skip(reason) => self.skip(reason, Outcome::Unmatched).await,
            Refusal::Fail(class) => self.fail(class, None, Some(trigger)).await,
        }
    }

    /// Assembles, executes and responds while keeping the lease; says on error whether `execute` was called.
    async fn answer(
        &self,
        trigger: &Arc<Breadcrumb>,
        alias: Option<String>,
        stamp: &Arc<Stamp>,
    ) -> Result<Answer, (ExecutorError, bool)> {
        let handle = self.handle(stamp).await.map_err(|error| (error, false))?;
        let _cancelled_when_dropped = CancelGuard(Arc::clone(&handle));
        let saves = Arc::clone(&handle);
        let started = std::sync::atomic::AtomicBool::new(false);
        let work = async {
            let context = self
                .executor
                .assemble_context(trigger)
                .await?
                .bound_to(handle, alias);
            started.store(true, std::sync::atomic::Ordering::Relaxed);
            let span = tracing::debug_span!("execute", executor = self.executor.id(), trigger = %trigger.id);
            let answer = execute_and_respond(self.executor, trigger, &context).instrument(span);
            let after = self.executor.profile().timeout;
            match timeout(after, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(ExecutorError::Timeout { after }),
            }
        };
        let guarded = AssertUnwindSafe(work).catch_unwind();
        let answer =
            match heartbeat::keep(self.ledger, &self.lease, Some(&saves.saves), guarded).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(panic)) => Err(ExecutorError::Panicked {
                    message: panic_message(&*panic),
                }),
                Err(heartbeat::Lost) => Err(ExecutorError::LeaseLost {
                    run: self.lease.run.clone(),
                }),
            };
        answer.map_err(|error| (error, started.into_inner()))
    }

    async fn handle(&self, stamp: &Arc<Stamp>) -> Result<Arc<RunHandle>, ExecutorError> {
        let profile = self.executor.profile();
        let terms = Terms {
            stamp: Arc::clone(stamp),
            responds_with: profile.responds_with.clone(),
            lease: self.lease.clone(),
            in_ledger: self.ledger.is_some(),
        };
        let resumed = match &self.saved {
            Some(saved) => Some(Box::pin(self.resumed(saved)).await?),
            None => None,
        };
        Ok(Arc::new(RunHandle {
            terms: Some(terms),
            tenant: self.executor.store().tenant().to_owned(),
            attempt: self.attempt,
            deadline: Some(self.lease.granted_at + profile.timeout),
            ..RunHandle::detached(resumed)
        }))
    }

    async fn resumed(&self, saved: &Saved) -> Result<Resumed, ExecutorError> {
        let with = match saved.with {
            None => None,
            Some(id) => match self.executor.store().get(id).await {
                Ok(found) => Some(found),
                Err(StoreError::NotFound { tombstone, .. }) => tombstone,
                Err(error) => return Err(store_error("read what woke the run")(error)),
            },
        };
        Ok(Resumed {
            state: saved.state.clone(),
            with,
        })
    }

    /// Commits what was answered together with the end of the run.
    async fn record(&self, answer: Answer, stamp: &Stamp) -> Result<Outcome, ExecutorError> {
        match answer {
            Answer::Response(response) => {
                let written = self
                    .commit(response.into_writes(), RunEnd::Done, stamp)
                    .await?;
                Ok(Outcome::Responded { written })
            }
            Answer::Suspension(suspension) => {
                if self.ledger.is_none() {
                    let reason =
                        "a run can be suspended only on a store with a run ledger".to_owned();
                    return Err(ExecutorError::BadResponse { reason });
                }
                let Suspension {
                    wake,
                    state,
                    response,
                } = *suspension;
                let until = wake.until;
                let end = RunEnd::Suspended { wake, state };
                let written = self.commit(response.into_writes(), end, stamp).await?;
                Ok(Outcome::Suspended { until, written })
            }
        }
    }

    async fn commit(
        &self,
        writes: Vec<Write>,
        end: RunEnd,
        stamp: &Stamp,
    ) -> Result<Vec<crate::model::BreadcrumbId>, ExecutorError> {
        let (store, profile) = (self.executor.store(), self.executor.profile());
        let admitted = admit(writes, stamp, profile.responds_with.as_deref(), store).await;
        let writes = admitted
            .map_err(store_error("read what the response changes"))?
            .map_err(|reason| ExecutorError::BadResponse { reason })?;
        let span = tracing::debug_span!("commit", executor = self.executor.id(), trigger = %self.lease.run.trigger_id);
        let end = self.ledger.map(|_| (self.lease.clone(), end));
        let committed = store.commit(Commit { writes, end }).instrument(span).await;
        Ok(committed.map_err(store_error("commit the response"))?.ids())
    }

    /// Ends a run that has nothing to do.
    async fn skip(&self, reason: &'static str, outcome: Outcome) -> Result<Outcome, ExecutorError> {
        if self.ledger.is_some() {
            let end = Some((self.lease.clone(), RunEnd::Skipped(reason)));
            let commit = Commit {
                writes: Vec::new(),
                end,
            };
            self.executor
                .store()
                .commit(commit)
                .await
                .map_err(store_error("end the run"))?;
        }
        Ok(outcome)
    }

    /// Ends a run after an error, or gives it back to be tried again.
    async fn end_or_retry(&self, broken: Broken) -> Result<Outcome, ExecutorError> {
        let Broken {
            error,
            started,
            trigger,
        } = broken;
        if matches!(error, ExecutorError::LeaseLost { .. }) {
            return Err(error);
        }
        let now = self.lease.granted_at + self.claimed.elapsed();
        let attempt = Attempt {
            number: self.attempt,
            started,
            age: now.since(self.lease.enqueued_at),
            chance: chance(&self.lease.run, self.attempt),
        };
        let next = decide::after_error(&error, self.executor.profile(), attempt);
        tracing::debug!(run = %self.lease.run, error = error.code(), ?next, "a run broke");
        match (next, self.ledger) {
            (Next::Fail(FailureClass::Permanent), _) | (Next::Fail(_), Some(_)) => {
                let Next::Fail(class) = next else {
                    return Err(error);
                };
                self.fail(class, Some(error), trigger.as_ref()).await
            }
            (Next::Fail(_) | Next::Retry { .. }, None) => Err(error),
            (Next::Retry { delay, counts }, Some(ledger)) => {
                let (run, at) = (self.lease.run.clone(), now + delay);
                match ledger.retry(self.lease.clone(), at, counts).await {
                    Ok(()) => Err(ExecutorError::Postponed {
                        run,
                        at,
                        delay,
                        source: Box::new(error),
                    }),
                    Err(failed) => {
                        // The run is tried again all the same, once its lease is over.
                        tracing::warn!(%run, error = failed.code(), "a run could not be given back");
                        Err(error)
                    }
                }
            }
        }
    }

    /// Ends a run as failed: one dead letter, and what the executor answers whoever asked.
    async fn fail(
        &self,
        class: FailureClass,
        error: Option<ExecutorError>,
        trigger: Option<&Arc<Breadcrumb>>,
    ) -> Result<Outcome, ExecutorError> {
        let profile = self.executor.profile();
        let (message, code) = match &error {
            Some(error) => (error.message(), error.code()),
            None => (reason(class, profile), class.as_str()),
        };
        let mut letter = DeadLetter::new(class, code, self.attempt);
        letter.digest = hex(&Sha256::digest(message.as_bytes()));
        let stamp =
            trigger.map(|trigger| Stamp::new(self.executor.id(), profile, trigger, &self.lineage));
        if let Some(stamp) = &stamp {
            letter.tags = stamp.session_tags().cloned().collect();
            letter.creator = stamp.creator().into();
        }
        let failure = Failure {
            class,
            message,
            attempts: self.attempt,
            error: error.map(BoxError::from),
        };
        let mut writes = Vec::new();
        if let (Some(trigger), Some(stamp)) = (trigger, &stamp)
            && class != FailureClass::HopLimit
        {
            writes = self.failure_response(trigger, &failure, stamp).await?;
        }
        self.bury(writes, letter)
            .await
            .map(|written| Outcome::Failed { class, written })
    }

    /// What the executor writes about a failure; nothing if it fails at that too.
    async fn failure_response(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
        stamp: &Stamp,
    ) -> Result<Vec<Write>, ExecutorError> {
        let profile = self.executor.profile();
        let respond = timeout(
            profile.timeout,
            self.executor.respond_failure(trigger, failure),
        );
        let guarded = AssertUnwindSafe(respond).catch_unwind();
        let response = match heartbeat::keep(self.ledger, &self.lease, None, guarded).await {
            Ok(Ok(Ok(Ok(response)))) => response,
            Ok(Ok(Ok(Err(_)) | Err(_)) | Err(_)) => {
                tracing::warn!(run = %self.lease.run, "respond_failure failed; the dead letter stands alone");
                return Ok(Vec::new());
            }
            Err(heartbeat::Lost) => {
                return Err(ExecutorError::LeaseLost {
                    run: self.lease.run.clone(),
                });
            }
        };
        let (allowed, store) = (profile.responds_with.as_deref(), self.executor.store());
        match admit(response.into_writes(), stamp, allowed, store).await {
            Ok(Ok(writes)) => Ok(writes),
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(run = %self.lease.run, "respond_failure may not write that; the dead letter stands alone");
                Ok(Vec::new())
            }
        }
    }

    /// Commits the dead letter, alone if it cannot be committed with the response.
    async fn bury(
        &self,
        writes: Vec<Write>,
        letter: DeadLetter,
    ) -> Result<Vec<crate::model::BreadcrumbId>, ExecutorError> {
        let store = self.executor.store();
        let commit = |mut writes: Vec<Write>, letter: DeadLetter| match self.ledger {
            Some(_) => Commit {
                writes,
                end: Some((self.lease.clone(), RunEnd::Failed(letter))),
            },
            None => {
                writes.push(Write::Create(
                    letter.breadcrumb(&self.lease, store.tenant()),
                ));
                Commit { writes, end: None }
            }
        };
        let alone = writes.is_empty();
        let committed = match store.commit(commit(writes, letter.clone())).await {
            Err(error) if !alone && !matches!(error, StoreError::LeaseLost { .. }) => {
                tracing::warn!(run = %self.lease.run, error = error.code(), "the dead letter is committed alone");
                store.commit(commit(Vec::new(), letter)).await
            }
            committed => committed,
        };
        Ok(committed
            .map_err(store_error("commit the dead letter"))?
            .ids())
    }
}

/// What happened to a breadcrumb that exists: an event that says it was deleted is wrong.
fn kind_of_living(event: &Event, found: &Breadcrumb) -> EventKind {
    match event.effective_kind() {
        EventKind::Deleted if found.version > 1 => EventKind::Updated,
        EventKind::Deleted => EventKind::Created,
        kind @ (EventKind::Created | EventKind::Updated | EventKind::Ping) => kind,
    }
}

async fn execute_and_respond<E: UniversalExecutor + ?Sized>(
    executor: &E,
    trigger: &Breadcrumb,
    context: &super::ExecutionContext,
) -> Result<Answer, ExecutorError> {
    let output = match executor.execute(trigger, context).await {
        Ok(output) => output,
        Err(error) => {
            return match error.downcast::<Suspension>() {
                Ok(suspension) => Ok(Answer::Suspension(suspension)),
                Err(error) => Err(ExecutorError::Execute(error)),
            };
        }
    };
    let output = flat_enough(output)?;
    executor
        .respond(trigger, output)
        .await
        .map(Answer::Response)
        .map_err(ExecutorError::Respond)
}

/// Refuses output that would overflow the stack of whoever walks it.
fn flat_enough(output: Value) -> Result<Value, ExecutorError> {
    if !is_too_deep(&output) {
        return Ok(output);
    }
    dismantle(output);
    let reason = format!(
        "what execute returned nests deeper than {} levels",
        crate::model::MAX_DEPTH
    );
    Err(ExecutorError::BadResponse { reason })
}

/// Why a run failed that had no error of its own.
fn reason(class: FailureClass, profile: &Profile) -> String {
    match class {
        FailureClass::HopLimit => format!(
            "more than {} executors followed from one another",
            profile.hop_limit
        ),
        FailureClass::CrashLoop => "three workers in a row died while they ran it".to_owned(),
        FailureClass::OutcomeUnknown => {
            "it was interrupted and may run only once, so its outcome is unknown".to_owned()
        }
        FailureClass::AttemptsUsedUp => {
            format!("all {} attempts were used up", profile.retry.attempts)
        }
        FailureClass::Permanent | FailureClass::Timeout | FailureClass::Panic => class.to_string(),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    crate::error::excerpt(text.unwrap_or("a value that is no text"), 256).into_owned()
}

/// Where in its range the delay after an attempt lies: spread over runs, the same for one attempt.
fn chance(run: &RunRef, attempt: u32) -> f64 {
    let key = run.key("", attempt);
    let digits = key
        .get(..8)
        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
    f64::from(digits.unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
}
