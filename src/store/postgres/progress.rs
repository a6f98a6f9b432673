//! Jobs (store operations) in PostgreSQL that continue although their callers no longer wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::watch;

/// Number of each tenant's jobs (store operations) that continue although their callers no longer wait. Reads wait for these jobs, so that
/// they see the state before or after each job, and that state remains.
#[derive(Clone, Debug, Default)]
pub(super) struct AbandonedJobs(watch::Sender<HashMap<Arc<str>, usize>>);

impl AbandonedJobs {
    /// Waits until the tenant's jobs (store operations) whose callers no longer wait have ended.
    pub(super) async fn wait_for_abandoned_jobs(&self, tenant: &str) {
        if self.0.borrow().contains_key(tenant) {
            let mut receiver = self.0.subscribe();
            // `self` holds the sender, so the channel stays open.
            drop(receiver.wait_for(|jobs| !jobs.contains_key(tenant)).await);
        }
    }

    /// Registers a tenant's job (store operation), so that the job counts as abandoned when its caller stops waiting. Returns a
    /// guard for the waiting caller and a guard for the job.
    pub(super) fn begin(&self, tenant: &Arc<str>) -> (CallerGuard, JobGuard) {
        let job = TrackedJob {
            state: Arc::new(AtomicU8::new(RUNNING)),
            tenant: Arc::clone(tenant),
            abandoned_jobs: self.clone(),
        };
        (CallerGuard(job.clone()), JobGuard(job))
    }

    fn add(&self, tenant: &Arc<str>) {
        self.0
            .send_modify(|jobs| *jobs.entry(Arc::clone(tenant)).or_default() += 1);
    }

    fn remove(&self, tenant: &str) {
        self.0.send_modify(|jobs| {
            if let Some(count) = jobs.get_mut(tenant) {
                *count -= 1;
                if *count == 0 {
                    jobs.remove(tenant);
                }
            }
        });
    }
}

#[derive(Clone)]
struct TrackedJob {
    state: Arc<AtomicU8>,
    tenant: Arc<str>,
    abandoned_jobs: AbandonedJobs,
}

const RUNNING: u8 = 0;
const ABANDONED: u8 = 1;
const ENDED: u8 = 2;

/// Guard that lives as long as the caller of a store operation waits for its result.
pub(super) struct CallerGuard(TrackedJob);

impl Drop for CallerGuard {
    fn drop(&mut self) {
        let TrackedJob {
            state,
            tenant,
            abandoned_jobs,
        } = &self.0;
        if state.load(Ordering::SeqCst) == ENDED {
            return;
        }
        // The job is counted before it can end, because its guard removes only a counted job.
        abandoned_jobs.add(tenant);
        let abandoned =
            state.compare_exchange(RUNNING, ABANDONED, Ordering::SeqCst, Ordering::SeqCst);
        if abandoned.is_err() {
            abandoned_jobs.remove(tenant);
        }
    }
}

/// Guard that lives as long as a job (store operation) runs, with or without a waiting caller.
pub(super) struct JobGuard(TrackedJob);

impl Drop for JobGuard {
    fn drop(&mut self) {
        if self.0.state.swap(ENDED, Ordering::SeqCst) == ABANDONED {
            self.0.abandoned_jobs.remove(&self.0.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_waits_only_for_abandoned_jobs_of_its_tenant() {
        let (abandoned_jobs, tenant) = (AbandonedJobs::default(), Arc::from("one"));
        let (caller_guard, job_guard) = abandoned_jobs.begin(&tenant);
        abandoned_jobs.wait_for_abandoned_jobs("one").await;

        drop(caller_guard);

        assert!(
            futures::poll!(std::pin::pin!(
                abandoned_jobs.wait_for_abandoned_jobs("one")
            ))
            .is_pending()
        );
        abandoned_jobs.wait_for_abandoned_jobs("two").await;
        drop(job_guard);
        abandoned_jobs.wait_for_abandoned_jobs("one").await;
        let (caller_guard, job_guard) = abandoned_jobs.begin(&tenant);
        drop(job_guard);
        drop(caller_guard);
        abandoned_jobs.wait_for_abandoned_jobs("one").await;
    }
}
