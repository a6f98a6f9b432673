//! What a runtime keeps when much happens at a time: order, bounds, retries, chaos, loops, faults and the end.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot do its work fails the test that uses it"
)]

mod bounds;
mod budget;
mod chaos;
mod faults;
mod loops;
mod order;
mod retries;
mod seeds;
mod shutdown;
mod stage;
#[expect(dead_code, reason = "shared with other tests, which use the rest")]
#[path = "../executor/support.rs"]
mod support;
mod taken_back;
