//! Sides of the bench `postgres`.

#[path = "../sides/answering.rs"]
pub(crate) mod answering;
pub(crate) mod raw;
pub(crate) mod store;

/// The text in every breadcrumb.
const TEXT: &str = "what somebody said, at the length at which people say things to one another";

/// Runs a future on a new current-thread runtime.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    tokio.unwrap().block_on(work)
}
