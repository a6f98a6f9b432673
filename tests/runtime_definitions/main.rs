//! A runtime that follows definitions in its store, and what it tells of itself: its health and its graph.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a helper that cannot do its work fails the test that uses it"
)]

mod following;
mod given;
mod graph;
mod health;
mod refused;
#[path = "../executor/support.rs"]
#[expect(dead_code, reason = "this target needs only some of the helpers")]
mod support;
mod traffic;
mod workers;
