//! Tests of executors, tools and the runtime on the memory store, and of the crate as a whole.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails must fail the test that uses it"
)]

mod blocking_tools;
#[cfg(feature = "workflows")]
mod check_definitions;
#[allow(dead_code, reason = "each test binary uses a different part")]
#[path = "../support/child.rs"]
mod child;
mod contract;
mod executor;
mod guide;
mod key_order;
mod layers;
mod limits;
mod log_lines;
mod main_job;
mod messages;
#[cfg(feature = "metrics")]
mod metrics;
mod mock_store;
mod public_api;
mod readme;
mod runtime;
mod runtime_definitions;
mod runtime_order;
mod security;
#[allow(dead_code, reason = "each test binary uses a different part")]
#[path = "../support/mod.rs"]
mod support;
mod testing;
mod tools;
mod tracing;
