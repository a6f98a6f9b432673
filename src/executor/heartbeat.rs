//! Keeping a lease while work is pending.

use super::handle::Saves;
use crate::store::{Lease, RunLedger};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The lease was lost, or could not be kept for so long that it must be taken as lost.
#[derive(Debug)]
pub(super) struct Lost;

/// Runs work while extending its lease every third of its length and saving what the work asks to be saved.
///
/// The work is dropped if the ledger says that the lease is lost, or if no heartbeat got through for five sixths of
/// the lease by this process's monotonic clock.
pub(super) async fn keep<T>(
    ledger: Option<&dyn RunLedger>,
    lease: &Lease,
    saves: Option<&Saves>,
    work: impl Future<Output = T>,
) -> Result<T, Lost> {
    let Some(ledger) = ledger else {
        return Ok(work.await);
    };
    let serve = async {
        match saves {
            Some(saves) => saves.serve(ledger, lease).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        lost = beat(ledger, lease) => Err(lost),
        () = serve => Err(Lost),
    }
}

async fn beat(ledger: &dyn RunLedger, lease: &Lease) -> Lost {
    let length = lease.run.lease.max(Duration::from_millis(6));
    let mut kept = Instant::now();
    loop {
        let given_up = kept + length * 5 / 6;
        sleep_until((Instant::now() + length / 3).min(given_up)).await;
        let asked = Instant::now();
        match timeout_at(given_up, ledger.heartbeat(std::slice::from_ref(lease))).await {
            Ok(Ok(lost)) if lost.is_empty() => kept = asked,
            Ok(Ok(_)) => return Lost,
            Ok(Err(error)) => {
                tracing::warn!(run = %lease.run, error = error.code(), "a heartbeat failed")
            }
            Err(_) => return Lost,
        }
        if Instant::now() >= kept + length * 5 / 6 {
            return Lost;
        }
    }
}
