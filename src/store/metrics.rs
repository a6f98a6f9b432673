//! Metrics of [`Instrumented`](super::Instrumented) stores and sources, through the [`metrics`](https://docs.rs/metrics) facade, with the
//! feature `metrics`. Install a recorder first. The metrics of a runtime are in [`runtime::metrics`](crate::runtime::metrics).
//!
//! Use this module when a dashboard or an alert needs the names of the metrics. `ux_store_seconds`
//! by `operation` shows slow calls, and by `outcome` failing calls. A recorder is, for example,
//! `metrics-exporter-prometheus`.
//!
//! | name | kind | labels | value |
//! |---|---|---|---|
//! | [`STORE_SECONDS`] | histogram | `operation`, `outcome` | duration of a call of a store or its ledger |
//! | [`SOURCE_SECONDS`] | histogram | `operation`, `outcome` | duration of a call of a source; for `next`, with the wait for an event |
//!
//! The label `operation` is the name of an [`Operation`](super::Operation), such as `get` or `claim_next`. The label `outcome` is
//! `ok`, a code of [`StoreError`](super::StoreError::code) or [`SourceError`](crate::source::SourceError::code), `dropped` for a
//! call whose future was dropped, or `ended` for a stream without further events.
//!
//! ```
//! assert_eq!(universal_executor::store::metrics::STORE_SECONDS, "ux_store_seconds");
//! ```

/// Name of the histogram of the durations of calls of a store or its ledger, in seconds.
pub const STORE_SECONDS: &str = "ux_store_seconds";
/// Name of the histogram of the durations of calls of an event source, in seconds. A call of `next` includes the wait for an
/// event.
pub const SOURCE_SECONDS: &str = "ux_source_seconds";

#[cfg(feature = "metrics")]
mod facade {
    use crate::store::Operation;
    use std::time::Duration;

    pub(in crate::store) fn record_call(
        name: &'static str,
        operation: Operation,
        outcome: &'static str,
        duration: Duration,
    ) {
        metrics::histogram!(name, "operation" => operation.name(), "outcome" => outcome)
            .record(duration);
    }
}

#[cfg(not(feature = "metrics"))]
mod facade {
    use crate::store::Operation;
    use std::time::Duration;

    pub(in crate::store) const fn record_call(
        _: &'static str,
        _: Operation,
        _: &'static str,
        _: Duration,
    ) {
    }
}

pub(super) use facade::record_call;
