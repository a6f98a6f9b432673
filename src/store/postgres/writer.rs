//! Transactions: the jobs of one tenant that wait at the same time are committed together. A job that is refused does not affect the
//! others. Answers are sent after the commit is durable.

use super::column::Id;
use super::connection::FLUSH;
use super::connections::Connection;
use super::database::{Database, Job};
use super::end;
use super::error::{Class, Fault, PostgresError, ended, of_driver, unknown_outcome};
use super::history::{self, Mark};
use super::listen;
use super::prepared;
use super::progress::Working;
use super::tenant::Named;
use super::retention::{Forget, has_excess};
use super::writing::{Ended, Place, Transaction, Wanted, Witness, Writing};
use crate::error::Chain;
use crate::store::StoreError;
use futures::future::BoxFuture;
use sqlx::PgConnection;
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
    /// Returns `true` if the caller still waits for the answer.
    fn is_wanted(&self) -> bool;

    /// Adds the facts that the job needs.
    fn wants(&self, wanted: &mut Wanted);

    /// Does the job, and stores the answer.
    fn run<'r>(&'r mut self, writing: &'r mut Writing<'_>) -> BoxFuture<'r, Result<(), Fault>>;

    /// Stores the reason for which the job is refused.
    fn refuse(&mut self, error: StoreError, writing: &Writing<'_>);

    /// Sends the answer. `outcome` has the places of all changes, or the reason for which nothing was committed.
    fn finish(self: Box<Self>, outcome: Result<&[Place], &Failed>);
}

type Tasks = Vec<Box<dyn Task>>;
type ByTenant = HashMap<Arc<str>, VecDeque<Box<dyn Task>>>;

struct Asked<J: Job> {
    job: J,
    done: Option<Result<J::Answer, StoreError>>,
    /// The index of the place of the job's changes.
    place: usize,
    reply: oneshot::Sender<Result<J::Answer, StoreError>>,
    working: Option<Working>,
}

