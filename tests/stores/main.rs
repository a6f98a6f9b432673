//! Tests of the stores that need no server, of their wrappers, and of the client for a simulated RCRT server.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails must fail the test that uses it"
)]

#[cfg(feature = "sqlite")]
#[path = "../support/backup.rs"]
mod backup;
#[path = "../support/cancel/mod.rs"]
mod cancel;
#[allow(dead_code, reason = "each test binary uses a different part")]
#[cfg(feature = "sqlite")]
#[path = "../support/child.rs"]
mod child;
#[path = "../support/client.rs"]
mod client;
#[cfg(feature = "sqlite")]
#[path = "../support/clock_jumps.rs"]
mod clock_jumps;
#[cfg(feature = "sqlite")]
#[path = "../support/consumers.rs"]
mod consumers;
#[path = "../support/deploys.rs"]
mod deploys;
#[cfg(feature = "sqlite")]
#[path = "../support/inbox.rs"]
mod inbox;
#[path = "../support/ledger_model.rs"]
mod ledger_model;
mod memory;
#[path = "../support/one_store.rs"]
mod one_store;
#[cfg(all(feature = "rcrt", feature = "sqlite"))]
mod rcrt;
#[path = "../support/request_keys.rs"]
mod request_keys;
#[cfg(all(feature = "sqlite", feature = "workflows"))]
#[path = "../support/saved_states/mod.rs"]
mod saved_states;
#[path = "../support/search_model.rs"]
mod search_model;
mod security;
#[path = "../support/session.rs"]
mod session;
#[cfg(feature = "sqlite")]
mod sqlite;
#[path = "../support/start_stop.rs"]
mod start_stop;
#[allow(dead_code, reason = "each test binary uses a different part")]
#[path = "../support/mod.rs"]
mod support;
use support::log;
#[path = "../support/versions.rs"]
mod versions;
mod with_ledger;
#[path = "../support/worker.rs"]
mod worker;
mod wrappers;
