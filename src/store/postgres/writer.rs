//! Transactions. What waits for the row of one tenant is committed together, since it is the commit that costs. A job
//! that is refused takes no other with it. Answers go out after the commit.

use super::connections::Connection;
use super::database::{Database, Job};
use super::error::{Class, Fault, PostgresError, ended, of_driver, unknown_outcome};
use super::history::{self, Mark};
use super::listen;
use super::prepared;
use super::progress::Working;
use super::tenant::Named;
use super::writing::{Ended, Transaction, Wanted, Writing};
use crate::error::Chain;
use crate::store::StoreError;
use futures::future::BoxFuture;
use sqlx::{AssertSqlSafe, PgConnection};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The most jobs of one transaction.
const MOST: usize = 64;

/// How often the same is tried at once, where nothing was done and another transaction or a stale connection was the
/// reason.
pub(super) const ATTEMPTS: u32 = 20;

/// A job with an answer.
trait Task: Send {
    /// Whether anybody still wants it.
    fn is_wanted(&self) -> bool;

    /// Adds what it is going to look at.
    fn wants(&self, wanted: &mut Wanted);

    /// Does it, and keeps what comes of it.
    fn run<'r>(&'r mut self, writing: &'r mut Writing<'_>) -> BoxFuture<'r, Result<(), Fault>>;

    /// What comes of it is that it is refused.
    fn refuse(&mut self, error: StoreError);

    /// Answers, with why nothing was committed if that is so.
    fn finish(self: Box<Self>, failed: Option<&Failed>);
}

type Tasks = Vec<Box<dyn Task>>;
type ByTenant = HashMap<Arc<str>, VecDeque<Box<dyn Task>>>;

struct Asked<J: Job> {
    job: J,
    done: Option<Result<J::Answer, StoreError>>,
    reply: oneshot::Sender<Result<J::Answer, StoreError>>,
    working: Working,
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
            Ok(())
        })
    }

    fn refuse(&mut self, error: StoreError) {
        self.done = Some(Err(error));
    }

    fn finish(self: Box<Self>, failed: Option<&Failed>) {
        let done = match failed {
            // A refusal too may be due to what was not committed.
            Some(failed) => Err(failed.told()),
            None => self.done.unwrap_or_else(|| Err(ended())),
        };
        if let Ok(answer) = &done {
            self.job.committed(answer);
        }
        drop(self.working);
        // Who asked may be gone.
        drop(self.reply.send(done));
    }
}

/// Why a transaction was not committed, or may not have been.
#[derive(Debug)]
enum Failed {
    Driver(Arc<sqlx::Error>),
    /// One of several jobs is refused and cannot be undone alone: each has to be done by itself.
    Together,
    Unknown,
    /// The database lost commits.
    Lost(Arc<PostgresError>),
}

impl Failed {
    /// Why jobs were not done. Of which of them the server does not take something it does not say.
    fn of(error: sqlx::Error, is_alone: bool) -> Self {
        if !is_alone && Class::of(&error) == Class::Permanent {
            Self::Together
        } else {
            error.into()
        }
    }

    fn told(&self) -> StoreError {
        match self {
            Self::Driver(error) => of_driver(Arc::clone(error)),
            Self::Together => ended(),
            Self::Unknown => unknown_outcome(),
            Self::Lost(error) => history::refused(error),
        }
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(Arc::new(error))
    }
}

/// Jobs that wait for the row of a tenant, by tenant. One that is in here has a task that does its jobs.
#[derive(Default)]
pub(super) struct Waiting(Mutex<ByTenant>);

impl Waiting {
    /// Adds a job, and says whether there has to be a task for the tenant.
    fn push(&self, tenant: &Arc<str>, job: Box<dyn Task>) -> bool {
        let mut waiting = self.lock();
        let is_first = !waiting.contains_key(tenant);
        waiting
            .entry(Arc::clone(tenant))
            .or_default()
            .push_back(job);
        is_first
    }

    /// The next jobs of a tenant that somebody wants; none if there are none, and then its task ends.
    fn take(&self, tenant: &str) -> Option<Tasks> {
        let mut waiting = self.lock();
        let jobs = waiting.get_mut(tenant)?;
        jobs.retain(|job| job.is_wanted());
        if jobs.is_empty() {
            waiting.remove(tenant);
            return None;
        }
        let most = jobs.len().min(MOST);
        Some(jobs.drain(..most).collect())
    }

