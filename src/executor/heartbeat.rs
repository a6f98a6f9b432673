//! Heartbeats that extend the lease of a run while a future runs.

use crate::clock::later;
use crate::error::Chain;
use crate::store::{Lease, RunLedger};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Error of a run whose lease is lost. A lease that cannot be extended in time counts as lost.
#[derive(Debug)]
pub(super) struct LeaseLost;

/// The lease of a run, with the latest time at which this process is known to have held the lease. The time comes from the
/// monotonic clock of this process.
pub(super) struct HeldLease<'l> {
    ledger: &'l dyn RunLedger,
    lease: &'l Lease,
    confirmed_at: &'l Mutex<Instant>,
}

impl<'l> HeldLease<'l> {
    pub(super) fn new(
        ledger: &'l dyn RunLedger,
        lease: &'l Lease,
        confirmed_at: &'l Mutex<Instant>,
    ) -> Self {
        Self {
            ledger,
            lease,
            confirmed_at,
        }
    }

    /// Runs the future `work` of a run, and extends the run's lease every third of the lease duration. The future `serve` runs
    /// concurrently, and answers the requests of `work` to the lease holder.
    ///
    /// Drops `work` if the ledger reports that the lease is lost, or if no heartbeat succeeded for five sixths of the lease.
    pub(super) async fn during<T>(
        &self,
        serve: impl Future<Output = ()>,
        work: impl Future<Output = T>,
    ) -> Result<T, LeaseLost> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            lost = self.beat() => Err(lost),
            () = serve => Err(LeaseLost),
        }
    }

    async fn beat(&self) -> LeaseLost {
        let length = self.lease.run.lease.max(Duration::from_millis(6));
        loop {
            let expiry = later(self.confirmed_at(), length / 6 * 5);
            sleep_until(later(Instant::now(), length / 3).min(expiry)).await;
            let sent_at = Instant::now();
            if sent_at >= expiry {
                return LeaseLost;
            }
            let beat = self.ledger.heartbeat(std::slice::from_ref(self.lease));
            match timeout_at(expiry, beat).await {
                Ok(Ok(lost)) if lost.is_empty() => self.set_confirmed_at(sent_at),
                Ok(Ok(_)) | Err(_) => return LeaseLost,
                Ok(Err(error)) => {
                    tracing::warn!(run = %self.lease.run, code = error.code(), error = %Chain(&error),
                        "heartbeat that extends the lease of a run failed, will retry");
                }
            }
        }
    }

    fn confirmed_at(&self) -> Instant {
        *self
            .confirmed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn set_confirmed_at(&self, moment: Instant) {
        *self
            .confirmed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = moment;
    }
}
