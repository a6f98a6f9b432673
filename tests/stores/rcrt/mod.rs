//! The RCRT (Right Context Right Time) store and its source, against a loopback server that stores breadcrumbs like the real server
//! and fails on demand.

mod agents;
mod clocks;
mod creating;
#[cfg(feature = "workflows")]
mod definitions;
mod downtime;
mod follow;
mod kills;
#[cfg(target_os = "linux")]
mod memory;
mod quirks;
mod reading;
mod recipe;
mod runs;
mod server;
mod slow;
mod sources;
mod stores;
mod tokens;
mod torture;
mod updating;
mod world;

use server::Server;
use std::time::Duration;
use universal_executor::source::{BearerToken, SseError, SseSource, TokenError};
use universal_executor::store::{RcrtBuilder, RcrtError};
use universal_executor::{RcrtStore, Secret};

const OWNER: &str = "00000000-0000-0000-0000-000000000001";
/// The ID of another owner.
const THEIRS: &str = "00000000-0000-0000-0000-000000000002";

/// Returns the builder of a store with an owner's token and short timeouts.
fn builder(server: &Server, owner: &str) -> RcrtBuilder {
    RcrtStore::builder(server.base_url(), owner)
        .token(Secret::new(server::token_of(owner)))
        .lookup_timeout(Duration::from_millis(100))
        .retry_pause(Duration::from_millis(1), Duration::from_millis(5))
        .reconnect(Duration::from_millis(5), Duration::from_millis(50))
}

fn store(server: &Server) -> RcrtStore {
    builder(server, OWNER).build().unwrap()
}

#[test]
fn stores_sources_and_their_errors_may_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<RcrtStore>();
    shared::<RcrtBuilder>();
    shared::<RcrtError>();
    shared::<SseSource>();
    shared::<SseError>();
    shared::<BearerToken>();
    shared::<TokenError>();
}
