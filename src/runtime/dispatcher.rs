//! The loop: deliveries in, runs out.

use super::timers::{Timers, Turns};
use super::{RunReport, Runtime, RuntimeError};
use crate::clock::later;
use crate::executor::{Execution, ExecutorError, Outcome, UniversalExecutor};
use crate::model::{BreadcrumbId, Event, Route};
use crate::source::{Delivery, SourceError, StartAt};
use crate::store::{
    Commit, DeadLetter, ExecutorLimits, FailureClass, Lease, NewRun, RunEnd, RunFilter, RunLedger,
    RunRef, StoreError,
};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long to wait before a source is asked again, or asked to deliver again.
const PAUSE: Duration = Duration::from_secs(1);

type Deliveries = BoxStream<'static, Result<Delivery, SourceError>>;

/// One run to be processed.
struct Job {
    executor: Arc<dyn UniversalExecutor>,
    work: Work,
}

enum Work {
    /// A run that was claimed in the ledger, and the attempts it has had.
    Claimed(Lease, u32),
    /// An event for an executor without a ledger, to be acknowledged when it is processed.
    Delivered(Arc<Delivery>),
}

/// How one run ended.
struct Finished {
    executor: Arc<str>,
    work: Work,
    outcome: Result<Outcome, ExecutorError>,
}

pub(super) struct Dispatcher<'r> {
    runtime: &'r Runtime,
    running: JoinSet<Finished>,
    /// Claimed runs that are running, and the tasks they run in.
    claimed: HashSet<RunRef>,
    tasks: HashMap<task::Id, Lease>,
    /// Deliveries that wait for a place; nothing is pulled before they have one.
    waiting: VecDeque<Job>,
    /// Executors that may have due runs.
    hot: Turns,
    timers: Timers,
    sweep: Instant,
    position: Option<u64>,
    report: RunReport,
}

impl<'r> Dispatcher<'r> {
    pub(super) fn new(runtime: &'r Runtime) -> Self {
        Self {
            runtime,
            running: JoinSet::new(),
            claimed: HashSet::new(),
            tasks: HashMap::new(),
            waiting: VecDeque::new(),
            hot: runtime.executors.keys().cloned().collect(),
            timers: Timers::default(),
            sweep: later(Instant::now(), runtime.settings.sweep),
            position: None,
            report: RunReport::default(),
        }
    }

