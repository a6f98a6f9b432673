//! What the handles of one store share: the connections, the clock, and how transactions are made.

use super::builder::Settings;
use super::connection;
use super::cursor::Acknowledged;
use super::error::{Class, Fault, PostgresError, ended, unknown_outcome};
use super::progress::Progress;
use super::schema;
use super::tenant::{Time, Writing};
use super::unclaimed::Unclaimed;
use crate::store::StoreError;
use sqlx::{Connection as _, PgConnection, PgPool};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often the same is tried at once, where nothing was done and another transaction or a stale connection was the
/// reason.
const ATTEMPTS: u32 = 20;

/// Something to be done in a transaction, as often as it takes for one to be committed.
pub(super) trait Job: Send + Sync + 'static {
    /// What comes of it.
    type Answer: Send + 'static;

    /// Whether it works with the row of the tenant, which no other such job does until it is committed. What it
    /// changes of that row is lost otherwise.
    const LOCKS: bool;

    /// Does it. An error undoes it.
    fn run(
        &self,
        writing: &mut Writing<'_>,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;

    /// What to do once it is committed, also if nobody waits for the answer any more.
    fn committed(&self, _answer: &Self::Answer) {}
}

/// Something to be read, as often as it takes.
pub(super) trait Read: Send + Sync {
    /// What comes of it.
    type Answer: Send;

    /// Reads it.
    fn run(
        &self,
        connection: &mut PgConnection,
        time: &Time,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;
}

/// What the handles of one store share. The connections are closed when the last pointer to it goes.
pub(super) struct Database {
    pub(super) settings: Arc<Settings>,
    pub(super) time: Time,
    pub(super) acknowledged: Acknowledged,
    pub(super) unclaimed: Unclaimed,
    pub(super) pool: PgPool,
    /// Whether a sweep is going on.
    pub(super) sweeping: AtomicBool,
    /// Whether somebody is about to tell other processes of events.
    pub(super) telling: AtomicBool,
    /// Whether the events of other processes are listened to.
    pub(super) listening: AtomicBool,
    /// Changes when there may be new events.
    pub(super) announced: watch::Sender<u64>,
    progress: Progress,
    /// Its other side is told when this goes.
    _open: watch::Sender<()>,
    open: watch::Receiver<()>,
}

impl Database {
    pub(super) async fn connect(url: &str, settings: Settings) -> Result<Self, PostgresError> {
        let options = connection::options(url, &settings)?;
        let pool = connection::pool(options, &settings).await?;
        let mut first = pool.acquire().await?;
        connection::check(&mut first).await?;
        schema::migrate(&mut first, &settings.schema).await?;
        drop(first);
        let (alive, open) = watch::channel(());
        Ok(Self {
            settings: Arc::new(settings),
            time: Time::default(),
            acknowledged: Acknowledged::default(),
            unclaimed: Unclaimed::default(),
            pool,
            sweeping: AtomicBool::default(),
            telling: AtomicBool::default(),
            listening: AtomicBool::default(),
            announced: watch::Sender::new(0),
            progress: Progress::default(),
            _open: alive,
            open,
        })
    }

    /// Does a job in a transaction, and answers when that is committed. It goes on if nobody waits for the answer any
    /// more, since what was begun cannot be taken back.
    pub(super) async fn write<J: Job>(
        self: &Arc<Self>,
        tenant: &Arc<str>,
        job: J,
    ) -> Result<J::Answer, StoreError> {
        let (database, tenant) = (Arc::clone(self), Arc::clone(tenant));
        let (waiting, working) = self.progress.begin();
        let work = tokio::spawn(async move {
            let done = database.work(&tenant, &job).await;
            if let Ok((answer, has_events)) = &done {
                job.committed(answer);
                if *has_events {
                    super::listen::announce(&database);
                }
            }
            drop(working);
            done.map(|(answer, _)| answer)
        });
        let answer = work.await;
        drop(waiting);
        answer.map_err(|_| ended())?
    }

