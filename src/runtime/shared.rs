//! What intake and workers of one run share.

use super::{RunReport, Settings};
use crate::source::{Delivery, SourceError};
use crate::store::StoreError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long to wait before something that failed is tried again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// How long a store or a source may take to answer before others go first.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Shared {
    pub(super) settings: Settings,
    /// One for each run there may be at a time.
    pub(super) places: Arc<Semaphore>,
    /// Cancelled when nothing more shall be claimed.
    pub(super) stop: CancellationToken,
    report: Mutex<RunReport>,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            places: Arc::new(Semaphore::new(settings.concurrency)),
            stop: CancellationToken::new(),
            report: Mutex::default(),
        })
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut RunReport)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn report(&self) -> RunReport {
        self.report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn note(&self, error: &SourceError) {
        tracing::warn!(%error, "the source of events reported an error");
        self.count(|report| match error {
            SourceError::Lagged { missed } => report.missed += missed,
            SourceError::NotTakenBack { .. } | SourceError::Unavailable { .. } => {
                report.errors += 1;
            }
        });
    }
}

/// An answer of a store, or that it takes too long.
pub(super) async fn in_time<T>(
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match timeout(PATIENCE, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::Unavailable {
            store: "the store",
            retry_after: PAUSE,
            source: format!("no answer within {PATIENCE:?}").into(),
        }),
    }
}

/// A delivery until everybody it concerns has taken care of it.
pub(super) struct Owed {
    pub(super) delivery: Delivery,
    /// Set by whoever could not, and wants it again after that time.
    again: Mutex<Option<Duration>>,
}

impl Owed {
    pub(super) fn new(delivery: Delivery) -> Arc<Self> {
        Arc::new(Self {
            delivery,
            again: Mutex::default(),
        })
    }

    pub(super) fn want_again(&self, delay: Duration) {
        *self.again.lock().unwrap_or_else(PoisonError::into_inner) = Some(delay);
    }

    /// Gives up one share of it; the last tells the source what became of it.
    pub(super) async fn settle(self: Arc<Self>, shared: &Shared) {
        let Some(last) = Arc::into_inner(self) else {
            return;
        };
        let again = last
            .again
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let told = async {
            match again {
                None => last.delivery.ack().await,
                Some(delay) => last.delivery.nack(delay).await,
            }
        };
        match timeout(PATIENCE, told).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => shared.note(&error),
            Err(_) => shared.note(&SourceError::Unavailable {
                retry_after: PAUSE,
                source: "it does not take acknowledgements".into(),
            }),
        }
    }
}
