//! What wraps a store or a source: it keeps the promises of what is inside, and does what it is there for.

mod calls;
mod faulty;
mod faulty_source;
mod flawed;
mod instrumented;
mod promises;
pub(crate) mod watched;
pub(crate) mod wrapped;
