//! Execution of jobs (store operations) in PostgreSQL transactions. One transaction commits all jobs of a tenant that wait at the
//! same time. A rejected job does not affect the others. Results are sent once the commit is durable.

use super::commit_position::ReadyToCommit;
use super::connections::Connection;
use super::database::{Database, statements};
use super::end;
use super::error::{ATTEMPTS, Fault, can_retry_at_once, has_code, task_ended};
use super::facts::FactQuery;
use super::history::{Mark, SeenEvent};
use super::job::Job;
use super::listen;
use super::outcome::{CommittedTransaction, TransactionFailure};
use super::resolve::{UnansweredCommit, resolve};
use super::retention::{DeleteExcess, has_excess};
use super::session::Session;
use super::task::{QueuedJob, Tasks};
use super::tenant::TenantHandle;
use super::transaction::{Counters, TenantTransaction};
use crate::error::Chain;
use crate::store::StoreError;
use sqlx::PgConnection;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Number of attempts that fail with a unique violation, because of concurrent transactions, before a transaction locks the tenant's row
/// from the start.
const COLLISIONS: u32 = 3;

/// PostgreSQL error code (SQLSTATE) of a deadlock between transactions.
const DEADLOCK: &str = "40P01";
const UNIQUE_VIOLATION: &str = "23505";

impl Database {
    /// Runs a job (store operation) in a PostgreSQL transaction, and returns its result after the commit. The job runs to its end even if
    /// the caller stops waiting, because a started job cannot be withdrawn.
    pub(super) async fn write<J: Job>(
        self: &Arc<Self>,
        tenant: &Arc<TenantHandle>,
        job: J,
    ) -> Result<J::Answer, StoreError> {
        self.loss.check()?;
        let (caller_guard, job_guard) = self.abandoned_jobs.begin(&tenant.name);
        let (reply, answer) = oneshot::channel();
        let task = Box::new(QueuedJob::new(job, reply, Some(job_guard)));
        if self.job_queues.push(&tenant.name, task, self.max_workers()) {
            let worker = QueueWorker {
                database: Arc::clone(self),
                tenant: Arc::clone(tenant),
                has_ended: false,
            };
            drop(tokio::spawn(worker.work()));
        }
        let answer = answer.await;
        drop(caller_guard);
        answer.map_err(|_| task_ended())?
    }
}

/// Background task that runs the jobs (store operations) of a tenant until no job waits.
struct QueueWorker {
    database: Arc<Database>,
    tenant: Arc<TenantHandle>,
    /// If `true`, the tenant's queue was empty and this background task has ended. A later job starts another background task.
    has_ended: bool,
}

impl QueueWorker {
    async fn work(mut self) {
        while let Some(jobs) = self.database.job_queues.take(&self.tenant.name) {
            transact(&self.database, &self.tenant, jobs).await;
        }
        self.has_ended = true;
    }
}

impl Drop for QueueWorker {
    fn drop(&mut self) {
        if !self.has_ended {
            self.database.job_queues.abandon(&self.tenant.name);
        }
    }
}

/// Runs jobs (store operations) until they are committed or a retry is hopeless, and sends their results to the callers.
async fn transact(database: &Arc<Database>, tenant: &TenantHandle, mut jobs: Tasks) {
    let outcome = attempt(database, tenant, &mut jobs).await;
    if let Err(TransactionFailure::BatchFailed) = outcome {
        for job in jobs {
            let mut alone = vec![job];
            let outcome = attempt(database, tenant, &mut alone).await;
            answer(alone, outcome);
        }
    } else {
        answer(jobs, outcome);
    }
}

fn answer(jobs: Tasks, mut outcome: Result<CommittedTransaction, TransactionFailure>) {
    for job in jobs {
        job.finish(outcome.as_mut().map_err(|failed| &*failed));
    }
}

