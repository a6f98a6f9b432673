//! PostgreSQL transactions. One transaction commits all jobs (store operations) of a tenant that wait at the same time. A rejected job
//! does not affect the others. Results are sent once the commit is durable.

use super::connections::Connection;
use super::database::{Database, statements};
use super::end;
use super::error::{ATTEMPTS, Fault, ended, has_code, is_worth_another};
use super::facts::Wanted;
use super::history::{Mark, Seen};
use super::job::Job;
use super::listen;
use super::outcome::{Done, Failed};
use super::place::Ended;
use super::resolve::{Lost, resolve};
use super::retention::{Forget, has_excess};
use super::session::Session;
use super::task::{Asked, Tasks};
use super::tenant::Named;
use super::writing::{Counters, Writing};
use crate::error::Chain;
use crate::store::StoreError;
use sqlx::PgConnection;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Number of unique violations caused by concurrent transactions after which a transaction locks the tenant's row from the start.
const COLLISIONS: u32 = 3;

/// PostgreSQL error code (SQLSTATE) of a deadlock between transactions.
const DEADLOCK: &str = "40P01";
const UNIQUE_VIOLATION: &str = "23505";

impl Database {
    /// Runs a job (store operation) in a PostgreSQL transaction, and returns its result after the commit. The job runs to its end even if
    /// the caller stops waiting, because a started job cannot be withdrawn.
    pub(super) async fn write<J: Job>(
        self: &Arc<Self>,
        tenant: &Arc<Named>,
        job: J,
    ) -> Result<J::Answer, StoreError> {
        self.loss.check()?;
        let (waiting, working) = self.progress.begin(&tenant.name);
        let (reply, answer) = oneshot::channel();
        let task = Box::new(Asked::new(job, reply, Some(working)));
        if self.waiting.push(&tenant.name, task, self.most_turns()) {
            let turn = Turn {
                database: Arc::clone(self),
                tenant: Arc::clone(tenant),
                is_over: false,
            };
            drop(tokio::spawn(turn.work()));
        }
        let answer = answer.await;
        drop(waiting);
        answer.map_err(|_| ended())?
    }
}

/// Background task that runs the jobs (store operations) of a tenant until no job waits.
struct Turn {
    database: Arc<Database>,
    tenant: Arc<Named>,
    /// If `true`, the tenant's queue was empty and this background task has ended. A later job starts another background task.
    is_over: bool,
}

impl Turn {
    async fn work(mut self) {
        while let Some(jobs) = self.database.waiting.take(&self.tenant.name) {
            transact(&self.database, &self.tenant, jobs).await;
        }
        self.is_over = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            self.database.waiting.abandon(&self.tenant.name);
        }
    }
}

/// Runs jobs (store operations) until they are committed or a retry is hopeless, and sends their results to the callers.
async fn transact(database: &Arc<Database>, tenant: &Named, mut jobs: Tasks) {
    let outcome = attempt(database, tenant, &mut jobs).await;
    if let Err(Failed::Together) = outcome {
        for job in jobs {
            let mut alone = vec![job];
            let outcome = attempt(database, tenant, &mut alone).await;
            answer(alone, outcome);
        }
    } else {
        answer(jobs, outcome);
    }
}

fn answer(jobs: Tasks, mut outcome: Result<Done, Failed>) {
    for job in jobs {
        job.finish(outcome.as_mut().map_err(|failed| &*failed));
    }
}

