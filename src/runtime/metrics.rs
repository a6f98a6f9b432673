//! Metrics of a runtime: the names of its counters, gauges and histograms.
//!
//! With the feature `metrics`, the runtime reports them through the [`metrics`](https://docs.rs/metrics) facade. Install a
//! recorder before the runtime runs. Without the feature, these metrics are not recorded, but [`RunReport`](super::RunReport)
//! always counts. [`Instrumented`](crate::store::Instrumented) measures the calls of stores and sources, see
//! [`store::metrics`](crate::store::metrics).
//!
//! | name | kind | labels | meaning |
//! |---|---|---|---|
//! | [`EVENTS`] | counter | | events delivered by the source |
//! | [`MISSED`] | counter | | events that the source reported as dropped |
//! | [`FOUND`] | counter | | breadcrumbs whose events did not arrive, found in the store |
//! | [`MATCHES`] | counter | `executor` | events that may trigger an executor |
//! | [`RUNS`] | counter | `executor`, `outcome` | ended attempts |
//! | [`RUN_SECONDS`] | histogram | `executor` | duration of an attempt |
//! | [`LAG_SECONDS`] | histogram | `executor` | time from the commit of the trigger to the start of an attempt |
//! | [`IN_FLIGHT`] | gauge | | attempts in flight |
//! | [`QUEUE`] | gauge | `store` | deliveries whose runs are not enqueued yet |
//! | [`WAITS`] | gauge | `store` | open waits |
//! | [`DUE`] | gauge | `executor` | due runs, counted up to 1,000 |
//! | [`OLDEST_DUE_SECONDS`] | gauge | `executor` | time since the oldest due run became due |
//! | [`BREAKER_OPEN`] | gauge | `executor` | 1 while the circuit breaker of the executor is open, otherwise 0 |
//! | [`BEHIND`] | gauge | | events that the consumer has not acknowledged, if the source can count them |
//!
//! The gauges of due runs and of waiting events come from [`Runtime::backlog`](super::Runtime::backlog), once in each
//! [`reconcile_every`](super::RuntimeBuilder::reconcile_every). They cover all workers that share a store and a source, so each
//! worker reports the same values.
//!
//! The outcomes are the names of [`Outcome`](crate::Outcome) (`responded`, `failed`, `suspended`, ..), `postponed`, `error`,
//! `panic`, `dropped`, and `held` for a run that was released before it started.
//!
//! ```
//! assert_eq!(universal_executor::runtime::metrics::RUNS, "ux_runs_total");
//! ```