    fn lock(&self) -> MutexGuard<'_, ByTenant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does a job in a transaction, and answers when that is committed. It goes on if nobody waits for the answer any more,
/// since what was begun cannot be taken back.
pub(super) async fn write<J: Job>(
    database: &Arc<Database>,
    tenant: &Arc<Named>,
    job: J,
) -> Result<J::Answer, StoreError> {
    database.loss.check()?;
    let (waiting, working) = database.progress.begin(&tenant.name);
    let (reply, answer) = oneshot::channel();
    let task = Box::new(Asked {
        job,
        done: None,
        reply,
        working,
    });
    if !J::LOCKS {
        let (database, tenant) = (Arc::clone(database), Arc::clone(tenant));
        drop(tokio::spawn(async move {
            transact(&database, &tenant, vec![task], false).await;
        }));
    } else if database.waiting.push(&tenant.name, task) {
        let turn = Turn {
            database: Arc::clone(database),
            tenant: Arc::clone(tenant),
            is_over: false,
        };
        drop(tokio::spawn(turn.work()));
    }
    let answer = answer.await;
    drop(waiting);
    answer.map_err(|_| ended())?
}

/// The task that does the jobs of a tenant, until there are none.
struct Turn {
    database: Arc<Database>,
    tenant: Arc<Named>,
    /// Whether there were no more jobs; those that came since have a task of their own.
    is_over: bool,
}

impl Turn {
    async fn work(mut self) {
        while let Some(jobs) = self.database.waiting.take(&self.tenant.name) {
            transact(&self.database, &self.tenant, jobs, true).await;
        }
        self.is_over = true;
    }
}

impl Drop for Turn {
    /// After a panic: who waits is told that there is nobody, and the next begins anew.
    fn drop(&mut self) {
        if !self.is_over {
            let left = self.database.waiting.lock().remove(&self.tenant.name);
            drop(left);
        }
    }
}

/// Does jobs until they are committed, or it is hopeless, and answers them.
async fn transact(database: &Arc<Database>, tenant: &Named, mut jobs: Tasks, locks: bool) {
    let failed = attempt(database, tenant, &mut jobs, locks).await.err();
    if let Some(Failed::Together) = failed {
        for job in jobs {
            let mut alone = vec![job];
            let failed = attempt(database, tenant, &mut alone, locks).await.err();
            answer(alone, failed.as_ref());
        }
    } else {
        answer(jobs, failed.as_ref());
    }
}

fn answer(jobs: Tasks, failed: Option<&Failed>) {
    for job in jobs {
        job.finish(failed);
    }
}

/// Does jobs until they are committed, or it is hopeless.
async fn attempt(
    database: &Arc<Database>,
    tenant: &Named,
    jobs: &mut Tasks,
    locks: bool,
) -> Result<(), Failed> {
    let mut attempt = 1;
    loop {
        match commit(database, tenant, jobs, locks).await {
            Ok(has_events) => {
                if has_events {
                    listen::announce(database);
                }
                return Ok(());
            }
            Err(Failed::Driver(error)) if attempt < ATTEMPTS && is_worth_another(&error) => {
                tracing::debug!(error = %Chain(&error), attempt, "a transaction of the store is done again");
                attempt += 1;
            }
            Err(failed) => return Err(failed),
        }
    }
}

/// One transaction. Says whether there are new events.
async fn commit(
    database: &Database,
    tenant: &Named,
    jobs: &mut Tasks,
    locks: bool,
) -> Result<bool, Failed> {
    let connections = &database.connections;
    let mut connection = connections.one().await?;
    // What is prepared half way is not given back.
    let prepared = connection.prepare(prepared::statements);
    connections.in_time(prepared).await??;
    let work = work(database, tenant, jobs, locks, &mut connection);
    let worked = match connections.in_time(work).await {
        Ok(worked) => worked,
        // Nothing was committed, and with the connection goes what was begun.
        Err(silent) => return Err(silent.into()),
    };
    let Ok(Some(ended)) = worked else {
        if end(database, connection, "ROLLBACK").await.is_err() {
            tracing::debug!("a transaction that failed ends with its connection");
        }
        if let Err(Failed::Driver(error)) = &worked {
            connections.note(error);
        }
        return worked.map(|_| false);
    };
    let is_alone = jobs.len() == 1;
    let message = ended.last.as_ref().map(|last| connection.message(last));
    let sql = match (message, ended.last) {
        (None, _) | (_, None) => "COMMIT".to_owned(),
        (Some(Some(message)), _) => format!("{message}; COMMIT"),
        (Some(None), Some(last)) => {
            let written = connections.in_time(last.execute(&mut connection)).await;
            let written = written.and_then(|written| written);
            written.map_err(|error| Failed::of(error, is_alone))?;
            "COMMIT".to_owned()
        }
    };
    if let Err(error) = end(database, connection, &sql).await {
        match Class::of(&error) {
            // The server says what is wrong, so nothing is kept.
            Class::Collided | Class::Permanent | Class::ReadOnly | Class::Setup => {
                return Err(Failed::of(error, is_alone));
            }
            Class::Lost | Class::Transient | Class::Login => {
                resolve(database, &ended.transaction, error).await?;
            }
        }
    }
    tenant.saw(Mark {
        head: ended.head,
        event: None,
    });
    Ok(ended.has_events)
}

async fn end(database: &Database, mut connection: Connection<'_>, sql: &str) -> sqlx::Result<()> {
    let told = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *connection);
    database.connections.in_time(told).await??;
    connection.give_back();
    Ok(())
}

