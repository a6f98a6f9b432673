//! Records of the executors whose circuit breaker is open, for health reports and metrics.

use super::limits::{BreakerChange, OpenCircuit};
use super::metrics;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// An executor whose circuit breaker is open.
///
/// At least ten different triggers of the executor failed with a transient error, and no run has succeeded since. New
/// triggers still run. Failed runs wait until a run succeeds; one of them at a time is retried as a probe.
///
/// Listed in [`Health::open_breakers`](super::Health::open_breakers). The first probe starts 5 s
/// after the breaker opened. The pause doubles after each failed probe, up to 60 s. The success of
/// any run that started after the breaker opened closes the breaker. Permanent errors do not open
/// it. Each runtime has its own breakers, in memory only.
///
/// An open breaker usually means that an external service is down. No action is needed when it
/// recovers.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct OpenBreaker {
    /// ID of the executor whose circuit breaker is open.
    pub executor: Arc<str>,
    /// The number of different triggers of the executor that failed since the last success, counted up to 1,000.
    pub failing_triggers: usize,
    /// The error code of the executor's last failed attempt, or the outcome of the run, such as `failed`, if this attempt ended the run.
    pub last_error: &'static str,
    /// The duration until the executor's circuit breaker may start the next probe, which is the retry of one failed run. Zero if
    /// the probe is due or running.
    ///
    /// At most 60 s.
    pub next_probe_in: Duration,
}

/// The open circuit breakers by store and executor, bounded by the number of executors.
#[derive(Debug, Default)]
pub(super) struct Breakers(Mutex<OpenByExecutor>);

/// The state and the last error of each open circuit breaker, by store and executor.
type OpenByExecutor = BTreeMap<(u64, Arc<str>), (OpenCircuit, &'static str)>;

impl Breakers {
    /// Records the state of an executor's open circuit breaker, or removes the record if the breaker is closed (`None`).
    pub(super) fn set(
        &self,
        store_number: u64,
        executor: &Arc<str>,
        open: Option<OpenCircuit>,
        last_error: &'static str,
    ) {
        let key = (store_number, Arc::clone(executor));
        let mut breakers = self.lock();
        match open {
            Some(open) => drop(breakers.insert(key, (open, last_error))),
            None => drop(breakers.remove(&key)),
        }
        drop(breakers);
        metrics::breaker(executor, open.is_some());
    }

    /// Records the state of an executor's circuit breaker after a run, and logs a change of the state.
    pub(super) fn note(
        &self,
        (store_number, executor): (u64, &Arc<str>),
        change: Option<BreakerChange>,
        open: Option<OpenCircuit>,
        last_error: &'static str,
    ) {
        self.set(store_number, executor, open, last_error);
        let executor = &**executor;
        match change {
            None => {}
            Some(BreakerChange::Opened(open)) => tracing::warn!(
                executor,
                failing_triggers = open.failing,
                last_error,
                next_probe_in_ms = next_probe_in_ms(open),
                "circuit breaker opened: all recent runs of the executor failed, and retries wait until a probe run succeeds"
            ),
            Some(BreakerChange::ProbeFailed(open)) => tracing::warn!(
                executor,
                failing_triggers = open.failing,
                last_error,
                next_probe_in_ms = next_probe_in_ms(open),
                "circuit breaker stays open: the probe run failed"
            ),
            Some(BreakerChange::Closed { failures }) => {
                tracing::info!(
                    executor,
                    failures,
                    "circuit breaker closed: a run succeeded"
                );
            }
        }
    }

    /// Returns the executors whose circuit breaker is open, sorted by store and executor.
    pub(super) fn open(&self) -> Vec<OpenBreaker> {
        let now = Instant::now();
        let breakers = self.lock();
        let open = breakers
            .iter()
            .map(|((_, executor), (open, last_error))| OpenBreaker {
                executor: Arc::clone(executor),
                failing_triggers: open.failing,
                last_error,
                next_probe_in: open.next_probe.saturating_duration_since(now),
            });
        open.collect()
    }

    fn lock(&self) -> MutexGuard<'_, OpenByExecutor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn next_probe_in_ms(open: OpenCircuit) -> u64 {
    let pause = open.next_probe.saturating_duration_since(Instant::now());
    u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
}
