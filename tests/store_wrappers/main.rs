//! What wraps a store or a source: it keeps the promises of what is inside, and does what it is there for.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on may panic, helpers included"
)]
#![expect(
    clippy::panic,
    reason = "a test that cannot go on may panic, helpers included"
)]

mod calls;
mod faulty;
mod faulty_source;
mod flawed;
#[path = "../store_memory/source.rs"]
mod memory_source;
mod observed;
mod promises;
#[path = "../executor/support.rs"]
#[expect(dead_code, reason = "this target needs only some of the helpers")]
mod support;
mod watched;
mod wrapped;
