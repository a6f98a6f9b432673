//! Full texts of the error messages that users meet most often. Other tests compare the texts that are missing here.

mod agents;
mod clients;
mod executors;
mod models;
mod questions;
mod runtimes;
#[cfg(any(feature = "nats", feature = "rcrt"))]
mod sources;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod stores;
mod tools;
#[cfg(feature = "workflows")]
mod workflows;

use std::error::Error;

/// Returns the message of the error's direct cause.
fn cause_of(error: &impl Error) -> String {
    error.source().unwrap().to_string()
}