/// Runs jobs (store operations) in one transaction, with retries until they are committed or a retry is hopeless.
async fn attempt(
    database: &Arc<Database>,
    tenant: &TenantHandle,
    jobs: &mut Tasks,
) -> Result<CommittedTransaction, TransactionFailure> {
    let (mut attempt, mut collisions, mut locks) = (1, 0, false);
    loop {
        match commit(database, tenant, jobs, locks).await {
            Ok(mut committed) => {
                if !committed.events.is_empty() {
                    for (last, events) in std::mem::take(&mut committed.events) {
                        let newest = events.last().map(|event| SeenEvent {
                            position: last,
                            announces: (event.breadcrumb_id, event.version),
                        });
                        tenant.record_seen(Mark {
                            head: last,
                            event: newest,
                        });
                        tenant.recent.add(last, events);
                    }
                    listen::announce(database);
                }
                let newest = committed.commit_positions.last();
                let has_excess = newest.is_some_and(|commit_position| {
                    has_excess(&commit_position.tenant, &database.settings.limits)
                });
                let checks_keys = committed.has_old_keys && tenant.can_check_keys();
                if has_excess || checks_keys {
                    delete_excess(database, tenant, checks_keys).await;
                }
                return Ok(committed);
            }
            Err(TransactionFailure::LimitReached) if !locks => locks = true,
            Err(TransactionFailure::LimitReached) if jobs.len() > 1 => {
                return Err(TransactionFailure::BatchFailed);
            }
            // Jobs that take further locks after the tenant's row can deadlock with a transaction that waits for the row.
            Err(TransactionFailure::Driver(error))
                if locks && jobs.len() > 1 && has_code(&error, DEADLOCK) =>
            {
                return Err(TransactionFailure::BatchFailed);
            }
            Err(TransactionFailure::Driver(error))
                if attempt < ATTEMPTS && can_retry_at_once(&error) =>
            {
                tracing::debug!(error = %Chain(&error), attempt, "a transaction failed, will retry");
                attempt += 1;
                // With the tenant's row locked, no other transaction adds the same run or key.
                collisions += u32::from(has_code(&error, UNIQUE_VIOLATION));
                locks = locks || collisions >= COLLISIONS;
            }
            Err(failed) => return Err(failed),
        }
    }
}

/// Deletes a tenant's oldest events, tombstones and ended runs beyond the limits. With `checks_keys`, deletes old idempotency
/// keys as well.
async fn delete_excess(database: &Database, tenant: &TenantHandle, checks_keys: bool) {
    let (reply, _answer) = oneshot::channel();
    let mut delete_excess: Tasks = vec![Box::new(QueuedJob::new(
        DeleteExcess { checks_keys },
        reply,
        None,
    ))];
    match commit(database, tenant, &mut delete_excess, true).await {
        Ok(committed) => {
            if let Some(commit_position) = committed.commit_positions.last() {
                let first = commit_position.tenant.first_event.cast_unsigned();
                tenant.recent.forget_before(first);
            }
        }
        Err(failed) => {
            if checks_keys {
                tenant.check_failed();
            }
            let error = failed.to_store_error();
            tracing::debug!(error = %Chain(&error), "deletion of rows beyond the retention limits failed, will retry after a later commit");
        }
    }
}

/// Runs jobs (store operations) in one PostgreSQL transaction, without retries.
async fn commit(
    database: &Database,
    tenant: &TenantHandle,
    jobs: &mut Tasks,
    locks: bool,
) -> Result<CommittedTransaction, TransactionFailure> {
    let connections = &database.connections;
    let mut connection = connections.acquire().await?;
    // If this fails, the connection is closed.
    let prepared = connection.prepare(statements);
    let session = connections.with_timeout(prepared).await??;
    let mark = tenant.mark();
    let work = work(database, tenant, jobs, locks, &mut connection);
    let worked = match connections.with_timeout(work).await {
        Ok(worked) => worked,
        // Nothing was committed, and the transaction ends with the connection.
        Err(timed_out) => return Err(timed_out.into()),
    };
    let Ok(Some(ready)) = worked else {
        if roll_back(database, connection).await.is_err() {
            tracing::debug!("cannot roll back a failed transaction, closing its connection");
        }
        if let Err(TransactionFailure::Driver(error)) = &worked {
            connections.record_error(error);
        }
        return worked.map(|_| CommittedTransaction::default());
    };
    let ending = Ending {
        database,
        tenant,
        mark,
        session,
        is_alone: jobs.len() == 1,
    };
    let claims = jobs.iter().filter_map(|job| job.claims());
    let claims = claims.map(|claims| claims.message(ready.tenant, &database.time));
    let claims = claims.collect();
    ending.end(connection, ready, claims).await
}

/// End of a PostgreSQL transaction: the commit, and the recovery of its outcome if the answer is lost.
struct Ending<'e> {
    database: &'e Database,
    tenant: &'e TenantHandle,
    /// Newest events of the tenant that this process had read or committed before the transaction.
    mark: Mark,
    session: Session,
    /// If `true`, the transaction has only one job (store operation).
    is_alone: bool,
}

