//! State shared by the tasks of a running runtime.

use super::breakers::Breakers;
use super::definitions::DefinitionLoader;
use super::progress::Progress;
use super::registry::Registry;
use super::settings::Settings;
use super::watchdog::Watchdog;
use super::{RunReport, metrics};
use crate::clock::{Clock, wall_micros};
use crate::model::Timestamp;
use crate::source::{EventSource, SourceError};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) registry: Arc<Registry>,
    pub(super) definition_loader: Option<Arc<DefinitionLoader>>,
    /// If `true`, the event source reports every loss of events.
    pub(super) source_is_complete: bool,
    /// If `true`, the event source may deliver an event to another worker and not to this worker.
    pub(super) source_is_shared: bool,
    /// State of the runtime's subscription to the event source.
    source: watch::Sender<SourceState>,
    /// Permits for the executing runs of all executors of the runtime.
    pub(super) run_permits: Arc<Semaphore>,
    /// Permits for the runs that only wait for the commit of their response. Such a run needs no permit to execute.
    pub(super) commit_permits: Arc<Semaphore>,
    /// Number of schedulers that wait for a permit to execute a run.
    waiting: AtomicUsize,
    /// Token that is cancelled when the runtime stops. The runtime claims no more runs after the cancellation.
    pub(super) stop: CancellationToken,
    /// If `true`, the call of `run_until` that ran the runtime has ended, or its future was dropped.
    has_ended: AtomicBool,
    pub(super) progress: Arc<Progress>,
    /// Detector of executors that block a thread.
    pub(super) watchdog: Watchdog,
    /// The open circuit breakers of the runtime's executors.
    pub(super) breakers: Breakers,
    report: Mutex<RunReport>,
    clock: Clock,
}

