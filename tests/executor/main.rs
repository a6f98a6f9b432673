//! Executors on the memory store: what they are given, what becomes of their runs, and what runs them.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot do its work fails the test that uses it"
)]

mod agents;
mod context;
mod endings;
mod for_model;
mod runs;
mod runtime;
#[expect(dead_code, reason = "the tests of the runtime use the rest")]
mod support;
mod tools_and_agents;
mod unseen;
mod with_ledger;
