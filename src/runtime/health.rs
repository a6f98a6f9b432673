//! Health of a runtime, for liveness and readiness probes.

use super::breakers::OpenBreaker;
use super::registry::Registry;
use super::shared::{Shared, SourceState};
use super::store_context::Operation;
use super::timeouts::{RETRY_PAUSE, with_source_timeout};
use crate::source::EventSource;
use crate::tool::BlockingPool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// The health of a runtime, for liveness and readiness probes of a service.
///
/// Returned by [`Runtime::health`](super::Runtime::health). Use [`live`](Self::live) for a liveness
/// probe, which restarts the process, and [`ready`](Self::ready) for a readiness probe.
///
/// # Examples
/// ```
/// use universal_executor::{MemoryStore, Response, Runtime, Subscription, executor};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Ok(Response::none()) });
/// let store = MemoryStore::default();
///
/// let runtime = Runtime::on(&store).executor(clerk).build()?;
///
/// let health = runtime.health(); // the runtime has not been started
/// assert!(health.live && !health.ready);
/// assert_eq!(health.problems, ["the runtime is not running"]);
/// assert!(health.open_breakers.is_empty());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Health {
    /// If `false`, the runtime's tasks are no longer polled, because something blocks their threads. Restart the process.
    ///
    /// It becomes `false` after three times [`sweep_every`](super::RuntimeBuilder::sweep_every)
    /// plus 1 s without a poll, 16 s by default. A runtime that is not running or is stopping is
    /// live.
    pub live: bool,
    /// If `true`, there are no [`problems`](Self::problems): the runtime receives events and claims runs, and its source and stores
    /// answer.
    ///
    /// It is `false` before the start, during the start and during the drain.
    pub ready: bool,
    /// The reasons why the runtime is not ready, as text for an operator. Empty if the runtime is ready.
    ///
    /// The reasons are a runtime that is starting, stopping, not running or not [live](Self::live),
    /// an unavailable source, a store that fails, a thread that an executor blocks for more than
    /// 5 s, and slots for blocking tools that are all stuck.
    pub problems: Vec<String>,
    /// The executors whose circuit breaker is open. An open breaker does not make the runtime unready, because it concerns only
    /// one executor.
    ///
    /// Use them for an alert, or the metric [`BREAKER_OPEN`](super::metrics::BREAKER_OPEN).
    pub open_breakers: Vec<OpenBreaker>,
}

/// The state of a runtime's tasks, from which the runtime's health is computed.
#[derive(Default)]
pub(super) struct HealthState(Mutex<Option<RunningState>>);

struct RunningState {
    shared: Arc<Shared>,
    /// If `true`, the runtime has subscribed to the event source and loaded the definitions.
    started: bool,
    /// The runtime's readiness when it was last logged, or `None` before the first log line.
    ready: Option<bool>,
    last_heartbeat: Instant,
}

impl HealthState {
    /// Records the start of the runtime. Returns `false` if the runtime is already running.
    pub(super) fn begin(&self, shared: &Arc<Shared>) -> bool {
        let mut running = self.running();
        if running.is_some() {
            return false;
        }
        *running = Some(RunningState {
            shared: Arc::clone(shared),
            started: false,
            ready: None,
            last_heartbeat: Instant::now(),
        });
        true
    }

    /// Records that the runtime has subscribed to the event source and loaded the definitions.
    pub(super) fn started(&self) {
        if let Some(running) = &mut *self.running() {
            running.started = true;
        }
    }

    pub(super) fn end(&self) {
        *self.running() = None;
    }