/// Runs jobs (store operations) in one transaction, with retries until they are committed or a retry is hopeless.
async fn attempt(
    database: &Arc<Database>,
    tenant: &Named,
    jobs: &mut Tasks,
) -> Result<Done, Failed> {
    let (mut attempt, mut collisions, mut locks) = (1, 0, false);
    loop {
        match commit(database, tenant, jobs, locks).await {
            Ok(mut done) => {
                if !done.events.is_empty() {
                    for (last, events) in std::mem::take(&mut done.events) {
                        let newest = events.last().map(|event| Seen {
                            position: last,
                            of: (event.breadcrumb_id, event.version),
                        });
                        tenant.saw(Mark {
                            head: last,
                            event: newest,
                        });
                        tenant.recent.add(last, events);
                    }
                    listen::announce(database);
                }
                let newest = done.places.last();
                let has_excess = newest
                    .is_some_and(|place| has_excess(&place.tenant, &database.settings.limits));
                let checks_keys = done.has_old_keys && tenant.can_check_keys();
                if has_excess || checks_keys {
                    forget(database, tenant, checks_keys).await;
                }
                return Ok(done);
            }
            Err(Failed::Crowded) if !locks => locks = true,
            Err(Failed::Crowded) if jobs.len() > 1 => return Err(Failed::Together),
            // Jobs that take further locks after the tenant's row can deadlock with a transaction that waits for the row.
            Err(Failed::Driver(error)) if locks && jobs.len() > 1 && has_code(&error, DEADLOCK) => {
                return Err(Failed::Together);
            }
            Err(Failed::Driver(error)) if attempt < ATTEMPTS && is_worth_another(&error) => {
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

/// Deletes a tenant's oldest events, tombstones and ended runs beyond the limits. With `checks_keys`, deletes old request keys as well.
async fn forget(database: &Database, tenant: &Named, checks_keys: bool) {
    let (reply, _answer) = oneshot::channel();
    let mut forget: Tasks = vec![Box::new(Asked::new(Forget { checks_keys }, reply, None))];
    match commit(database, tenant, &mut forget, true).await {
        Ok(done) => {
            if let Some(place) = done.places.last() {
                let first = place.tenant.first_event.cast_unsigned();
                tenant.recent.forget_before(first);
            }
        }
        Err(failed) => {
            if checks_keys {
                tenant.check_failed();
            }
            let error = failed.told();
            tracing::debug!(error = %Chain(&error), "deletion of rows beyond the retention limits failed, will retry after a later commit");
        }
    }
}

/// Runs jobs (store operations) in one PostgreSQL transaction, without retries.
async fn commit(
    database: &Database,
    tenant: &Named,
    jobs: &mut Tasks,
    locks: bool,
) -> Result<Done, Failed> {
    let connections = &database.connections;
    let mut connection = connections.one().await?;
    // If this fails, the connection is closed.
    let prepared = connection.prepare(statements);
    let session = connections.in_time(prepared).await??;
    let mark = tenant.mark();
    let work = work(database, tenant, jobs, locks, &mut connection);
    let worked = match connections.in_time(work).await {
        Ok(worked) => worked,
        // Nothing was committed, and the transaction ends with the connection.
        Err(silent) => return Err(silent.into()),
    };
    let Ok(Some(ended)) = worked else {
        if roll_back(database, connection).await.is_err() {
            tracing::debug!("cannot roll back a failed transaction, closing its connection");
        }
        if let Err(Failed::Driver(error)) = &worked {
            connections.note(error);
        }
        return worked.map(|_| Done::default());
    };
    let ending = Ending {
        database,
        tenant,
        mark,
        session,
        is_alone: jobs.len() == 1,
    };
    let claims = jobs.iter().filter_map(|job| job.claims());
    let claims = claims.map(|claims| claims.message(ended.tenant, &database.time));
    let claims = claims.collect();
    ending.end(connection, ended, claims).await
}

/// End of a PostgreSQL transaction: the commit, and the recovery of its outcome if the answer is lost.
struct Ending<'e> {
    database: &'e Database,
    tenant: &'e Named,
    /// Newest events of the tenant that this process had seen before the transaction.
    mark: Mark,
    session: Session,
    /// If `true`, the transaction has only one job (store operation).
    is_alone: bool,
}

impl Ending<'_> {
    async fn end(
        self,
        connection: Connection<'_>,
        mut ended: Ended,
        claims: Vec<String>,
    ) -> Result<Done, Failed> {
        let mut done = Done {
            leased: Some(Vec::new()),
            has_old_keys: ended.has_old_keys,
            ..Done::default()
        };
        for (place, events) in ended.places {
            done.add(place, events);
        }
        let witness = ended.last.as_ref().and_then(|last| last.witness);
        let claims_any = !claims.is_empty();
        let events = ended
            .last
            .as_mut()
            .map(|last| std::mem::take(&mut last.events));
        let events = events.unwrap_or_default();
        let place = match end::end(self.database, connection, ended.last, claims).await {
            Ok(sent) => {
                done.leased = Some(sent.leased);
                sent.place
            }
            Err(broken) if broken.is_in_doubt() => {
                if claims_any {
                    done.leased = None;
                }
                let lost = Lost {
                    // The server may still claim runs until the session ends.
                    session: claims_any.then_some(self.session),
                    transaction: ended.transaction,
                    witness,
                };
                resolve(self.database, self.tenant, lost, broken.error).await?
            }
            Err(broken) => return Err(Failed::of(broken.error, self.is_alone)),
        };
        if place.is_none() && witness.is_some() {
            // A tenant's row is never removed, so a missing row means that commits were lost.
            let lost = self.database.lost(self.tenant, self.mark, 0);
            return Err(Failed::Lost(lost));
        }
        if let Some(place) = place {
            done.add(place, events);
        }
        if let Some(place) = done.places.last() {
            self.tenant.saw(Mark {
                head: place.tenant.position.cast_unsigned(),
                event: None,
            });
        }
        Ok(done)
    }
}

async fn roll_back(database: &Database, mut connection: Connection<'_>) -> sqlx::Result<()> {
    let told = sqlx::raw_sql("ROLLBACK").execute(&mut *connection);
    database.connections.in_time(told).await??;
    connection.give_back();
    Ok(())
}

/// Runs jobs (store operations) in an open PostgreSQL transaction. Returns `None` if all jobs are rejected.
async fn work(
    database: &Database,
    tenant: &Named,
    jobs: &mut Tasks,
    locks: bool,
    connection: &mut PgConnection,
) -> Result<Option<Ended>, Failed> {
    let is_alone = jobs.len() == 1;
    let mut wanted = Wanted::default();
    jobs.iter().for_each(|job| job.wants(&mut wanted));
    let mark = tenant.mark();
    let parts = database.parts();
    let mut writing = match Writing::begin(connection, parts, tenant, locks, wanted).await {
        Ok(writing) => writing,
        // A tenant's row is never removed, so a missing row means that commits were lost.
        Err(sqlx::Error::RowNotFound) => return Err(Failed::Lost(database.lost(tenant, mark, 0))),
        Err(error) => return Err(error.into()),
    };
    if writing.head() < mark.head {
        return Err(Failed::Lost(database.lost(tenant, mark, writing.head())));
    }
    let mut refused = 0;
    for job in jobs.iter_mut() {
        match job.run(&mut writing).await {
            Ok(()) => writing.keep(),
            Err(Fault::Driver(error)) => return Err(Failed::of(error, is_alone)),
            Err(Fault::Refused(error)) => {
                if writing.counters == Counters::Exceeded {
                    return Err(Failed::Crowded);
                }
                job.refuse(error, &writing);
                refused += 1;
                if !writing.forget() && !is_alone {
                    return Err(Failed::Together);
                }
            }
        }
    }
    if refused == jobs.len() {
        return Ok(None);
    }
    Ok(Some(writing.end()))
}
