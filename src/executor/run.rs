//! Processing of one event: claims the run, executes it and commits its end. The decisions are in pure functions.

use super::UniversalExecutor;
use super::answer::Answer;
use super::bound::{AllowedSchemas, admit};
use super::claimed_run::{ClaimedRun, FailedAttempt, store_error};
use super::decide::{self, Refusal, StartState};
use super::earlier_response::with_written;
use super::error::ExecutorError;
use super::ordering::{is_ordered, key_of, ordering_key};
use super::outcome::{Outcome, Suspension};
use super::provenance::{Stamp, claimed_lineage, claims_to_be_from};
use super::runtime_context::{self, PendingClaim};
use super::store_timeout::in_time;
use super::turn_events::TurnEvents;
use crate::bugs::planted;
use crate::model::{Breadcrumb, BreadcrumbId, Event, EventKind, Route};
use crate::store::{
    AddedLedger, Claim, Commit, DeadLetter, RunEnd, RunRef, RunStore, StoreError, Write,
};
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
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
        correlation_id = field::Empty,
        hops = field::Empty,
        attempt = field::Empty,
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
    let added = AddedLedger::default();
    match claim_or_take(executor, added.with(executor.store()), event).await? {
        Ok(claimed_run) => claimed_run.process(event).await,
        Err(outcome) => Ok(outcome),
    }
}

/// Ends a run as failed after too many lost attempts, and sends the failure response to the requester. An attempt is lost if its worker
/// dies or its lease expires.
pub(crate) async fn give_up<E: UniversalExecutor + ?Sized>(
    executor: &E,
    event: &Event,
) -> Result<Outcome, ExecutorError> {
    let added = AddedLedger::default();
    match claim_or_take(executor, added.with(executor.store()), event).await? {
        Ok(claimed_run) => claimed_run.give_up(event).await,
        Err(outcome) => Ok(outcome),
    }
}

/// Returns the run for an event: the run that the runtime already claimed, or else a newly claimed run. Returns the outcome if
/// the run needs no work.
async fn claim_or_take<'e, E: UniversalExecutor + ?Sized>(
    executor: &'e E,
    store: RunStore<'e>,
    event: &Event,
) -> Result<Result<ClaimedRun<'e, E>, Outcome>, ExecutorError> {
    let (mut claim, since) = match take_claimed(executor, event) {
        Some(pending_claim) => begin_attempt(store, pending_claim).await?,
        None => claim(executor, store, event).await?,
    };
    if !store.is_durable() {
        let run = RunRef::of(executor.id(), event).lasting(executor.profile().lease);
        // Boxed, because the search is rare and would enlarge the future of each run.
        claim = Box::pin(with_written(executor.store(), &run, claim)).await;
    }
    Ok(ClaimedRun::from_claim(executor, store, claim, since))
}

/// Takes the run that a runtime claimed for the current task, if the run belongs to this executor and event.
fn take_claimed<E: UniversalExecutor + ?Sized>(
    executor: &E,
    event: &Event,
) -> Option<PendingClaim> {
    runtime_context::scope()?.take(executor.id(), event, executor.store())
}

/// Claims the run of an event. Returns the claim, and the time since which the lease is known to hold.
async fn claim<E: UniversalExecutor + ?Sized>(
    executor: &E,
    store: RunStore<'_>,
    event: &Event,
) -> Result<(Claim, Instant), ExecutorError> {
    let run = RunRef::of(executor.id(), event).lasting(executor.profile().lease);
    let run = with_ordering_key(executor, event, run).await?;
    let since = Instant::now();
    let claim = in_time(run.lease, store.claim(&run, None)).await;
    Ok((claim.map_err(store_error("claim the run"))?, since))
}

/// Begins the attempt of a claimed run in the run ledger, after an extension of the lease if half of the lease has passed. Returns the
/// claim, and the time since which the lease is known to hold.
async fn begin_attempt(
    store: RunStore<'_>,
    PendingClaim { claimed, mut since }: PendingClaim,
) -> Result<(Claim, Instant), ExecutorError> {
    let length = claimed.lease.run.lease;
    if since.elapsed() > length / 2 {
        let extended = Instant::now();
        let leases = slice::from_ref(&claimed.lease);
        let lost = in_time(length, store.ledger().heartbeat(leases)).await;
        if !lost.map_err(store_error("extend the lease"))?.is_empty() {
            let run = claimed.lease.run;
            return Err(store_error("extend the lease")(StoreError::LeaseLost {
                run,
            }));
        }
        since = extended;
    }
    let claim = in_time(length, store.begin(claimed)).await;
    Ok((claim.map_err(store_error("begin the run"))?, since))
}

