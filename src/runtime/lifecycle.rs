//! Log lines about the life of a runtime: started, draining, stopped.

use super::registry::Registry;
use super::shared::Shared;
use super::{RunReport, Runtime};
use std::time::Duration;

/// Logs the start of a runtime: it has subscribed to the event source and loaded the definitions.
pub(super) fn log_started(runtime: &Runtime, position: Option<u64>) {
    let executors = runtime.executors().join(", ");
    let stores = stores(&runtime.registry);
    let source = runtime.source.description();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        worker = &*runtime.name,
        executors,
        stores,
        source,
        last_event = position,
        "the runtime started"
    );
}

/// Logs that a stopping runtime claims no more runs, and the number of runs in flight.
pub(super) fn log_draining(runtime: &Runtime, shared: &Shared) {
    tracing::info!(
        worker = &*runtime.name,
        runs_in_flight = shared.runs_in_flight(),
        timeout_ms = millis(runtime.settings.drain),
        "the runtime stops and waits for its running work"
    );
}

/// Logs the end of a runtime with its counts of events and runs.
pub(super) fn log_stopped(runtime: &Runtime, report: &RunReport) {
    tracing::info!(
        worker = &*runtime.name,
        events = report.events,
        found_by_sweep = report.found_by_sweep,
        missed = report.missed,
        responded = report.responded,
        failed = report.failed,
        suspended = report.suspended,
        skipped = report.skipped,
        postponed = report.postponed,
        errors = report.errors,
        panics = report.panics,
        dropped = report.dropped,
        "the runtime stopped"
    );
}

/// Logs that the future of `run_until` was dropped.
pub(super) fn log_dropped(runtime: &Runtime) {
    tracing::info!(
        worker = &*runtime.name,
        "the runtime was dropped, and its running work is released"
    );
}

/// Returns the descriptions of the stores on which a runtime's executors run, separated by commas.
fn stores(registry: &Registry) -> String {
    let store_contexts = registry.store_contexts().into_iter();
    let stores: Vec<String> = store_contexts
        .map(|store_context| format!("{:?}", store_context.store()))
        .collect();
    stores.join(", ")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