impl Shared {
    pub(super) fn new(
        settings: Settings,
        registry: Arc<Registry>,
        definition_loader: Option<Arc<DefinitionLoader>>,
        progress: Arc<Progress>,
        source: &dyn EventSource,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            registry,
            definition_loader,
            source_is_complete: source.is_complete(),
            source_is_shared: source.is_shared(),
            source: watch::Sender::new(SourceState::Delivers),
            run_permits: Arc::new(Semaphore::new(
                settings.concurrency.min(Semaphore::MAX_PERMITS),
            )),
            commit_permits: Arc::new(Semaphore::new(
                settings.concurrency.min(Semaphore::MAX_PERMITS),
            )),
            waiting: AtomicUsize::new(0),
            stop: CancellationToken::new(),
            has_ended: AtomicBool::new(false),
            progress,
            watchdog: Watchdog::start(),
            breakers: Breakers::default(),
            report: Mutex::default(),
            clock: Clock::start(),
        })
    }

    /// Acquires a permit to execute a run. If other schedulers wait, it yields first, because they may have been granted a permit.
    pub(super) async fn acquire_run_permit(self: Arc<Self>) -> Option<OwnedSemaphorePermit> {
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = WaitingGuard(&self.waiting);
        if others > 0 {
            tokio::task::yield_now().await;
        }
        // This semaphore is never closed.
        Arc::clone(&self.run_permits).acquire_owned().await.ok()
    }

    /// Acquires up to `limit` free permits to execute runs, without waiting. Leaves an equal share of the free permits for each waiting
    /// scheduler.
    pub(super) fn try_acquire_run_permits(&self, limit: usize) -> Vec<OwnedSemaphorePermit> {
        let others = self.waiting.load(Ordering::Relaxed);
        let share = self.run_permits.available_permits().div_ceil(others + 1);
        let mut run_permits = Vec::new();
        while run_permits.len() < share.min(limit)
            && let Ok(permit) = Arc::clone(&self.run_permits).try_acquire_owned()
        {
            run_permits.push(permit);
        }
        run_permits
    }

    /// Returns a guard that marks the runtime as ended when the guard is dropped.
    pub(super) fn end_guard(self: &Arc<Self>) -> EndGuard {
        EndGuard(Arc::clone(self))
    }

    /// Polls the future of an executor's run until the runtime has ended, and detects polls that block a thread.
    pub(super) async fn watched<T>(
        self: Arc<Self>,
        executor: Arc<str>,
        work: impl Future<Output = T>,
    ) -> T {
        let watching = Arc::clone(&self);
        self.until_ended(watching.watchdog.watch(&executor, work))
            .await
    }

    /// Polls the work of a run until the runtime has ended. After that the future stays pending: a task that was dropped may be polled
    /// again before its abort takes effect, and must not write.
    pub(super) async fn until_ended<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| match self.has_ended.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false => work.as_mut().poll(context),
        })
        .await
    }

    /// Returns the current time by this computer's clock. In a test with tokio's paused clock, the returned time also advances with
    /// that clock.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.micros().max(wall_micros()))
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut RunReport)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn report(&self) -> RunReport {
        let members = self.registry.all().into_iter();
        let without_ledger = members.filter(|member| !member.store_context.runs().is_durable());
        let ids = without_ledger.map(|member| member.executor.id().to_owned());
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        RunReport {
            without_ledger: ids.collect(),
            ..report.clone()
        }
    }

    pub(super) fn note(&self, error: &SourceError) {
        self.count(|report| match error {
            SourceError::Lagged { missed, .. } => {
                metrics::add(metrics::MISSED, *missed);
                report.missed += missed;
            }
            SourceError::NoRedelivery { .. }
            | SourceError::Refused(_)
            | SourceError::Unavailable { .. } => {
                report.errors += 1;
            }
        });
    }

    /// Records that the event source delivered an event or accepted a subscription.
    pub(super) fn source_delivers(&self) {
        self.source.send_if_modified(|state| {
            let changed = *state != SourceState::Delivers;
            *state = SourceState::Delivers;
            changed
        });
    }

    /// Records that the stream of events of the event source ended.
    pub(super) fn source_ended(&self) {
        self.source.send_replace(SourceState::Ended);
    }

    /// Records an error of the event source, and the time at which the runtime polls the stream again.
    pub(super) fn source_failed(&self, error: u64, polled_at: Instant) {
        self.source
            .send_replace(SourceState::Failed { error, polled_at });
    }

    /// Records that the event source answered after an error. Ignored if the source has failed again or ended since.
    pub(super) fn source_answered(&self, after: SourceState) {
        self.source.send_if_modified(|state| {
            let is_same = *state == after;
            if is_same {
                *state = SourceState::Delivers;
            }
            is_same
        });
    }

    /// Returns the number of runs that execute, including the runs that a claim in flight may start.
    pub(super) fn runs_in_flight(&self) -> usize {
        let limit = self.settings.concurrency.min(Semaphore::MAX_PERMITS);
        limit.saturating_sub(self.run_permits.available_permits())
    }

    /// Returns a receiver of the state of the runtime's subscription to the event source.
    pub(super) fn source_state(&self) -> watch::Receiver<SourceState> {
        self.source.subscribe()
    }

    pub(super) fn has_source(&self) -> bool {
        *self.source.borrow() == SourceState::Delivers
    }
}

/// State of the runtime's subscription to the event source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SourceState {
    /// The subscription to the event source is open, and nothing has failed since the last delivery or check.
    Delivers,
    /// The stream of the event source reported an error and is still open.
    Failed {
        /// Sequence number of the error of the event source. The number distinguishes this error from later errors.
        error: u64,
        /// Time at which the runtime polls the stream of the event source again.
        polled_at: Instant,
    },
    /// The stream of the event source ended, and no new subscription is open.
    Ended,
}

/// A guard that marks the runtime as ended when it is dropped.
pub(super) struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }
}

/// A guard that counts a scheduler that waits for a permit, until the guard is dropped.
struct WaitingGuard<'c>(&'c AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