/// Adds the ordering key to a run that is to be claimed. A run that a runtime enqueued is unchanged: its key is in the ledger.
async fn with_ordering_key<E: UniversalExecutor + ?Sized>(
    executor: &E,
    event: &Event,
    run: RunRef,
) -> Result<RunRef, ExecutorError> {
    let is_added = runtime_context::scope().is_some_and(|scope| scope.belongs_to(&run));
    if is_added || !is_ordered(executor, &event.tags) {
        return Ok(run);
    }
    let key = ordering_key(executor, event).await;
    Ok(run.ordered_by(key.map_err(store_error("read the trigger"))?))
}

impl<E: UniversalExecutor + ?Sized> ClaimedRun<'_, E> {
    async fn process(mut self, event: &Event) -> Result<Outcome, ExecutorError> {
        match self.run(event).await {
            Ok(outcome) => Ok(outcome),
            // Failures are rare. Boxing their future keeps the future of the common path small.
            Err(failed_attempt) => Box::pin(self.end_or_retry(failed_attempt)).await,
        }
    }

    async fn give_up(mut self, event: &Event) -> Result<Outcome, ExecutorError> {
        let found = self.read_trigger(event).await?;
        let trigger = found.as_ref().map(|(_, trigger)| trigger);
        Box::pin(self.never_ended(trigger)).await
    }

    async fn run(&mut self, event: &Event) -> Result<Outcome, FailedAttempt> {
        let executor = self.executor;
        if self.is_own {
            return Ok(Box::pin(self.skip("own", Outcome::OwnBreadcrumb)).await?);
        }
        if !self.store.is_durable()
            && let Some(outcome) = Box::pin(self.answered_before(event)).await?
        {
            return Ok(outcome);
        }
        let Some((kind, trigger)) = self.read_trigger(event).await? else {
            return Ok(Box::pin(self.skip("gone", Outcome::Gone)).await?);
        };
        let route = executor.subscriptions().route_breadcrumb(kind, &trigger);
        let Route::Trigger { subscription } = route else {
            return Ok(Box::pin(self.unmatched(kind, &trigger)).await?);
        };
        if trigger.version > event.version
            && let Some(outcome) = Box::pin(self.replace_with_newer(&trigger)).await?
        {
            return Ok(outcome);
        }
        if !self.store.records_writers() || planted("payload-hops") {
            if claims_to_be_from(&trigger, executor.id()) {
                return Ok(Box::pin(self.skip("own", Outcome::OwnBreadcrumb)).await?);
            }
            self.lineage = claimed_lineage(&trigger);
        }
        self.record_lineage_in_span();
        if let Some(refusal) = self.refusal(&trigger) {
            return Ok(Box::pin(self.refuse(refusal, &trigger)).await?);
        }
        let subscription = executor.subscriptions().as_slice().get(subscription);
        let alias = subscription.and_then(|subscription| subscription.key.clone());
        let id = Arc::clone(&self.lease.run.executor);
        let stamp = Stamp::new(id, executor.profile(), &trigger, &self.lineage);
        let stamp = Arc::new(stamp);
        let failed_attempt = |(error, started)| FailedAttempt {
            error,
            started,
            trigger: Some(Arc::clone(&trigger)),
        };
        let events = TurnEvents::of(&trigger, &self.lease, self.attempt).map(Arc::new);
        let answer = self.answer(&trigger, alias, &stamp, events.clone()).await;
        let outcome = self.record(answer.map_err(failed_attempt)?, &stamp).await;
        let outcome = outcome.map_err(|error| failed_attempt((error, true)))?;
        if let (Some(events), Outcome::Suspended { .. }) = (&events, &outcome) {
            Box::pin(events.settle(executor.store())).await;
        }
        Ok(outcome)
    }

    /// Returns the breadcrumb of an event, and the event kind with which the breadcrumb is matched against the subscriptions. The
    /// breadcrumb has the version in the event or a later version. Returns `None` if the breadcrumb is gone.
    async fn read_trigger(
        &mut self,
        event: &Event,
    ) -> Result<Option<(EventKind, Arc<Breadcrumb>)>, ExecutorError> {
        let of_claim = self.trigger.take();
        if let Some(found) = of_claim.filter(|found| found.version >= event.version) {
            return Ok(Some((kind_of_existing(event, &found), found)));
        }
        let store = self.executor.store();
        // A store without read-your-writes may not find the breadcrumb that it announced yet, so the read is retried for half of
        // the lease.
        let max_wait = self.lease.run.lease / 2;
        const MAX_PAUSE: Duration = Duration::from_secs(5);
        let mut pause = Duration::from_millis(100);
        loop {
            match self.in_time(store.get(event.breadcrumb_id)).await {
                Ok(found) if found.version >= event.version => {
                    return Ok(Some((kind_of_existing(event, &found), found)));
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
                        || self.claimed.elapsed() + pause > max_wait =>
                {
                    return Ok(None);
                }
                Err(StoreError::NotFound { .. }) => sleep(pause).await,
                Err(error) => return Err(store_error("read the trigger")(error)),
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Replaces this run with the run of a newer version of its trigger. This run ends as superseded.
    ///
    /// Returns the outcome if the newer run needs no work here, or `None` if its lease is now held.
    async fn replace_with_newer(
        &mut self,
        trigger: &Breadcrumb,
    ) -> Result<Option<Outcome>, ExecutorError> {
        let key = key_of(self.executor, trigger);
        let newer = RunRef::of(self.executor.id(), &Event::updated(trigger))
            .lasting(self.lease.run.lease)
            .ordered_by(key);
        let since = Instant::now();
        let older = Some(self.lease.clone());
        let claim = self.in_time(self.store.claim(&newer, older)).await;
        let claim = claim.map_err(store_error("claim the newer run"))?;
        if let Claim::Done { .. }
        | Claim::Running { .. }
        | Claim::Suspended { .. }
        | Claim::Paused { .. } = claim
        {
            return Ok(Some(Outcome::Superseded));
        }
        match Self::from_claim(self.executor, self.store, claim, since) {
            Ok(claimed_run) => {
                *self = claimed_run;
                Ok(None)
            }
            Err(outcome) => Ok(Some(outcome)),
        }
    }

    /// Records the run's correlation ID, hops and attempt in the current tracing span. Runs of one chain share the correlation ID, in all
    /// processes.
    fn record_lineage_in_span(&self) {
        tracing::Span::current()
            .record("correlation_id", &*self.lineage.correlation_id)
            .record("hops", self.lineage.hops)
            .record("attempt", self.attempt);
    }

    /// Returns the reason why the run may not start, for example a chain that is too long, or `None` if the run may start.
    fn refusal(&self, trigger: &Breadcrumb) -> Option<Refusal> {
        let start = StartState {
            attempt: self.attempt,
            abandoned: self.lease.abandoned,
            may_have_executed: self.lease.may_have_executed,
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

    /// Commits the writes of a run's response or suspension, together with the end or the suspension of the run.
    async fn record(&self, answer: Answer, stamp: &Stamp) -> Result<Outcome, ExecutorError> {
        match answer {
            Answer::Response(response) => {
                let written = self
                    .commit(response.into_writes(), RunEnd::Done, stamp)
                    .await?;
                Ok(Outcome::Responded { written })
            }
            Answer::Suspension(suspension) => {
                if !self.store.is_durable() {
                    let reason = "the run cannot be suspended, because its store has no run ledger; add one with WithLedger"
                        .to_owned();
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
    ) -> Result<Vec<BreadcrumbId>, ExecutorError> {
        let (store, profile) = (self.executor.store(), self.executor.profile());
        let admitted = admit(writes, Some(stamp), AllowedSchemas::by(profile), store).await;
        let writes = admitted
            .map_err(store_error(
                "read the breadcrumbs that the response changes",
            ))?
            .map_err(|reason| ExecutorError::BadResponse { reason })?;
        let scope = runtime_context::scope().filter(|scope| scope.belongs_to(&self.lease.run));
        if let Some(scope) = &scope {
            scope.record_commit();
        }
        let span = tracing::debug_span!("commit", executor = self.executor.id(), trigger = %self.lease.run.trigger_id);
        let end = Some((self.lease.clone(), end));
        let again = planted("blind-retry").then(|| writes.clone());
        let commit = self.store.commit(Commit { writes, end }).instrument(span);
        let mut committed = self.in_time(commit).await;
        if let (Some(writes), Err(StoreError::Unavailable { .. })) = (again, &committed) {
            committed = store.commit(Commit { writes, end: None }).await;
        }
        if let (Some(scope), Err(_)) = (&scope, &committed) {
            scope.record_failed_commit();
        }
        Ok(committed.map_err(store_error("commit the response"))?.ids())
    }
}

/// Returns the event kind for the routing of an existing breadcrumb to subscriptions: never `Deleted`, even if the event wrongly
/// reports a deletion. A deletion is replaced by `Created` or `Updated`, depending on the breadcrumb's version.
fn kind_of_existing(event: &Event, found: &Breadcrumb) -> EventKind {
    match event.effective_kind() {
        EventKind::Deleted if found.version > 1 => EventKind::Updated,
        EventKind::Deleted => EventKind::Created,
        kind @ (EventKind::Created | EventKind::Updated | EventKind::Ping) => kind,
    }
}
