//! What others write does no harm, even to an agent whose model obeys every order that it reads.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that cannot do its work fails the test that uses it"
)]

mod forged;
mod injected;
mod log;
mod model;
#[expect(dead_code, reason = "the tests of the executors use the rest")]
#[path = "../executor/support.rs"]
mod support;
mod world;
