//! Tests that need PostgreSQL or NATS. `scripts/services` starts both.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails must fail the test that uses it"
)]

#[path = "../support/backup.rs"]
mod backup;
#[path = "../support/cancel/mod.rs"]
mod cancel;
#[path = "../support/client.rs"]
mod client;
#[path = "../support/clock_jumps.rs"]
mod clock_jumps;
#[path = "../support/consumers.rs"]
mod consumers;
#[path = "../support/deploys.rs"]
mod deploys;
mod embedding;
#[cfg(all(
    feature = "openai",
    feature = "rcrt",
    feature = "validate",
    feature = "yaml"
))]
mod first_failures;
#[path = "../support/inbox.rs"]
mod inbox;
#[path = "../support/ledger_model.rs"]
mod ledger_model;
#[path = "../support/log.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod log;
mod nats;
#[path = "../support/one_store.rs"]
mod one_store;
mod postgres;
#[path = "../support/request_keys.rs"]
mod request_keys;
#[path = "../support/saved_states/mod.rs"]
mod saved_states;
#[path = "../support/search_model.rs"]
mod search_model;
mod security;
#[path = "../support/session.rs"]
mod session;
#[path = "../support/start_stop.rs"]
mod start_stop;
mod tls;
#[path = "../support/versions.rs"]
mod versions;
#[path = "../support/worker.rs"]
mod worker;
