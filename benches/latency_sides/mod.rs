//! The parts of the bench `latency`: stores, workers and clients.

pub(crate) mod client;
pub(crate) mod store;
pub(crate) mod worker;

/// The schema of a request, which triggers the worker's executor.
const REQUEST: &str = "request.v1";
/// The schema of a response.
const RESPONSE: &str = "response.v1";
/// The key in the context of a request and of its response that holds the request's number.
const NUMBER: &str = "number";

/// Returns the tokio runtime of a process of this bench.
pub(crate) fn new_tokio() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap()
}
