//! What is measured against one another in `postgres`.

#[path = "../sides/answering.rs"]
pub(crate) mod answering;
pub(crate) mod raw;
pub(crate) mod store;

/// What is said in every breadcrumb.
const TEXT: &str = "what somebody said, at the length at which people say things to one another";

/// Does something on this thread alone, as whoever is alone in a process does.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    tokio.unwrap().block_on(work)
}
