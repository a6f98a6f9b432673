//! Listeners for the events of workload runs.

use super::event::WorkloadEvent;
use crate::executor::{Record, TurnEvents};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A listener for workload events, and a flag that is set once the listener has panicked.
struct Listener<F: ?Sized = dyn Fn(WorkloadEvent) + Send + Sync> {
    has_panicked: AtomicBool,
    callback: F,
}

impl Listener {
    /// Calls the listener with a workload event. A panic of the listener affects neither the turn nor other listeners,
    /// and the listener still receives the next events.
    fn notify(&self, event: WorkloadEvent) {
        let result = catch_unwind(AssertUnwindSafe(|| (self.callback)(event)));
        if result.is_err() && !self.has_panicked.swap(true, Ordering::Relaxed) {
            tracing::warn!("listener for workload events panicked; it still receives later events");
        }
    }
}

/// The listeners for the events of a workload run.
#[derive(Clone, Default)]
pub(super) struct Sink(Vec<Arc<Listener>>);

impl Sink {
    pub(super) fn new(listener: impl Fn(WorkloadEvent) + Send + Sync + 'static) -> Self {
        Self(vec![Arc::new(Listener {
            has_panicked: AtomicBool::new(false),
            callback: listener,
        })])
    }

    /// Returns a sink that sends workload events to the client of a chat turn. Model text is sent only if `with_text`
    /// is `true`.
    pub(super) fn of_turn(events: Arc<TurnEvents>, with_text: bool) -> Self {
        Self::new(move |event| {
            let record = event.kind.into_record();
            let record = record.filter(|record| with_text || !matches!(record, Record::Text(_)));
            if let Some(record) = record {
                events.add(record);
            }
        })
    }

    /// Returns a sink with the listeners of both sinks for workload events.
    pub(super) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    pub(super) fn send(&self, event: WorkloadEvent) {
        if let Some((last, others)) = self.0.split_last() {
            for listener in others {
                listener.notify(event.clone());
            }
            last.notify(event);
        }
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sink").field(&self.0.len()).finish()
    }
}
