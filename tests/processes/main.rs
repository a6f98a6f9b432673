//! Tests that start worker processes, kill them with SIGKILL and start them again.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a helper that fails must fail the test that uses it"
)]

mod agent;
mod approvals;
#[allow(dead_code, reason = "each test binary uses a different part")]
#[path = "../support/child.rs"]
mod child;
mod desk;
mod first_agent;
mod flow;
#[cfg(all(feature = "mcp", target_os = "linux"))]
mod mcp;
mod random;
mod workload;