    /// Does a job until it is committed, refused or hopeless. Says too whether there are new events.
    async fn work<J: Job>(&self, tenant: &str, job: &J) -> Result<(J::Answer, bool), StoreError> {
        let mut attempt = 1;
        loop {
            match self.attempt(tenant, job).await {
                Err(Fault::Driver(error)) if attempt < ATTEMPTS && is_worth_another(&error) => {
                    tracing::debug!(%error, attempt, "a transaction of the store is done again");
                    attempt += 1;
                }
                done => return Ok(done?),
            }
        }
    }

    async fn attempt<J: Job>(&self, tenant: &str, job: &J) -> Result<(J::Answer, bool), Fault> {
        let mut connection = self.pool.acquire().await?;
        let mut transaction = connection.begin().await?;
        let limits = &self.settings.limits;
        let worked = async {
            let mut writing =
                Writing::begin(&mut transaction, limits, tenant, &self.time, J::LOCKS).await?;
            let answer = job.run(&mut writing).await?;
            let number = std::mem::take(&mut writing.transaction);
            Ok((answer, number, writing.end().await?))
        };
        let (answer, number, has_events) = match worked.await {
            Ok(worked) => worked,
            Err(fault) => {
                if transaction.rollback().await.is_err() {
                    connection.close_on_drop();
                }
                return Err(fault);
            }
        };
        if let Err(error) = transaction.commit().await {
            connection.close_on_drop();
            self.resolve(&number, error).await?;
        }
        Ok((answer, has_events))
    }

    /// What became of a transaction whose commit was not answered: the server knows.
    async fn resolve(&self, transaction: &str, lost: sqlx::Error) -> Result<(), Fault> {
        const PAUSE: Duration = Duration::from_millis(50);
        let give_up = Instant::now() + self.settings.patience;
        let sql = "SELECT pg_xact_status($1::text::xid8)";
        loop {
            let status = sqlx::query_scalar::<_, Option<String>>(sql).bind(transaction);
            match status.fetch_one(&self.pool).await {
                Ok(status) => match status.as_deref() {
                    Some("committed") => return Ok(()),
                    Some("aborted") => return Err(lost.into()),
                    Some(_) | None => {}
                },
                Err(error) => {
                    tracing::debug!(%error, "nobody says yet what became of a transaction")
                }
            }
            if Instant::now() > give_up {
                tracing::warn!(error = %lost, "the connection was lost in a commit, and what became of it is not known");
                return Err(unknown_outcome().into());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until what was done for callers that are gone is there to be read.
    pub(super) async fn settled(&self) {
        self.progress.settled().await;
    }

    /// Reads with one connection. Every commit that was answered before is there.
    pub(super) async fn read<R: Read>(&self, read: R) -> Result<R::Answer, StoreError> {
        self.settled().await;
        let mut attempt = 1;
        loop {
            match self.attempt_read(&read).await {
                Err(Fault::Driver(error)) if attempt < ATTEMPTS && is_worth_another(&error) => {
                    attempt += 1;
                }
                read => return Ok(read?),
            }
        }
    }

    async fn attempt_read<R: Read>(&self, read: &R) -> Result<R::Answer, Fault> {
        let mut connection = self.pool.acquire().await?;
        read.run(&mut connection, &self.time).await
    }

    /// Ends with the last pointer to this.
    pub(super) fn open(&self) -> watch::Receiver<()> {
        self.open.clone()
    }

    /// Ends when the last pointer has gone and the connections are closed.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let (mut open, pool) = (self.open(), self.pool.clone());
        async move {
            // Nothing is ever sent.
            while open.changed().await.is_ok() {}
            pool.close().await;
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("schema", &self.settings.schema)
            .finish_non_exhaustive()
    }
}

/// Whether the same again may succeed at once.
fn is_worth_another(error: &sqlx::Error) -> bool {
    match Class::of(error) {
        Class::Collided | Class::Lost => true,
        Class::Transient | Class::Permanent | Class::Login => false,
    }
}
