//! Metrics of [`Instrumented`](super::Instrumented) stores and sources, through the [`metrics`](https://docs.rs/metrics) facade, with the
//! feature `metrics`. Install a recorder first. The metrics of a runtime are in [`runtime::metrics`](crate::runtime::metrics).
//!
//! | name | kind | labels | what |
//! |---|---|---|---|
//! | [`STORE_SECONDS`] | histogram | `operation`, `outcome` | how long a call of a store or its ledger took |
//! | [`SOURCE_SECONDS`] | histogram | `operation`, `outcome` | how long a call of a source took; of `next`, the wait for an event too |
//!
//! The operations are the names of [`Operation`](super::Operation): `get`, `claim_next`, .. The outcomes are `ok`, the
//! codes of [`StoreError`](super::StoreError::code) and [`SourceError`](crate::source::SourceError::code), `dropped` for
//! a call that nobody waited for any more, and `ended` for a stream that has no more events.
//!
//! ```
//! assert_eq!(universal_executor::store::metrics::STORE_SECONDS, "ux_store_seconds");
//! ```

/// How long a call of a store or its ledger took.
pub const STORE_SECONDS: &str = "ux_store_seconds";
/// How long a call of a source took; of `next`, the wait for an event too.
pub const SOURCE_SECONDS: &str = "ux_source_seconds";

#[cfg(feature = "metrics")]
mod facade {
    use crate::store::Operation;
    use std::time::Duration;

    pub(in crate::store) fn took(
        name: &'static str,
        operation: Operation,
        outcome: &'static str,
        took: Duration,
    ) {
        metrics::histogram!(name, "operation" => operation.name(), "outcome" => outcome)
            .record(took);
    }
}

#[cfg(not(feature = "metrics"))]
mod facade {
    use crate::store::Operation;
    use std::time::Duration;

    pub(in crate::store) const fn took(
        _: &'static str,
        _: Operation,
        _: &'static str,
        _: Duration,
    ) {
    }
}

pub(super) use facade::took;
