//! Jobs (store operations) in PostgreSQL that continue although their callers no longer wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::watch;

/// Number of abandoned jobs (store operations) of each tenant. An abandoned job has no caller any more. Reads wait for these jobs, so that
/// they see the state before or after each job, and that state remains.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(watch::Sender<HashMap<Arc<str>, usize>>);

impl Progress {
    /// Waits until the tenant's jobs (store operations) whose callers no longer wait have ended.
    pub(super) async fn settled(&self, tenant: &str) {
        if self.0.borrow().contains_key(tenant) {
            let mut left = self.0.subscribe();
            // `self` holds the sender, so the channel stays open.
            drop(left.wait_for(|left| !left.contains_key(tenant)).await);
        }
    }

    /// Registers a tenant's job (store operation), so that the job counts as abandoned when its caller stops waiting. Returns a
    /// guard for the waiting caller and a guard for the job.
    pub(super) fn begin(&self, tenant: &Arc<str>) -> (Waiting, Working) {
        let job = Job {
            fate: Arc::new(AtomicU8::new(GOES_ON)),
            tenant: Arc::clone(tenant),
            progress: self.clone(),
        };
        (Waiting(job.clone()), Working(job))
    }

    fn add(&self, tenant: &Arc<str>) {
        self.0
            .send_modify(|left| *left.entry(Arc::clone(tenant)).or_default() += 1);
    }

    fn take(&self, tenant: &str) {
        self.0.send_modify(|left| {
            if let Some(jobs) = left.get_mut(tenant) {
                *jobs -= 1;
                if *jobs == 0 {
                    left.remove(tenant);
                }
            }
        });
    }
}

#[derive(Clone)]
struct Job {
    fate: Arc<AtomicU8>,
    tenant: Arc<str>,
    progress: Progress,
}

const GOES_ON: u8 = 0;
const LEFT: u8 = 1;
const ENDED: u8 = 2;

/// Guard that lives as long as the caller of a store operation waits for its result.
pub(super) struct Waiting(Job);

impl Drop for Waiting {
    fn drop(&mut self) {
        let Job {
            fate,
            tenant,
            progress,
        } = &self.0;
        if fate.load(Ordering::SeqCst) == ENDED {
            return;
        }
        // The job is counted before it can end, because its guard removes only a counted job.
        progress.add(tenant);
        let left = fate.compare_exchange(GOES_ON, LEFT, Ordering::SeqCst, Ordering::SeqCst);
        if left.is_err() {
            progress.take(tenant);
        }
    }
}

/// Guard that lives as long as a job (store operation) runs, with or without a waiting caller.
pub(super) struct Working(Job);

impl Drop for Working {
    fn drop(&mut self) {
        if self.0.fate.swap(ENDED, Ordering::SeqCst) == LEFT {
            self.0.progress.take(&self.0.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_waits_only_for_abandoned_jobs_of_its_tenant() {
        let (progress, tenant) = (Progress::default(), Arc::from("one"));
        let (waiting, working) = progress.begin(&tenant);
        progress.settled("one").await;

        drop(waiting);

        assert!(futures::poll!(std::pin::pin!(progress.settled("one"))).is_pending());
        progress.settled("two").await;
        drop(working);
        progress.settled("one").await;
        let (waiting, working) = progress.begin(&tenant);
        drop(working);
        drop(waiting);
        progress.settled("one").await;
    }
}