    /// Logs the readiness of the runtime if it has changed since the start or the last call.
    pub(super) fn note_readiness(&self, shared: &Shared, worker: &str) {
        let is_started = |running: &Option<RunningState>| {
            let running = running.as_ref();
            running.is_some_and(|running| running.started)
        };
        if !is_started(&self.running()) {
            return;
        }
        let health = self.health(&shared.registry);
        // Nothing is logged under the lock: a log subscriber can block, or read the health.
        let changed = match &mut *self.running() {
            Some(running) if !shared.stop.is_cancelled() => {
                running.ready.replace(health.ready) != Some(health.ready)
            }
            Some(_) | None => false,
        };
        if !changed {
            return;
        }
        if health.ready {
            tracing::info!(worker, "the runtime is ready");
        } else {
            let problems = health.problems.join("; ");
            tracing::warn!(worker, problems, "the runtime is not ready");
        }
    }

    /// Updates the liveness timestamp of the runtime's tasks at regular intervals, and logs changes of readiness. Returns when the runtime
    /// stops.
    pub(super) async fn heartbeat(self: Arc<Self>, shared: Arc<Shared>, worker: Arc<str>) {
        loop {
            if let Some(running) = &mut *self.running() {
                running.last_heartbeat = Instant::now();
            }
            self.note_readiness(&shared, &worker);
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => return,
                () = sleep(shared.settings.sweep) => {}
            }
        }
    }

    pub(super) fn health(&self, registry: &Registry) -> Health {
        let mut problems = Vec::new();
        let (mut live, mut open_breakers) = (true, Vec::new());
        match &*self.running() {
            None => problems.push("the runtime is not running".to_owned()),
            Some(RunningState {
                shared,
                started,
                last_heartbeat,
                ..
            }) => {
                let (age, longest) = (
                    last_heartbeat.elapsed(),
                    max_heartbeat_age(shared.settings.sweep),
                );
                if shared.stop.is_cancelled() {
                    problems.push("the runtime is stopping".to_owned());
                } else if age > longest {
                    live = false;
                    problems.push(format!(
                        "the runtime's tasks have not been polled for {age:?}: something blocks their threads"
                    ));
                }
                for (executor, time) in shared.watchdog.blocking() {
                    problems.push(format!(
                        "executor {executor:?} has blocked a thread for {time:?}: replace blocking calls by async calls"
                    ));
                }
                open_breakers = shared.breakers.open();
                if !started {
                    problems.push("the runtime is starting".to_owned());
                }
                if !shared.has_source() {
                    problems.push("the event source is unavailable".to_owned());
                }
            }
        }
        for store_context in registry.store_contexts() {
            let failing: Vec<&str> = store_context.failing().map(Operation::name).collect();
            if !failing.is_empty() {
                let failing = failing.join(" and ");
                problems.push(format!(
                    "store {:?} fails to {failing}",
                    store_context.store()
                ));
            }
        }
        if BlockingPool::shared().all_stuck() {
            problems.push("every slot for blocking tools is stuck".to_owned());
        }
        Health {
            live,
            ready: problems.is_empty(),
            problems,
            open_breakers,
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After an error of the event source, checks the source repeatedly until the source answers. A source without events delivers nothing that
/// shows its recovery.
pub(super) async fn check_source(source: &dyn EventSource, shared: &Shared) {
    let mut states = shared.source_state();
    loop {
        let failed = states.wait_for(|state| matches!(state, SourceState::Failed { .. }));
        // The sender lives as long as `shared`.
        let Ok(state) = failed.await.map(|state| *state) else {
            return std::future::pending().await;
        };
        let SourceState::Failed { polled_at, .. } = state else {
            continue;
        };
        // The runtime polls the source before this check. A source that still fails then reports its next error.
        sleep_until(polled_at.max(Instant::now()) + RETRY_PAUSE).await;
        if with_source_timeout(source.behind()).await.is_ok() {
            shared.source_answered(state);
        }
    }
}

/// Returns the age of the liveness timestamp above which a runtime counts as not live. `interval` is the time between two updates
/// of the timestamp.
fn max_heartbeat_age(interval: Duration) -> Duration {
    interval.saturating_mul(3) + Duration::from_secs(1)
}