impl<J: Job> Asked<J> {
    fn new(
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

    fn finish(self: Box<Self>, outcome: Result<&[Place], &Failed>) {
        let mut done = match outcome {
            // The cause of a refusal may not have been committed either.
            Err(failed) => Err(failed.told()),
            Ok(_) => self.done.unwrap_or_else(|| Err(ended())),
        };
        if let Some(place) = outcome.ok().and_then(|places| places.get(self.place)) {
            match &mut done {
                Ok(answer) => J::settle(answer, place),
                Err(StoreError::NotFound {
                    tombstone: Some(tombstone),
                    ..
                }) => place.settle(tombstone),
                Err(_) => {}
            }
        }
        if let Ok(answer) = &done {
            self.job.committed(answer);
        }
        drop(self.working);
        // The caller may be gone.
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
    /// A limit may be reached, which is exact only with the tenant's row locked.
    Crowded,
    /// The database lost commits.
    Lost(Arc<PostgresError>),
}

impl Failed {
    /// Why jobs were not done. Of which of them the server does not take something it does not say.
    fn of(error: sqlx::Error, is_alone: bool) -> Self {
        if is_crowded(&error) {
            Self::Crowded
        } else if !is_alone && Class::of(&error) == Class::Permanent {
            Self::Together
        } else {
            error.into()
        }
    }

    fn told(&self) -> StoreError {
        match self {
            Self::Driver(error) => of_driver(Arc::clone(error)),
            Self::Together | Self::Crowded => ended(),
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
    let task = Box::new(Asked::new(job, reply, Some(working)));
    if database.waiting.push(&tenant.name, task) {
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
            transact(&self.database, &self.tenant, jobs).await;
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

/// Does jobs until they are committed, or until a retry is hopeless, and answers them.
async fn transact(database: &Arc<Database>, tenant: &Named, mut jobs: Tasks) {
    let outcome = attempt(database, tenant, &mut jobs).await;
    if let Err(Failed::Together) = outcome {
        for job in jobs {
            let mut alone = vec![job];
            let outcome = attempt(database, tenant, &mut alone).await;
            answer(alone, &outcome);
        }
    } else {
        answer(jobs, &outcome);
    }
}

fn answer(jobs: Tasks, outcome: &Result<Vec<Place>, Failed>) {
    for job in jobs {
        job.finish(outcome.as_deref());
    }
}

/// Does jobs until they are committed, or until a retry is hopeless. Returns the places of the changes.
async fn attempt(
    database: &Arc<Database>,
    tenant: &Named,
    jobs: &mut Tasks,
) -> Result<Vec<Place>, Failed> {
    let (mut attempt, mut locks) = (1, false);
    loop {
        match commit(database, tenant, jobs, locks).await {
            Ok(done) => {
                if done.has_events {
                    listen::announce(database);
                }
                let newest = done.places.last();
                if newest.is_some_and(|place| has_excess(&place.tenant, &database.settings.limits)) {
                    forget(database, tenant).await;
                }
                return Ok(done.places);
            }
            Err(Failed::Crowded) if !locks => locks = true,
            Err(Failed::Driver(error)) if attempt < ATTEMPTS && is_worth_another(&error) => {
                tracing::debug!(error = %Chain(&error), attempt, "a transaction failed, will retry");
                attempt += 1;
            }
            Err(failed) => return Err(failed),
        }
    }
}

/// Removes the rows of a tenant that are beyond its limits.
async fn forget(database: &Database, tenant: &Named) {
    let (reply, _answer) = oneshot::channel();
    let mut forget: Tasks = vec![Box::new(Asked::new(Forget, reply, None))];
    if let Err(failed) = commit(database, tenant, &mut forget, false).await {
        let error = failed.told();
        tracing::debug!(error = %Chain(&error), "retention failed, will retry after a later commit");
    }
}

/// A transaction that is committed and durable.
struct Done {
    places: Vec<Place>,
    has_events: bool,
}

/// Does jobs in one transaction.
async fn commit(
    database: &Database,
    tenant: &Named,
    jobs: &mut Tasks,
    locks: bool,
) -> Result<Done, Failed> {
    let connections = &database.connections;
    let mut connection = connections.one().await?;
    // A connection on which this fails is closed.
    let prepared = connection.prepare(prepared::statements);
    connections.in_time(prepared).await??;
    let mark = tenant.mark();
    let work = work(database, tenant, jobs, locks, &mut connection);
    let worked = match connections.in_time(work).await {
        Ok(worked) => worked,
        // Nothing was committed, and the transaction ends with the connection.
        Err(silent) => return Err(silent.into()),
    };
    let Ok(Some(ended)) = worked else {
        if roll_back(database, connection).await.is_err() {
            tracing::debug!("a failed transaction ends with its connection");
        }
        if let Err(Failed::Driver(error)) = &worked {
            connections.note(error);
        }
        return worked.map(|_| Done {
            places: Vec::new(),
            has_events: false,
        });
    };
    let Ended {
        transaction,
        mut places,
        has_events,
        last,
    } = ended;
    let takes = last.as_ref().is_some_and(|last| last.take.is_some());
    let witness = last.as_ref().and_then(|last| last.witness);
    let place = match end::end(database, connection, last).await {
        Ok(place) => place,
        Err(broken) if broken.is_in_doubt() => {
            let resolved = resolve(database, tenant, (&transaction, witness), broken.error);
            resolved.await?
        }
        Err(broken) => return Err(Failed::of(broken.error, jobs.len() == 1)),
    };
    match place {
        Some(place) => places.push(place),
        // The row of a tenant is never removed.
        None if takes && witness.is_some() => {
            return Err(Failed::Lost(database.lost(tenant, mark, 0)));
        }
        None => {}
    }
    if let Some(place) = places.last() {
        tenant.saw(Mark {
            head: place.tenant.position.cast_unsigned(),
            event: None,
        });
    }
    Ok(Done { places, has_events })
}

async fn roll_back(database: &Database, mut connection: Connection<'_>) -> sqlx::Result<()> {
    let told = sqlx::raw_sql("ROLLBACK").execute(&mut *connection);
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
                if writing.is_full {
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

/// Finds out the outcome of a transaction whose commit was not answered: the server knows it, unless it has crashed since. After a
/// crash another transaction may have the same ID, so only "unknown" and "aborted" are certain. Returns the place of the changes
/// if an event of them is there.
async fn resolve(
    database: &Database,
    tenant: &Named,
    (transaction, witness): (&Transaction, Option<Witness>),
    lost: sqlx::Error,
) -> Result<Option<Place>, Failed> {
    const PAUSE: Duration = Duration::from_millis(50);
    let give_up = Instant::now() + database.settings.patience;
    loop {
        match status(database, transaction).await {
            Ok((status, is_the_same)) => match status.as_deref() {
                Some("committed") if is_the_same => match find(database, tenant, witness).await {
                    Ok(place) => return Ok(place),
                    Err(error) => {
                        tracing::debug!(error = %Chain(&error), "the place of a commit is not known yet, will retry");
                    }
                },
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

/// Makes a commit durable whose answer was lost, and finds its place by one of its events.
async fn find(
    database: &Database,
    tenant: &Named,
    witness: Option<Witness>,
) -> sqlx::Result<Option<Place>> {
    let mut connection = database.connections.one().await?;
    let found = async {
        if database.can_flush {
            sqlx::raw_sql(FLUSH).execute(&mut *connection).await?;
        }
        let (Some(witness), Some(id)) = (witness, tenant.id(&mut connection).await?) else {
            return Ok(None);
        };
        let sql = concat!(
            "SELECT n.id, n.latest, n.sequence, e.position, n.first_event, n.breadcrumbs, n.tombstones, n.open_runs,
                 n.finished_runs, e.updated_at - $4 AS ux_base
             FROM ux_tenants AS n JOIN ux_events AS e ON e.tenant = n.id
             WHERE n.id = $1 AND e.breadcrumb_id = $2 AND e.version = $3 ORDER BY e.position DESC LIMIT 1"
        );
        let place = sqlx::query(sql)
            .bind(id)
            .bind(Id::from(witness.breadcrumb))
            .bind(witness.version.cast_signed())
            .bind(witness.time);
        let place = place.fetch_one(&mut *connection).await?;
        Place::read(&place).map(Some)
    };
    let found = database.connections.in_time(found).await??;
    connection.give_back();
    Ok(found)
}

/// Whether the server says that it has not come to the number of a transaction yet: it crashed and forgot it.
fn is_unheard_of(error: &sqlx::Error) -> bool {
    const INVALID_PARAMETER: &str = "22023";
    let code = error.as_database_error().and_then(|said| said.code());
    code.is_some_and(|code| code == INVALID_PARAMETER)
}

/// Returns `true` if a transaction ended because it would have exceeded a limit.
fn is_crowded(error: &sqlx::Error) -> bool {
    const DIVISION_BY_ZERO: &str = "22012";
    let code = error.as_database_error().and_then(|said| said.code());
    code.is_some_and(|code| code == DIVISION_BY_ZERO)
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
