//! What a runtime counts, through the [`metrics`](https://docs.rs/metrics) facade, with the feature `metrics`: install a
//! recorder before the runtime runs. Without the feature nothing is counted here; [`RunReport`](super::RunReport) always
//! is. How long a store or a source takes is measured by [`Instrumented`](crate::store::Instrumented):
//! [`store::metrics`](crate::store::metrics).
//!
//! | name | kind | labels | what |
//! |---|---|---|---|
//! | [`EVENTS`] | counter | | events delivered by the source |
//! | [`MISSED`] | counter | | events that the source says it dropped |
//! | [`FOUND`] | counter | | breadcrumbs that no event told of, found in the store |
//! | [`MATCHES`] | counter | `executor` | events that set an executor off |
//! | [`RUNS`] | counter | `executor`, `outcome` | attempts, by how they ended |
//! | [`RUN_SECONDS`] | histogram | `executor` | how long an attempt took |
//! | [`LAG_SECONDS`] | histogram | `executor` | from the commit of the trigger to the start of an attempt at it |
//! | [`IN_FLIGHT`] | gauge | | attempts under way |
//! | [`QUEUE`] | gauge | `store` | deliveries that wait to be put into a ledger |
//! | [`WAITS`] | gauge | `store` | waits that are open |
//! | [`DUE`] | gauge | `executor` | runs that could be claimed, counted up to 1,000 |
//! | [`OLDEST_DUE_SECONDS`] | gauge | `executor` | for how long the oldest of them could be |
//! | [`BREAKER_OPEN`] | gauge | `executor` | 1 while the circuit breaker of the executor is open, otherwise 0 |
//! | [`BEHIND`] | gauge | | events that the source has for this runtime, if it knows |
//!
//! The gauges of due runs and of waiting events are those of [`Runtime::backlog`](super::Runtime::backlog), asked for once in each
//! [`reconcile_every`](super::RuntimeBuilder::reconcile_every): of all workers that share a store and a source, so each
//! says the same.
//!
//! The outcomes are those of [`Outcome`](crate::Outcome) (`responded`, `failed`, `suspended`, ..), `postponed`, `error`,
//! `panic`, `dropped`, and `held` for what was given back before it began.
//!
//! ```
//! assert_eq!(universal_executor::runtime::metrics::RUNS, "ux_runs_total");
//! ```

/// Events delivered by the source.
pub const EVENTS: &str = "ux_events_total";
/// Events that the source says it dropped.
pub const MISSED: &str = "ux_events_missed_total";
/// Breadcrumbs that no event told of, found in the store.
pub const FOUND: &str = "ux_events_found_by_sweep_total";
/// Events that set an executor off.
pub const MATCHES: &str = "ux_matches_total";
/// Attempts, by how they ended.
pub const RUNS: &str = "ux_runs_total";
/// How long an attempt took.
pub const RUN_SECONDS: &str = "ux_run_seconds";
/// From the commit of the trigger to the start of an attempt at it.
pub const LAG_SECONDS: &str = "ux_lag_seconds";
/// Attempts under way.
pub const IN_FLIGHT: &str = "ux_runs_in_flight";
/// Deliveries that wait to be put into a ledger.
pub const QUEUE: &str = "ux_queue_depth";
/// Waits that are open.
pub const WAITS: &str = "ux_waits_open";
/// Runs that could be claimed.
pub const DUE: &str = "ux_runs_due";
/// For how long the oldest run that could be claimed could be.
pub const OLDEST_DUE_SECONDS: &str = "ux_oldest_due_seconds";
/// Events that the source has for this runtime.
pub const BEHIND: &str = "ux_events_behind";
/// 1 while the circuit breaker of an executor is open, otherwise 0.
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
    pub(in crate::runtime) fn level(name: &'static str, store: u64, depth: usize) {
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

    pub(in crate::runtime) const fn level(_: &'static str, _: u64, _: usize) {}
}

pub(super) use facade::{add, breaker, ended, level, matched, started};
