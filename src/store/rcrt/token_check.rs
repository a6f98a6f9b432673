//! Checks of the token after an empty search. The server lists breadcrumbs without checking the token.

use super::http::Failure;
use super::read::Reader;
use crate::model::BreadcrumbId;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The minimum time between two checks.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time and the outcome of the last check.
#[derive(Debug, Default)]
pub(super) struct TokenCheck(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    started: Option<Instant>,
    refusal: Option<Refusal>,
}

/// The request that the server refused, and its answer.
#[derive(Clone, Debug)]
struct Refusal {
    request: String,
    said: String,
}

impl TokenCheck {
    /// Fails if the server refuses the token. Sends at most one request per minute, and otherwise returns the outcome of
    /// the last one. Any other failure of the request is ignored, because the search itself succeeded.
    pub(super) async fn check(&self, reader: &Reader) -> Result<(), Failure> {
        if !self.start() {
            return self.last();
        }
        // The server checks the token before it searches for the ID.
        let failure = reader.look(BreadcrumbId::NIL).await.err();
        let refusal = match failure.filter(Failure::is_unauthorized) {
            Some(Failure::Unauthorized { request, said }) => Some(Refusal { request, said }),
            Some(failure) => return Err(failure),
            None => None,
        };
        self.lock().refusal = refusal;
        self.last()
    }

    /// Returns `true` if a check is due, and notes its start.
    fn start(&self) -> bool {
        let mut last = self.lock();
        let is_due = last.started.is_none_or(|at| at.elapsed() >= INTERVAL);
        if is_due {
            last.started = Some(Instant::now());
        }
        is_due
    }

    /// Returns the outcome of the last check.
    fn last(&self) -> Result<(), Failure> {
        match self.lock().refusal.clone() {
            Some(Refusal { request, said }) => Err(Failure::Unauthorized { request, said }),
            None => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
