//! Tests of workflows, workloads and sessions.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails must fail the test that uses it"
)]

mod flow;
mod workload;
