//! A run whose lease this process holds.

use super::UniversalExecutor;
use super::error::ExecutorError;
use super::heartbeat::HeldLease;
use super::outcome::Outcome;
use super::runtime_context;
use crate::clock::within;
use crate::model::Breadcrumb;
use crate::store::{Claim, Claimed, Lease, Lineage, RunStore, Saved, StoreError};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

pub(super) fn store_error(operation: &'static str) -> impl FnOnce(StoreError) -> ExecutorError {
    move |source| ExecutorError::of_store(operation, source)
}

/// A claimed run, with its executor, its store and its lease.
pub(super) struct ClaimedRun<'e, E: ?Sized> {
    pub(super) executor: &'e E,
    pub(super) store: RunStore<'e>,
    pub(super) lease: Lease,
    pub(super) attempt: u32,
    pub(super) lineage: Lineage,
    pub(super) saved: Option<Saved>,
    pub(super) claimed: Instant,
    /// Latest time at which this process is known to have held the lease of the run.
    confirmed_at: Mutex<Instant>,
    /// If `true`, the executor of the run itself wrote the trigger.
    pub(super) is_own: bool,
    /// The trigger breadcrumb, if the store returned it together with the claim of the run. `None` after `read_trigger` has taken
    /// the trigger.
    pub(super) trigger: Option<Arc<Breadcrumb>>,
}

/// Failure of a run whose lease this process still holds.
pub(super) struct FailedAttempt {
    pub(super) error: ExecutorError,
    /// If `true`, the failed attempt had called `execute`.
    pub(super) started: bool,
    pub(super) trigger: Option<Arc<Breadcrumb>>,
}

impl From<ExecutorError> for FailedAttempt {
    fn from(error: ExecutorError) -> Self {
        Self {
            error,
            started: false,
            trigger: None,
        }
    }
}

impl<'e, E: UniversalExecutor + ?Sized> ClaimedRun<'e, E> {
    pub(super) fn from_claim(
        executor: &'e E,
        store: RunStore<'e>,
        claim: Claim,
        since: Instant,
    ) -> Result<Self, Outcome> {
        match claim {
            Claim::Granted(Claimed {
                lease,
                attempt,
                lineage,
                state,
                is_own,
                trigger,
            }) => {
                if let Some(scope) = runtime_context::scope() {
                    scope.record_lease(&lease, executor.profile().execution);
                }
                Ok(Self {
                    executor,
                    store,
                    lease,
                    attempt,
                    lineage,
                    saved: state,
                    claimed: Instant::now(),
                    confirmed_at: Mutex::new(since),
                    is_own,
                    trigger,
                })
            }
            Claim::Own => Err(Outcome::OwnBreadcrumb),
            Claim::Done { state, written } => Err(Outcome::AlreadyDone { state, written }),
            Claim::Running { until } => Err(Outcome::InProgress { until }),
            Claim::Suspended { until } => Err(Outcome::Suspended {
                until,
                written: Vec::new(),
            }),
            Claim::Superseded => Err(Outcome::Superseded),
            Claim::Paused { since } => Err(Outcome::Paused { since }),
        }
    }

    /// Waits for the result of a store operation, at most until the lease of the run could expire. If the operation takes longer,
    /// the lease counts as lost: another worker may have the run, and only the ledger records whether the operation took effect.
    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let since = *self
            .confirmed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let remaining = (self.lease.run.lease / 6 * 5).saturating_sub(since.elapsed());
        within(remaining, answer).await.unwrap_or_else(|| {
            Err(StoreError::LeaseLost {
                run: self.lease.run.clone(),
            })
        })
    }

    /// Returns the run's lease for heartbeats, with the latest time at which this process is known to have held the lease.
    pub(super) fn held_lease(&self) -> HeldLease<'_> {
        HeldLease::new(self.store.ledger(), &self.lease, &self.confirmed_at)
    }
}
