//! What a runtime gives a run that it processes, beside the event: `process_event` has no argument for it, and may be
//! overridden.

use super::waits::Waits;
use crate::store::Lease;
use std::sync::{Arc, Mutex, PoisonError};

tokio::task_local! {
    static OFFER: Arc<Offer>;
}

/// What a runtime offers a run, and what it is told of it.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) waits: Arc<Waits>,
    /// The lease that is held now: a run may move on to a newer version of its trigger.
    lease: Mutex<Option<Lease>>,
}

impl Offer {
    /// An offer to a run that was claimed before.
    pub(crate) fn new(waits: Arc<Waits>, lease: Option<Lease>) -> Arc<Self> {
        Arc::new(Self {
            waits,
            lease: Mutex::new(lease),
        })
    }

    /// The lease that is held now.
    pub(crate) fn lease(&self) -> Option<Lease> {
        self.held().clone()
    }

    /// Notes the lease that is held from now on.
    pub(super) fn holds(&self, lease: &Lease) {
        *self.held() = Some(lease.clone());
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Processes something under an offer.
pub(crate) async fn under<T>(offer: Arc<Offer>, work: impl Future<Output = T>) -> T {
    OFFER.scope(offer, work).await
}

/// The offer under which this is called; none outside a runtime, or in a task that was spawned.
pub(super) fn offer() -> Option<Arc<Offer>> {
    OFFER.try_with(Arc::clone).ok()
}