    pub(super) async fn run(
        mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<RunReport, RuntimeError> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut deliveries = Some(
            self.subscribe(self.runtime.settings.start_at)
                .await
                .map_err(RuntimeError::Source)?,
        );
        let mut again = Instant::now();
        loop {
            self.fill().await;
            let room = self.room() > 0;
            let wake = self
                .timers
                .first()
                .map_or(self.sweep, |timer| timer.min(self.sweep));
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(finished) = self.running.join_next_with_id() => self.finish(finished).await,
                delivery = next(&mut deliveries), if room && self.waiting.is_empty() => match delivery {
                    Some(Ok(delivery)) => self.deliver(delivery).await,
                    Some(Err(error)) => self.note(&error),
                    None => {
                        tracing::warn!("the source of events ended; subscribing again");
                        deliveries = None;
                        again = Instant::now() + PAUSE;
                    }
                },
                () = sleep_until(again), if deliveries.is_none() => {
                    let from = self.position.map_or(self.runtime.settings.start_at, StartAt::After);
                    match self.subscribe(from).await {
                        Ok(subscribed) => deliveries = Some(subscribed),
                        Err(error) => self.note(&error),
                    }
                    again = Instant::now() + PAUSE;
                }
                () = sleep_until(wake) => self.wake(),
            }
        }
        self.drain().await;
        Ok(self.report)
    }

    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        self.runtime.source.subscribe(from).await
    }

    fn room(&self) -> usize {
        self.runtime
            .settings
            .concurrency
            .saturating_sub(self.running.len())
    }

    fn note(&mut self, error: &SourceError) {
        match error {
            SourceError::Lagged { missed } => self.report.missed += missed,
            SourceError::NotTakenBack { .. } | SourceError::Unavailable { .. } => {
                self.report.errors += 1
            }
        }
        tracing::warn!(%error, "the source of events reported an error");
    }

    /// Puts a run into the ledger of every executor an event triggers, then acknowledges the event.
    async fn deliver(&mut self, delivery: Delivery) {
        self.report.events += 1;
        let delivery = Arc::new(delivery);
        let (mut kept, mut processed) = (true, false);
        for (id, route) in self.runtime.index.matching(&delivery.event) {
            match route {
                Route::Unmatched | Route::Context => continue,
                Route::Trigger { .. } | Route::NeedsContext => {}
            }
            let Some(executor) = self.runtime.executors.get(&id) else {
                continue;
            };
            match executor.store().ledger() {
                Some(ledger) => match enqueue(ledger, &**executor, &delivery.event).await {
                    Ok(()) => {
                        self.hot.add(id);
                    }
                    Err(error) => {
                        tracing::warn!(
                            executor = &*id,
                            error = error.code(),
                            "a run could not be enqueued"
                        );
                        kept = false;
                    }
                },
                None => {
                    processed = true;
                    let work = Work::Delivered(Arc::clone(&delivery));
                    self.waiting.push_back(Job {
                        executor: Arc::clone(executor),
                        work,
                    });
                }
            }
        }
        self.position = delivery.position.or(self.position);
        if !kept {
            // Runs that are in a ledger already stay as they are when the event comes again.
            self.settle(delivery.nack(PAUSE).await);
        } else if !processed {
            self.settle(delivery.ack().await);
        }
    }

    fn settle(&mut self, told: Result<(), SourceError>) {
        if let Err(error) = told {
            self.note(&error);
        }
    }

    /// Starts what waits, then due runs of the executors that may have some, as far as there is room.
    async fn fill(&mut self) {
        while self.room() > 0 {
            let Some(job) = self.waiting.pop_front() else {
                break;
            };
            self.start(job);
        }
        while self.room() > 0 {
            let Some(id) = self.hot.take() else { return };
            let Some(executor) = self.runtime.executors.get(&id) else {
                continue;
            };
            let Some(ledger) = executor.store().ledger() else {
                continue;
            };
            match claim_due(ledger, &id, self.room()).await {
                Ok(runs) if runs.is_empty() => {}
                Ok(runs) => {
                    // There may be more; the others have their turn first.
                    self.hot.add(id);
                    for (lease, attempts) in runs {
                        if self.claimed.insert(lease.run.clone()) {
                            self.start(Job {
                                executor: Arc::clone(executor),
                                work: Work::Claimed(lease, attempts),
                            });
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        executor = &*id,
                        error = error.code(),
                        "no runs could be claimed"
                    );
                    self.timers.add(Instant::now() + PAUSE, id);
                }
            }
        }
    }

    fn start(&mut self, job: Job) {
        let lease = match &job.work {
            Work::Claimed(lease, _) => Some(lease.clone()),
            Work::Delivered(_) => None,
        };
        let task = self.running.spawn(async move {
            let Job { executor, work } = job;
            let outcome = match &work {
                Work::Claimed(lease, attempts) => {
                    process_claimed(&*executor, lease, *attempts).await
                }
                Work::Delivered(delivery) => executor.process_event(&delivery.event).await,
            };
            Finished {
                executor: executor.id().into(),
                work,
                outcome,
            }
        });
        if let Some(lease) = lease {
            self.tasks.insert(task.id(), lease);
        }
    }

    async fn finish(&mut self, finished: Result<(task::Id, Finished), JoinError>) {
        let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let lease = self.tasks.remove(&id);
        if let Some(lease) = &lease {
            self.claimed.remove(&lease.run);
        }
        let Finished {
            executor,
            work,
            outcome,
        } = match finished {
            Ok((_, finished)) => finished,
            Err(error) => {
                let count = if error.is_panic() {
                    &mut self.report.panics
                } else {
                    &mut self.report.dropped
                };
                *count += 1;
                if let Some(lease) = lease {
                    self.give_back(lease, error.is_panic()).await;
                }
                return;
            }
        };
        self.report.count(&outcome);
        if let Err(error) = &outcome {
            tracing::debug!(
                executor = &*executor,
                error = error.code(),
                "a run did not end"
            );
        }
        // The last of the executors a delivery concerns acknowledges it.
        if let Work::Delivered(delivery) = work
            && let Some(delivery) = Arc::into_inner(delivery)
        {
            self.settle(delivery.ack().await);
        }
        if let Err(ExecutorError::Postponed { delay, .. }) = outcome {
            self.timers.add(later(Instant::now(), delay), executor);
        }
    }

    /// Gives back a run whose task is gone: at once if it was dropped, when its lease would be over if it panicked.
    async fn give_back(&mut self, lease: Lease, panicked: bool) {
        let Some(executor) = self.runtime.executors.get(&lease.run.executor) else {
            return;
        };
        let Some(ledger) = executor.store().ledger() else {
            return;
        };
        let run = lease.run.clone();
        let given_back = if panicked {
            self.timers
                .add(later(Instant::now(), run.lease), Arc::clone(&run.executor));
            let at = lease.until;
            ledger.retry(lease, at, true).await
        } else if executor.profile().execution == Execution::AtMostOnce {
            // How far it came is unknown; once its lease is over that is what its dead letter says.
            Ok(())
        } else {
            ledger.release(lease).await
        };
        match given_back {
            // It ended before its task did.
            Ok(()) | Err(StoreError::LeaseLost { .. }) => {}
            Err(error) => {
                tracing::warn!(%run, error = error.code(), "a run could not be given back");
            }
        }
    }

    fn wake(&mut self) {
        let now = Instant::now();
        if now >= self.sweep {
            self.runtime
                .executors
                .keys()
                .cloned()
                .for_each(|id| self.hot.add(id));
            self.sweep = later(now, self.runtime.settings.sweep);
        }
        self.timers
            .take_due(now)
            .into_iter()
            .for_each(|id| self.hot.add(id));
    }

    /// Lets running work finish, then drops what is left.
    async fn drain(&mut self) {
        let end = later(Instant::now(), self.runtime.settings.drain);
        while let Ok(Some(finished)) = timeout_at(end, self.running.join_next_with_id()).await {
            self.finish(finished).await;
        }
        self.running.abort_all();
        while let Some(finished) = self.running.join_next_with_id().await {
            self.finish(finished).await;
        }
    }
}

