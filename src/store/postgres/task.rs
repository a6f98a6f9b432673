//! Queue of jobs (store operations) that wait for a PostgreSQL transaction, with the callers that wait for their results.

use super::error::{Fault, ended};
use super::facts::Wanted;
use super::job::Job;
use super::lease;
use super::outcome::{Done, Failed};
use super::progress::Working;
use super::writing::Writing;
use crate::store::StoreError;
use futures::future::BoxFuture;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Maximum number of jobs (store operations) in one PostgreSQL transaction.
const MOST: usize = 64;

/// A queued job (store operation) of any result type. The task stores the result until it sends the result to the caller.
pub(super) trait Task: Send {
    /// Returns `true` if the caller still waits for the result of the job.
    fn is_wanted(&self) -> bool;

    /// Adds the runs, breadcrumbs and request keys that the job needs to `wanted`.
    fn wants(&self, wanted: &mut Wanted);

    /// Runs the job (store operation) in an open transaction, and stores the result.
    fn run<'r>(&'r mut self, writing: &'r mut Writing<'_>) -> BoxFuture<'r, Result<(), Fault>>;

    /// Rejects the job (store operation), and stores the error as the job's result.
    fn refuse(&mut self, error: StoreError, writing: &Writing<'_>);

    /// Returns the parameters of the claim that follows the commit, or `None` if the job is rejected or claims no due runs.
    fn claims(&self) -> Option<&lease::Asked>;

    /// Sends the result of the job to its caller. `outcome` contains the results of the commit, or the reason why nothing was committed.
    fn finish(self: Box<Self>, outcome: Result<&mut Done, &Failed>);
}

pub(super) type Tasks = Vec<Box<dyn Task>>;

pub(super) struct Asked<J: Job> {
    job: J,
    done: Option<Result<J::Answer, StoreError>>,
    /// Index in [`Done::places`] of the place that this job's changes have in the tenant's commit order.
    place: usize,
    reply: oneshot::Sender<Result<J::Answer, StoreError>>,
    working: Option<Working>,
}

impl<J: Job> Asked<J> {
    pub(super) fn new(
        job: J,
        reply: oneshot::Sender<Result<J::Answer, StoreError>>,
        working: Option<Working>,
    ) -> Self {
        Self {
            job,
            done: None,
            place: 0,
            reply,
            working,
        }
    }
}

impl<J: Job> Task for Asked<J> {
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    fn wants(&self, wanted: &mut Wanted) {
        self.job.wants(wanted);
    }

    fn run<'r>(&'r mut self, writing: &'r mut Writing<'_>) -> BoxFuture<'r, Result<(), Fault>> {
        Box::pin(async move {
            self.done = Some(Ok(self.job.run(writing).await?));
            self.place = writing.written_times();
            Ok(())
        })
    }

    fn refuse(&mut self, error: StoreError, writing: &Writing<'_>) {
        self.done = Some(Err(error));
        self.place = writing.written_times();
    }

    fn claims(&self) -> Option<&lease::Asked> {
        match self.done {
            Some(Ok(_)) => self.job.claims(),
            Some(Err(_)) | None => None,
        }
    }

    fn finish(self: Box<Self>, outcome: Result<&mut Done, &Failed>) {
        let claims = self.claims().map(|claims| claims.claim);
        let done = match outcome {
            // The cause of a rejection may not have been committed either.
            Err(failed) => Err(failed.told()),
            Ok(commit) => {
                let mut done = self.done.unwrap_or_else(|| Err(ended()));
                if let (Ok(answer), Some(claim)) = (&mut done, claims) {
                    J::leased(answer, commit.leased(claim));
                }
                match (&mut done, commit.places.get(self.place)) {
                    (Ok(answer), Some(place)) => J::settle(answer, place),
                    (
                        Err(StoreError::NotFound {
                            tombstone: Some(tombstone),
                            ..
                        }),
                        Some(place),
                    ) => place.settle(tombstone),
                    (Ok(_) | Err(_), _) => {}
                }
                done
            }
        };
        if let Ok(answer) = &done {
            self.job.committed(answer);
        }
        drop(self.working);
        // The caller may have stopped waiting.
        drop(self.reply.send(done));
    }
}

/// Queues of jobs (store operations) by tenant. Each tenant in the map has at least one turn, which is a task that runs its jobs.
#[derive(Default)]
pub(super) struct Waiting(Mutex<HashMap<Arc<str>, Queue>>);

/// Queue of one tenant's jobs (store operations) that wait for a transaction.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Box<dyn Task>>,
    /// Number of the tenant's turns (background tasks) that run jobs concurrently.
    turns: usize,
}

impl Waiting {
    /// Adds a job (store operation) to the tenant's queue. Returns `true` if the caller must start a turn. `most` is the maximum number of
    /// turns of a tenant.
    pub(super) fn push(&self, tenant: &Arc<str>, job: Box<dyn Task>, most: usize) -> bool {
        let mut waiting = self.lock();
        let queue = waiting.entry(Arc::clone(tenant)).or_default();
        queue.jobs.push_back(job);
        let starts = queue.turns < most.max(1);
        queue.turns += usize::from(starts);
        starts
    }

    /// Returns the next queued jobs (store operations) of a tenant whose callers still wait. `None` ends the turn.
    pub(super) fn take(&self, tenant: &str) -> Option<Tasks> {
        let mut waiting = self.lock();
        let queue = waiting.get_mut(tenant)?;
        queue.jobs.retain(|job| job.is_wanted());
        if queue.jobs.is_empty() {
            queue.turns -= 1;
            if queue.turns == 0 {
                waiting.remove(tenant);
            }
            return None;
        }
        let most = queue.jobs.len().min(MOST);
        Some(queue.jobs.drain(..most).collect())
    }

    /// Ends a turn (a background task that runs a tenant's jobs) that panicked. If it was the tenant's only one, the callers of the waiting
    /// jobs receive an error, and the next job starts a new turn.
    pub(super) fn abandon(&self, tenant: &str) {
        let mut waiting = self.lock();
        let Some(queue) = waiting.get_mut(tenant) else {
            return;
        };
        queue.turns -= 1;
        if queue.turns == 0 {
            let left = waiting.remove(tenant);
            drop(waiting);
            drop(left);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