impl Ending<'_> {
    async fn end(
        self,
        connection: Connection<'_>,
        mut ready: ReadyToCommit,
        claims: Vec<String>,
    ) -> Result<CommittedTransaction, TransactionFailure> {
        let mut committed = CommittedTransaction {
            leased: Some(Vec::new()),
            has_old_keys: ready.has_old_keys,
            ..CommittedTransaction::default()
        };
        for (commit_position, events) in ready.commit_positions {
            committed.add(commit_position, events);
        }
        let commit_marker = ready.last.as_ref().and_then(|last| last.commit_marker);
        let claims_any = !claims.is_empty();
        let events = ready
            .last
            .as_mut()
            .map(|last| std::mem::take(&mut last.events));
        let events = events.unwrap_or_default();
        let commit_position = match end::end(self.database, connection, ready.last, claims).await {
            Ok(result) => {
                committed.leased = Some(result.leased);
                result.commit_position
            }
            Err(failure) if failure.is_in_doubt() => {
                if claims_any {
                    committed.leased = None;
                }
                let commit = UnansweredCommit {
                    // The server may still claim runs until the session ends.
                    session: claims_any.then_some(self.session),
                    transaction_id: ready.transaction_id,
                    commit_marker,
                };
                resolve(self.database, self.tenant, commit, failure.error).await?
            }
            Err(failure) => return Err(TransactionFailure::of(failure.error, self.is_alone)),
        };
        if commit_position.is_none() && commit_marker.is_some() {
            // A tenant's row is never removed, so a missing row means that commits were lost.
            let lost = self.database.record_lost_commits(self.tenant, self.mark, 0);
            return Err(TransactionFailure::Lost(lost));
        }
        if let Some(commit_position) = commit_position {
            committed.add(commit_position, events);
        }
        if let Some(commit_position) = committed.commit_positions.last() {
            self.tenant.record_seen(Mark {
                head: commit_position.tenant.position.cast_unsigned(),
                event: None,
            });
        }
        Ok(committed)
    }
}

async fn roll_back(database: &Database, mut connection: Connection<'_>) -> sqlx::Result<()> {
    let rollback = sqlx::raw_sql("ROLLBACK").execute(&mut *connection);
    database.connections.with_timeout(rollback).await??;
    connection.release();
    Ok(())
}

/// Runs jobs (store operations) in an open PostgreSQL transaction. Returns `None` if all jobs are rejected.
async fn work(
    database: &Database,
    tenant: &TenantHandle,
    jobs: &mut Tasks,
    locks: bool,
    connection: &mut PgConnection,
) -> Result<Option<ReadyToCommit>, TransactionFailure> {
    let is_alone = jobs.len() == 1;
    let mut fact_query = FactQuery::default();
    jobs.iter()
        .for_each(|job| job.request_facts(&mut fact_query));
    let mark = tenant.mark();
    let parts = database.parts();
    let mut transaction =
        match TenantTransaction::begin(connection, parts, tenant, locks, fact_query).await {
            Ok(transaction) => transaction,
            // A tenant's row is never removed, so a missing row means that commits were lost.
            Err(sqlx::Error::RowNotFound) => {
                return Err(TransactionFailure::Lost(
                    database.record_lost_commits(tenant, mark, 0),
                ));
            }
            Err(error) => return Err(error.into()),
        };
    if transaction.head() < mark.head {
        return Err(TransactionFailure::Lost(database.record_lost_commits(
            tenant,
            mark,
            transaction.head(),
        )));
    }
    let mut refused = 0;
    for job in jobs.iter_mut() {
        match job.run(&mut transaction).await {
            Ok(()) => transaction.accept_job(),
            Err(Fault::Driver(error)) => return Err(TransactionFailure::of(error, is_alone)),
            Err(Fault::Refused(error)) => {
                if transaction.counters == Counters::Exceeded {
                    return Err(TransactionFailure::LimitReached);
                }
                job.refuse(error, &transaction);
                refused += 1;
                if !transaction.discard_job() && !is_alone {
                    return Err(TransactionFailure::BatchFailed);
                }
            }
        }
    }
    if refused == jobs.len() {
        return Ok(None);
    }
    Ok(Some(transaction.end()))
}