/// Name of the counter of events that the event source delivered.
///
/// Unit: events. It also counts events that concern no executor.
pub const EVENTS: &str = "ux_events_total";
/// Name of the counter of events that the event source reported as dropped.
///
/// Unit: events. The runtime searches the store for the breadcrumbs of these events.
pub const MISSED: &str = "ux_events_missed_total";
/// Name of the counter of breadcrumbs that sweeps found in the store because their events did not arrive.
///
/// Unit: breadcrumbs. It counts those that concern an executor, a wait or a definition.
pub const FOUND: &str = "ux_events_found_by_sweep_total";
/// Name of the counter of pairs of an event and an executor that the event may trigger. Label: `executor`.
///
/// Unit: events. An event that matches two executors counts for both.
pub const MATCHES: &str = "ux_matches_total";
/// Name of the counter of ended attempts of runs. Labels: `executor`, `outcome`.
///
/// Unit: attempts. Alert on the outcome `failed`, which means a dead letter.
pub const RUNS: &str = "ux_runs_total";
/// Name of the histogram of the durations of attempts of runs, in seconds. Label: `executor`.
///
/// It covers the assembly of the context, `execute` and the commit.
pub const RUN_SECONDS: &str = "ux_run_seconds";
/// Name of the histogram of the times from the commit of a trigger to the start of an attempt, in seconds. Label: `executor`.
///
/// Each attempt counts, so a retry has a longer time than the first attempt.
pub const LAG_SECONDS: &str = "ux_lag_seconds";
/// Name of the gauge of the attempts of runs in flight.
///
/// It covers this worker only. It can exceed [`concurrency`](super::RuntimeBuilder::concurrency)
/// while runs commit.
pub const IN_FLIGHT: &str = "ux_runs_in_flight";
/// Name of the gauge of the event deliveries whose runs are not enqueued yet. Label: `store`.
///
/// It covers this worker only. A value that stays high means that the store is slow. The label is a
/// number of the store in this process.
pub const QUEUE: &str = "ux_queue_depth";
/// Name of the gauge of the open calls of [`Runtime::wait_for`](super::Runtime::wait_for). Label: `store`.
///
/// It covers this worker only. The maximum is 10,000 for each store.
pub const WAITS: &str = "ux_waits_open";
/// Name of the gauge of an executor's due runs, counted up to 1,000. Label: `executor`.
///
/// It covers all workers of the store: take the maximum of the workers, not the sum.
pub const DUE: &str = "ux_runs_due";
/// Name of the gauge of the time since an executor's oldest due run became due, in seconds. Label: `executor`.
///
/// Alert if it increases: there are too few workers, or a limit delays the runs.
pub const OLDEST_DUE_SECONDS: &str = "ux_oldest_due_seconds";
/// Name of the gauge of the source's events that the runtime's consumer has not acknowledged, including undelivered events.
///
/// It covers all workers of the consumer. A source that cannot count its events sets no value.
pub const BEHIND: &str = "ux_events_behind";
/// Name of the gauge that is 1 while the circuit breaker of an executor is open, otherwise 0. Label: `executor`.
///
/// It covers this worker only. See [`OpenBreaker`](super::OpenBreaker).
pub const BREAKER_OPEN: &str = "ux_breaker_open";

#[cfg(feature = "metrics")]
mod facade {
    use std::sync::Arc;
    use std::time::Duration;

    pub(in crate::runtime) fn add(name: &'static str, n: u64) {
        metrics::counter!(name).increment(n);
    }

    pub(in crate::runtime) fn matched(executor: &Arc<str>) {
        metrics::counter!(super::MATCHES, "executor" => Arc::clone(executor)).increment(1);
    }

    pub(in crate::runtime) fn started(executor: &Arc<str>, lag: Duration) {
        metrics::gauge!(super::IN_FLIGHT).increment(1.0);
        metrics::histogram!(super::LAG_SECONDS, "executor" => Arc::clone(executor)).record(lag);
    }

    pub(in crate::runtime) fn ended(executor: &Arc<str>, outcome: &'static str, took: Duration) {
        metrics::gauge!(super::IN_FLIGHT).decrement(1.0);
        metrics::counter!(super::RUNS, "executor" => Arc::clone(executor), "outcome" => outcome)
            .increment(1);
        metrics::histogram!(super::RUN_SECONDS, "executor" => Arc::clone(executor)).record(took);
    }

    pub(in crate::runtime) fn breaker(executor: &Arc<str>, open: bool) {
        let level = if open { 1.0 } else { 0.0 };
        metrics::gauge!(super::BREAKER_OPEN, "executor" => Arc::clone(executor)).set(level);
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a gauge is a float, and what is counted here is small"
    )]
    pub(in crate::runtime) fn set_gauge(name: &'static str, store: u64, depth: usize) {
        metrics::gauge!(name, "store" => store.to_string()).set(depth as f64);
    }
}

#[cfg(not(feature = "metrics"))]
mod facade {
    use std::sync::Arc;
    use std::time::Duration;

    pub(in crate::runtime) const fn add(_: &'static str, _: u64) {}

    pub(in crate::runtime) const fn matched(_: &Arc<str>) {}

    pub(in crate::runtime) const fn started(_: &Arc<str>, _: Duration) {}

    pub(in crate::runtime) const fn ended(_: &Arc<str>, _: &'static str, _: Duration) {}

    pub(in crate::runtime) const fn breaker(_: &Arc<str>, _: bool) {}

    pub(in crate::runtime) const fn set_gauge(_: &'static str, _: u64, _: usize) {}
}

pub(super) use facade::{add, breaker, ended, matched, set_gauge, started};
