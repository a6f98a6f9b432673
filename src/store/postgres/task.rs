//! Queue of jobs (store operations) that wait for a PostgreSQL transaction, with the callers that wait for their results.

use super::error::{Fault, task_ended};
use super::facts::FactQuery;
use super::job::Job;
use super::lease;
use super::outcome::{CommittedTransaction, TransactionFailure};
use super::progress::JobGuard;
use super::transaction::TenantTransaction;
use crate::store::StoreError;
use futures::future::BoxFuture;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Maximum number of jobs (store operations) in one PostgreSQL transaction.
const MOST: usize = 64;

/// A queued job (store operation) of any result type. The task stores the result until it sends the result to the caller.
pub(super) trait Task: Send {
    /// Returns `true` if the caller still waits for the result of the job (store operation).
    fn has_caller(&self) -> bool;

    /// Adds to `fact_query` the runs, breadcrumbs and idempotency keys of requests that the job (store operation) needs.
    fn request_facts(&self, fact_query: &mut FactQuery);

    /// Runs the job (store operation) in an open transaction, and stores the result.
    fn run<'r>(
        &'r mut self,
        transaction: &'r mut TenantTransaction<'_>,
    ) -> BoxFuture<'r, Result<(), Fault>>;

    /// Rejects the job (store operation), and stores the error as the job's result.
    fn refuse(&mut self, error: StoreError, transaction: &TenantTransaction<'_>);

    /// Returns the parameters of the claim of due runs that follows the commit, or `None` if the job (store operation) is
    /// rejected or claims no runs.
    fn claims(&self) -> Option<&lease::ClaimRequest>;

    /// Sends the result of the job (store operation) to its caller. `outcome` contains the results of the commit, or the reason why nothing
    /// was committed.
    fn finish(self: Box<Self>, outcome: Result<&mut CommittedTransaction, &TransactionFailure>);
}

pub(super) type Tasks = Vec<Box<dyn Task>>;

pub(super) struct QueuedJob<J: Job> {
    job: J,
    result: Option<Result<J::Answer, StoreError>>,
    /// Index in [`CommittedTransaction::commit_positions`] of the position that this job's changes have in the tenant's commit order.
    position_index: usize,
    reply: oneshot::Sender<Result<J::Answer, StoreError>>,
    job_guard: Option<JobGuard>,
}

impl<J: Job> QueuedJob<J> {
    pub(super) fn new(
        job: J,
        reply: oneshot::Sender<Result<J::Answer, StoreError>>,
        job_guard: Option<JobGuard>,
    ) -> Self {
        Self {
            job,
            result: None,
            position_index: 0,
            reply,
            job_guard,
        }
    }
}

impl<J: Job> Task for QueuedJob<J> {
    fn has_caller(&self) -> bool {
        !self.reply.is_closed()
    }

    fn request_facts(&self, fact_query: &mut FactQuery) {
        self.job.request_facts(fact_query);
    }

    fn run<'r>(
        &'r mut self,
        transaction: &'r mut TenantTransaction<'_>,
    ) -> BoxFuture<'r, Result<(), Fault>> {
        Box::pin(async move {
            self.result = Some(Ok(self.job.run(transaction).await?));
            self.position_index = transaction.write_count();
            Ok(())
        })
    }

    fn refuse(&mut self, error: StoreError, transaction: &TenantTransaction<'_>) {
        self.result = Some(Err(error));
        self.position_index = transaction.write_count();
    }

    fn claims(&self) -> Option<&lease::ClaimRequest> {
        match self.result {
            Some(Ok(_)) => self.job.claims(),
            Some(Err(_)) | None => None,
        }
    }

    fn finish(self: Box<Self>, outcome: Result<&mut CommittedTransaction, &TransactionFailure>) {
        let claims = self.claims().map(|claims| claims.claim);
        let result = match outcome {
            // The cause of a rejection may not have been committed either.
            Err(failed) => Err(failed.to_store_error()),
            Ok(commit) => {
                let mut result = self.result.unwrap_or_else(|| Err(task_ended()));
                if let (Ok(answer), Some(claim)) = (&mut result, claims) {
                    J::leased(answer, commit.take_leased(claim));
                }
                match (
                    &mut result,
                    commit.commit_positions.get(self.position_index),
                ) {
                    (Ok(answer), Some(commit_position)) => {
                        J::finalize_times(answer, commit_position)
                    }
                    (
                        Err(StoreError::NotFound {
                            tombstone: Some(tombstone),
                            ..
                        }),
                        Some(commit_position),
                    ) => commit_position.finalize_times(tombstone),
                    (Ok(_) | Err(_), _) => {}
                }
                result
            }
        };
        if let Ok(answer) = &result {
            self.job.committed(answer);
        }
        drop(self.job_guard);
        // The caller may have stopped waiting.
        drop(self.reply.send(result));
    }
}

/// Queues of jobs (store operations) by tenant. Each tenant in the map has at least one worker, a background task that runs its jobs.
#[derive(Default)]
pub(super) struct JobQueues(Mutex<HashMap<Arc<str>, Queue>>);

/// Queue of one tenant's jobs (store operations) that wait for a transaction.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Box<dyn Task>>,
    /// Number of background tasks that currently run the tenant's jobs (store operations).
    workers: usize,
}

impl JobQueues {
    /// Adds a job (store operation) to the tenant's queue. Returns `true` if the caller must start a worker. `most` is the maximum number
    /// of workers of a tenant.
    pub(super) fn push(&self, tenant: &Arc<str>, job: Box<dyn Task>, most: usize) -> bool {
        let mut queues = self.lock();
        let queue = queues.entry(Arc::clone(tenant)).or_default();
        queue.jobs.push_back(job);
        let starts = queue.workers < most.max(1);
        queue.workers += usize::from(starts);
        starts
    }

    /// Returns the next queued jobs (store operations) of a tenant whose callers still wait. `None` ends the worker.
    pub(super) fn take(&self, tenant: &str) -> Option<Tasks> {
        let mut queues = self.lock();
        let queue = queues.get_mut(tenant)?;
        queue.jobs.retain(|job| job.has_caller());
        if queue.jobs.is_empty() {
            queue.workers -= 1;
            if queue.workers == 0 {
                queues.remove(tenant);
            }
            return None;
        }
        let most = queue.jobs.len().min(MOST);
        Some(queue.jobs.drain(..most).collect())
    }

    /// Counts a worker (a background task that runs a tenant's jobs) as ended after the worker panicked. If it was the tenant's
    /// only one, the callers of the waiting jobs receive an error, and the next job starts a new worker.
    pub(super) fn abandon(&self, tenant: &str) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(tenant) else {
            return;
        };
        queue.workers -= 1;
        if queue.workers == 0 {
            let removed = queues.remove(tenant);
            drop(queues);
            drop(removed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
