//! Heartbeats that extend the lease of a run while a future runs.

use crate::clock::later;
use crate::error::Chain;
use crate::store::{Lease, RunLedger};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Error of a run whose lease is lost. A lease that cannot be extended in time counts as lost.
#[derive(Debug)]
pub(super) struct Lost;

/// The lease of a run, with the last time at which this process held it for certain, by the monotonic clock of this process.
pub(super) struct Kept<'l> {
    ledger: &'l dyn RunLedger,
    lease: &'l Lease,
    since: &'l Mutex<Instant>,
}

impl<'l> Kept<'l> {
    pub(super) fn new(
        ledger: &'l dyn RunLedger,
        lease: &'l Lease,
        since: &'l Mutex<Instant>,
    ) -> Self {
        Self {
            ledger,
            lease,
            since,
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
    ) -> Result<T, Lost> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            lost = self.beat() => Err(lost),
            () = serve => Err(Lost),
        }
    }

    async fn beat(&self) -> Lost {
        let length = self.lease.run.lease.max(Duration::from_millis(6));
        loop {
            let given_up = later(self.since(), length / 6 * 5);
            sleep_until(later(Instant::now(), length / 3).min(given_up)).await;
            let asked = Instant::now();
            if asked >= given_up {
                return Lost;
            }
            let beat = self.ledger.heartbeat(std::slice::from_ref(self.lease));
            match timeout_at(given_up, beat).await {
                Ok(Ok(lost)) if lost.is_empty() => self.keep_since(asked),
                Ok(Ok(_)) | Err(_) => return Lost,
                Ok(Err(error)) => {
                    tracing::warn!(run = %self.lease.run, code = error.code(), error = %Chain(&error),
                        "heartbeat that extends the lease of a run failed, will retry");
                }
            }
        }
    }

    fn since(&self) -> Instant {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_since(&self, moment: Instant) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = moment;
    }
}
