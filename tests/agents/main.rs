//! Tests of agents, and of the model and program providers behind them.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a helper that fails must fail the test that uses it"
)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that fails must fail the test that uses it; only the helpers of some features do so"
)]

mod agent;
#[cfg(any(
    feature = "cli",
    feature = "genai",
    feature = "mcp",
    feature = "openai"
))]
#[path = "../support/child.rs"]
#[allow(dead_code, reason = "each test binary uses a different part")]
mod child;
// These tests inspect processes in /proc.
#[cfg(all(feature = "cli", target_os = "linux"))]
mod cli;
#[cfg(feature = "genai")]
mod genai;
// These tests inspect processes in /proc.
#[cfg(all(feature = "mcp", target_os = "linux"))]
mod mcp;
#[cfg(any(feature = "genai", feature = "openai"))]
mod media;
#[cfg(feature = "openai")]
mod openai;
mod security;
#[allow(dead_code, reason = "each provider uses a different part")]
#[cfg(any(feature = "genai", feature = "mcp", feature = "openai"))]
mod server;
#[cfg(all(feature = "cli", feature = "openai", target_os = "linux"))]
mod setups;
#[allow(dead_code, reason = "each test binary uses a different part")]
#[path = "../support/mod.rs"]
mod support;
#[cfg(any(feature = "genai", feature = "openai"))]
mod thoughts;
mod words;
