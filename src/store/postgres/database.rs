//! What the handles of one store share: the connections, the clock, and how transactions are made.

use super::builder::Settings;
use super::connection;
use super::connections::Connections;
use super::cursor::Acknowledged;
use super::error::{Fault, PostgresError, ended};
use super::progress::Progress;
use super::schema;
use super::tenant::{Named, Time};
use super::unclaimed::Unclaimed;
use super::vectors;
use super::writer::{self, ATTEMPTS, Waiting, is_worth_another};
use super::writing::{Wanted, Writing};
use crate::store::StoreError;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::watch;

/// Something to be done in a transaction, as often as it takes for one to be committed.
pub(super) trait Job: Send + Sync + 'static {
    /// What comes of it.
    type Answer: Send + 'static;

    /// Whether it works with the row of the tenant, which no other such job does until it is committed. What it
    /// changes of that row is lost otherwise.
    const LOCKS: bool;

    /// Adds what it is going to look at.
    fn wants(&self, _wanted: &mut Wanted) {}

    /// Does it. An error undoes it.
    fn run(
        &self,
        writing: &mut Writing<'_>,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;

    /// What to do once it is committed, also if nobody waits for the answer any more.
    fn committed(&self, _answer: &Self::Answer) {}
}

/// Something to be read or told in one statement, as often as it takes.
pub(super) trait Read: Send + Sync {
    /// What comes of it.
    type Answer: Send + 'static;

    /// Does it.
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
    pub(super) connections: Connections,
    /// Has the connection that hears of the events of other processes.
    pub(super) hearing: PgPool,
    /// Whether there is a table for vectors.
    pub(super) has_vectors: bool,
    /// Whether a sweep is going on.
    pub(super) sweeping: AtomicBool,
    /// Whether somebody is about to tell other processes of events.
    pub(super) telling: AtomicBool,
    /// Whether the events of other processes are listened to.
    pub(super) listening: AtomicBool,
    /// Changes when there may be new events.
    pub(super) announced: watch::Sender<u64>,
    pub(super) progress: Progress,
    /// Jobs that wait for the row of their tenant.
    pub(super) waiting: Waiting,
    /// Its other side is told when this goes.
    _open: watch::Sender<()>,
    open: watch::Receiver<()>,
}

impl Database {
    pub(super) async fn connect(url: &str, settings: Settings) -> Result<Self, PostgresError> {
        let options = connection::options(url, &settings)?;
        let pool = PgPoolOptions::new().max_connections(1);
        let hearing = pool.connect_lazy_with(options.clone());
        let connections = Connections::new(options, &settings);
        let mut first = connections.one().await?;
        connection::check(&mut first).await?;
        schema::migrate(&mut first, &settings.schema).await?;
        let has_vectors = settings.vectors && vectors::prepare(&mut first).await;
        first.give_back();
        let (alive, open) = watch::channel(());
        Ok(Self {
            settings: Arc::new(settings),
            time: Time::default(),
            acknowledged: Acknowledged::default(),
            unclaimed: Unclaimed::default(),
            connections,
            hearing,
            has_vectors,
            sweeping: AtomicBool::default(),
            telling: AtomicBool::default(),
            listening: AtomicBool::default(),
            announced: watch::Sender::new(0),
            progress: Progress::default(),
            waiting: Waiting::default(),
            _open: alive,
            open,
        })
    }

    /// Does a job in a transaction, and answers when that is committed.
    pub(super) async fn write<J: Job>(
        self: &Arc<Self>,
        tenant: &Arc<Named>,
        job: J,
    ) -> Result<J::Answer, StoreError> {
        writer::write(self, tenant, job).await
    }

    /// Does what one statement does, which is the same if it is done twice, and finishes it whoever waits for it.
    pub(super) async fn repeat<R: Read + 'static>(
        self: &Arc<Self>,
        job: R,
    ) -> Result<R::Answer, StoreError> {
        let (waiting, working) = self.progress.begin();
        let database = Arc::clone(self);
        let done = tokio::spawn(async move {
            let done = database.retry(&job).await;
            drop(working);
            done
        });
        let done = done.await;
        drop(waiting);
        done.map_err(|_| ended())?
    }

    /// Waits until what was done for callers that are gone is there to be read.
    pub(super) async fn settled(&self) {
        self.progress.settled().await;
    }

    /// Reads with one connection. Every commit that was answered before is there.
    pub(super) async fn read<R: Read>(&self, read: R) -> Result<R::Answer, StoreError> {
        self.settled().await;
        self.retry(&read).await
    }

    async fn retry<R: Read>(&self, read: &R) -> Result<R::Answer, StoreError> {
        let mut attempt = 1;
        loop {
            match self.attempt_read(read).await {
                Err(Fault::Driver(error)) if attempt < ATTEMPTS && is_worth_another(&error) => {
                    attempt += 1;
                }
                read => return Ok(read?),
            }
        }
    }

    async fn attempt_read<R: Read>(&self, read: &R) -> Result<R::Answer, Fault> {
        let mut connection = self.connections.one().await?;
        let answer = read.run(&mut connection, &self.time).await;
        if !matches!(answer, Err(Fault::Driver(_))) {
            connection.give_back();
        }
        answer
    }

    /// Ends with the last pointer to this.
    pub(super) fn open(&self) -> watch::Receiver<()> {
        self.open.clone()
    }

    /// Ends when the last pointer has gone and the connections are closed.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let (mut open, hearing) = (self.open(), self.hearing.clone());
        async move {
            // Nothing is ever sent.
            while open.changed().await.is_ok() {}
            hearing.close().await;
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