async fn next(deliveries: &mut Option<Deliveries>) -> Option<Result<Delivery, SourceError>> {
    match deliveries {
        Some(deliveries) => deliveries.next().await,
        None => std::future::pending().await,
    }
}

async fn enqueue(
    ledger: &dyn RunLedger,
    executor: &dyn UniversalExecutor,
    event: &Event,
) -> Result<(), StoreError> {
    let run = RunRef::of(executor.id(), event).lasting(executor.profile().lease);
    ledger.enqueue(vec![NewRun::from(run)]).await
}

/// Claims up to `n` due runs of an executor; with each the attempts it has had.
async fn claim_due(
    ledger: &dyn RunLedger,
    id: &Arc<str>,
    n: usize,
) -> Result<Vec<(Lease, u32)>, StoreError> {
    let limits = [ExecutorLimits::new(Arc::clone(id), n)];
    if ledger.claim_next(n, &limits).await? == 0 {
        return Ok(Vec::new());
    }
    let parked = ledger.runs(&RunFilter::parked().executor(&**id)).await?;
    Ok(parked
        .into_iter()
        .filter_map(|run| Some((run.lease?, run.attempts)))
        .collect())
}

/// Processes a claimed run from its row alone, and sees to it that it ends.
async fn process_claimed(
    executor: &dyn UniversalExecutor,
    lease: &Lease,
    attempts: u32,
) -> Result<Outcome, ExecutorError> {
    let most = executor.profile().retry.attempts.saturating_add(1);
    if attempts > most {
        // Whoever follows the pattern ends a run before that; this one leaves its runs to their leases.
        let class = FailureClass::CrashLoop;
        let letter = DeadLetter::new(class, "never_ended", attempts);
        let written = end(executor, lease, RunEnd::Failed(letter)).await?;
        return Ok(Outcome::Failed { class, written });
    }
    let outcome = match event_of(executor, lease).await? {
        Some(event) => executor.process_event(&event).await?,
        None => Outcome::Unmatched,
    };
    // Subscriptions may have changed since the run was added, and then nobody has ended it.
    if let Outcome::Unmatched | Outcome::ContextNoted = outcome {
        match end(executor, lease, RunEnd::Skipped("unmatched")).await {
            Ok(_) | Err(ExecutorError::LeaseLost { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

/// The event that led to a run. A run that was added by hand keeps none; its breadcrumb tells as much, if it is there.
async fn event_of(
    executor: &dyn UniversalExecutor,
    lease: &Lease,
) -> Result<Option<Arc<Event>>, ExecutorError> {
    let run = &lease.run;
    if let Some(event) = &run.event {
        return Ok(Some(Arc::clone(event)));
    }
    match executor.store().get(run.trigger_id).await {
        Ok(trigger) => Ok(Some(Arc::new(Event {
            version: run.trigger_version,
            ..Event::updated(&trigger)
        }))),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(source) => Err(ExecutorError::Store {
            operation: "read the trigger",
            source,
        }),
    }
}

/// Ends a run that `process_event` did not end.
async fn end(
    executor: &dyn UniversalExecutor,
    lease: &Lease,
    end: RunEnd,
) -> Result<Vec<BreadcrumbId>, ExecutorError> {
    let commit = Commit {
        writes: Vec::new(),
        end: Some((lease.clone(), end)),
    };
    match executor.store().commit(commit).await {
        Ok(committed) => Ok(committed.ids()),
        Err(StoreError::LeaseLost { run }) => Err(ExecutorError::LeaseLost { run }),
        Err(source) => Err(ExecutorError::Store {
            operation: "end the run",
            source,
        }),
    }
}