/// Does jobs in a transaction. None if all are refused.
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
    let mut writing = match Writing::begin(connection, database, tenant, locks, wanted).await {
        Ok(writing) => writing,
        // The row of a tenant is never removed.
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
                job.refuse(error);
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
    let ended = writing.end().await;
    ended.map(Some).map_err(|error| Failed::of(error, is_alone))
}

/// What became of a transaction whose commit was not answered: the server knows, unless it has crashed since. Then another
/// transaction may have got the number, and what is said of that is no answer; but one that is not there is undone.
async fn resolve(
    database: &Database,
    transaction: &Transaction,
    lost: sqlx::Error,
) -> Result<(), Failed> {
    const PAUSE: Duration = Duration::from_millis(50);
    let give_up = Instant::now() + database.settings.patience;
    loop {
        match status(database, transaction).await {
            Ok((status, is_the_same)) => match status.as_deref() {
                Some("committed") if is_the_same => return Ok(()),
                Some("committed") => {
                    tracing::warn!(error = %Chain(&lost), "the server crashed in a commit, and what became of it is not known");
                    return Err(Failed::Unknown);
                }
                Some("aborted") => return Err(lost.into()),
                Some(_) | None => {}
            },
            Err(error) if is_unheard_of(&error) => return Err(lost.into()),
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "nobody says yet what became of a transaction")
            }
        }
        if Instant::now() > give_up {
            tracing::warn!(error = %Chain(&lost), "the connection was lost in a commit, and what became of it is not known");
            return Err(Failed::Unknown);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn status(
    database: &Database,
    transaction: &Transaction,
) -> sqlx::Result<(Option<String>, bool)> {
    let mut connection = database.connections.one().await?;
    let sql =
        "SELECT pg_xact_status($1::text::xid8), EXISTS (SELECT 1 FROM ux_alive WHERE since = $2)";
    let status = sqlx::query_as(sql)
        .bind(&transaction.number)
        .bind(&transaction.since);
    let status = status.fetch_one(&mut *connection);
    let status = database.connections.in_time(status).await??;
    connection.give_back();
    Ok(status)
}

/// Whether the server says that it has not come to the number of a transaction yet: it crashed and forgot it.
fn is_unheard_of(error: &sqlx::Error) -> bool {
    const INVALID_PARAMETER: &str = "22023";
    let code = error.as_database_error().and_then(|said| said.code());
    code.is_some_and(|code| code == INVALID_PARAMETER)
}

/// Whether the same again may succeed at once.
pub(super) fn is_worth_another(error: &sqlx::Error) -> bool {
    match Class::of(error) {
        Class::Collided | Class::Lost => true,
        Class::Transient | Class::Permanent | Class::Login | Class::ReadOnly | Class::Setup => {
            false
        }
    }
}
