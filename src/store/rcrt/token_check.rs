//! Check of the API token after a search that found nothing, because the RCRT server does not check the token of a list request.

use super::http::Failure;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The minimum time between two checks of the API token.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time and the outcome of the last check of the API token.
#[derive(Debug, Default)]
pub(super) struct TokenCheck(Mutex<LastCheck>);

#[derive(Debug, Default)]
struct LastCheck {
    started: Option<Instant>,
    refusal: Option<Refusal>,
}

/// The request that the server refused, and the error message of the response.
#[derive(Clone, Debug)]
struct Refusal {
    request: String,
    message: String,
}

impl TokenCheck {
    /// Records and returns the outcome of a check of the API token. Ignores a failure for another reason than a refused token.
    pub(super) fn record(&self, failure: Option<Failure>) -> Result<(), Failure> {
        let refusal = match failure.filter(Failure::is_unauthorized) {
            Some(Failure::Unauthorized { request, message }) => Some(Refusal { request, message }),
            Some(failure) => return Err(failure),
            None => None,
        };
        self.lock().refusal = refusal;
        self.last()
    }

    /// Returns `true` if a check of the API token is due, and records its start.
    pub(super) fn start(&self) -> bool {
        let mut last = self.lock();
        let is_due = last.started.is_none_or(|at| at.elapsed() >= INTERVAL);
        if is_due {
            last.started = Some(Instant::now());
        }
        is_due
    }

    /// Returns the outcome of the last check of the API token.
    pub(super) fn last(&self) -> Result<(), Failure> {
        match self.lock().refusal.clone() {
            Some(Refusal { request, message }) => Err(Failure::Unauthorized { request, message }),
            None => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LastCheck> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
