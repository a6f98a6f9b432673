//! Tests of workflows, workloads and sessions.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails must fail the test that uses it"
)]

mod flow;
#[allow(dead_code, reason = "each test binary uses a different part")]
#[path = "../support/log.rs"]
mod log;
mod workload;
