//! Wrappers of stores and sources: each satisfies the promises of the inner store or source, and provides its own function.

mod calls;
mod faulty;
mod faulty_source;
mod flawed;
mod instrumented;
mod promises;
pub(crate) mod watched;
pub(crate) mod wrapped;
