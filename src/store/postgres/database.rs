//! What the handles of one store share: the connections, the clock, and how transactions are made.

use super::builder::Settings;
use super::connection;
use super::connections::Connections;
use super::cursor::Acknowledgements;
use super::error::{Fault, PostgresError, ended, of_driver};
use super::facts::Wanted;
use super::history::{Loss, Mark};
use super::lease::{Asked, Leased};
use super::listen::Notifying;
use super::pgvector::{self, Pgvector};
use super::place::Place;
use super::prepared;
use super::progress::Progress;
use super::recent::Tenants;
use super::round_trip::RoundTrip;
use super::schema;
use super::session::Session;
use super::task::Waiting;
use super::tenant::Named;
use super::vectors;
use super::writer::{self, ATTEMPTS, is_worth_another};
use super::writing::Writing;
use crate::store::StoreError;
use crate::store::durable::tenant::Time;
use crate::store::embedding::Keepers;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::sync::watch;

/// Something to be done in a transaction, as often as it takes for one to be committed.
pub(super) trait Job: Send + Sync + 'static {
    /// What comes of it.
    type Answer: Send + 'static;

    /// Adds what it is going to look at.
    fn wants(&self, _wanted: &mut Wanted) {}

    /// Does it. An error undoes it.
    fn run(
        &self,
        writing: &mut Writing<'_>,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;

    /// The due runs that the transaction claims after its commit, if the job claims any.
    fn claims(&self) -> Option<&Asked> {
        None
    }

    /// Adds the leased runs to an answer.
    fn leased(_answer: &mut Self::Answer, _leased: Result<Vec<Leased>, StoreError>) {}

    /// Replaces the open times in an answer, once the place of the changes is known.
    fn settle(_answer: &mut Self::Answer, _place: &Place) {}

    /// What to do once it is committed, also if nobody waits for the answer any more.
    fn committed(&self, _answer: &Self::Answer) {}
}

/// Something to be read or told in one statement, as often as it takes.
pub(super) trait Read: Send + Sync {
    /// What comes of it.
    type Answer: Send + 'static;

    /// Whether it may take as long as it takes.
    const TAKES_LONG: bool = false;

    /// Whether it executes what a connection has [`prepared`].
    const IS_PREPARED: bool = false;

    /// The tenant it is about, if it has to see what was done there for callers that are gone.
    fn tenant(&self) -> Option<&str>;

    /// Is told over which session it is about to be done, if it [is prepared](Self::IS_PREPARED).
    fn over(&self, _session: Session) {}

    /// Does it.
    fn run(
        &self,
        connection: &mut PgConnection,
        time: &Time,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;
}

/// What the handles of one store share. The connections are closed when the last pointer to it goes.
pub(super) struct Database {
    /// Name of the database. Handles that were connected in the same way have the same name.
    pub(super) name: Arc<str>,
    pub(super) settings: Arc<Settings>,
    pub(super) time: Time,
    pub(super) acknowledged: Acknowledgements,
    pub(super) connections: Connections,
    /// How to connect, for who hears of the events of other processes.
    pub(super) options: PgConnectOptions,
    /// None: there are no tables for vectors.
    pub(super) pgvector: Option<Pgvector>,
    /// None: nothing has a vector.
    pub(super) keepers: Option<Keepers>,
    /// Whether there is an index for the vectors of the embedder.
    pub(super) is_indexed: AtomicBool,
    /// Whether a sweep is going on.
    pub(super) sweeping: AtomicBool,
    pub(super) notifying: Notifying,
    /// Whether the events of other processes are listened to.
    pub(super) listening: AtomicBool,
    /// Changes when there may be new events.
    pub(super) announced: watch::Sender<u64>,
    /// Number of announcements of other processes.
    pub(super) others: Arc<AtomicU64>,
    pub(super) recent: Tenants,
    pub(super) progress: Progress,
    pub(super) loss: Loss,
    /// If `true`, a commit releases the tenant's row before it is durable, and waits for that afterwards.
    pub(super) can_flush: bool,
    /// Jobs that wait for a transaction.
    pub(super) waiting: Waiting,
    pub(super) round_trip: RoundTrip,
    /// Its other side is told when this goes.
    _open: watch::Sender<()>,
    open: watch::Receiver<()>,
    /// Each task that has a connection has one of these; their other side is told when all are gone.
    pub(super) ends: watch::Sender<()>,
    ended: watch::Receiver<()>,
}

impl Database {
    pub(super) async fn connect(url: &str, settings: Settings) -> Result<Self, PostgresError> {
        let options = connection::options(url, &settings)?;
        let connections = Connections::new(options.clone(), &settings);
        let mut first = connections.one().await?;
        let can_flush = connections.in_time(connection::check(&mut first)).await??;
        // Bringing much of it to another version takes long.
        if !connections
            .in_time(schema::is_current(&mut first, &settings.schema))
            .await??
        {
            schema::migrate(&mut first, &settings.schema).await?;
        }
        let pgvector = connections.in_time(pgvector::prepare(&mut first, &settings));
        let pgvector = pgvector.await??;
        let mut is_indexed = false;
        if pgvector.is_some() {
            // Forgetting many takes long.
            vectors::begin(&mut first, &settings).await?;
            if let Some(config) = &settings.embeddings {
                let indexed = pgvector::is_indexed(&mut first, config.dimensions());
                is_indexed = connections.in_time(indexed).await??;
            }
        }
        first.give_back();
        tracing::info!(
            server = options.get_host(),
            port = options.get_port(),
            database = options.get_database(),
            schema = settings.schema,
            "connected to PostgreSQL"
        );
        let keepers = settings.embeddings.clone().map(Keepers::new);
        let ((alive, open), (ends, ended)) = (watch::channel(()), watch::channel(()));
        Ok(Self {
            name: connection::name(&options, &settings.schema).into(),
            settings: Arc::new(settings),
            time: Time::default(),
            acknowledged: Acknowledgements::default(),
            connections,
            options,
            pgvector,
            keepers,
            is_indexed: AtomicBool::new(is_indexed),
            sweeping: AtomicBool::default(),
            notifying: Notifying::default(),
            listening: AtomicBool::default(),
            announced: watch::Sender::new(0),
            others: Arc::default(),
            recent: Tenants::default(),
            progress: Progress::default(),
            loss: Loss::default(),
            can_flush,
            waiting: Waiting::default(),
            round_trip: RoundTrip::default(),
            _open: alive,
            open,
            ends,
            ended,
        })
    }

    /// Maximum number of transactions of a tenant at the same time. Several are worth it if a transaction mostly waits for the
    /// network. Otherwise one larger transaction costs the server less.
    pub(super) fn most_turns(&self) -> usize {
        const MOST: usize = 4;
        let half = self.settings.connections as usize / 2;
        let by_network = self.round_trip.get().as_millis().try_into();
        by_network
            .unwrap_or(MOST)
            .saturating_add(1)
            .min(MOST)
            .min(half.max(1))
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
        self.loss.check()?;
        let tenant = job.tenant().unwrap_or_default().into();
        let (waiting, working) = self.progress.begin(&tenant);
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

    /// Waits until what was done in a tenant for callers that are gone is there to be read, but not for ever.
    pub(super) async fn settled(&self, tenant: &str) -> Result<(), StoreError> {
        let settled = self.progress.settled(tenant);
        match tokio::time::timeout(self.settings.patience, settled).await {
            Ok(()) => Ok(()),
            Err(_) => Err(of_driver(Arc::new(sqlx::Error::PoolTimedOut))),
        }
    }

    /// Reads with one connection. Every commit that was answered before is there.
    pub(super) async fn read<R: Read>(&self, read: R) -> Result<R::Answer, StoreError> {
        if let Some(tenant) = read.tenant() {
            self.settled(tenant).await?;
        }
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

    pub(super) async fn attempt_read<R: Read>(&self, read: &R) -> Result<R::Answer, Fault> {
        let mut connection = self.connections.one().await?;
        let answer = async {
            if R::IS_PREPARED {
                let session = connection.prepare(prepared::statements).await?;
                read.over(session);
            }
            read.run(&mut connection, &self.time).await
        };
        let answer = if R::TAKES_LONG {
            answer.await
        } else {
            let answered = self.connections.in_time(answer).await;
            answered.unwrap_or_else(|silent| Err(silent.into()))
        };
        match &answer {
            Err(Fault::Driver(error)) => self.connections.note(error),
            Ok(_) | Err(Fault::Refused(_)) => connection.give_back(),
        }
        answer
    }

    /// Notes that events up to a mark are not in the database any more, which ends at `found`.
    pub(super) fn lost(&self, tenant: &Named, mark: Mark, found: u64) -> Arc<PostgresError> {
        self.loss.note(PostgresError::LostCommits {
            schema: self.settings.schema.clone(),
            tenant: tenant.name.to_string(),
            seen: mark.head,
            found,
        })
    }

    /// Ends with the last pointer to this.
    pub(super) fn open(&self) -> watch::Receiver<()> {
        self.open.clone()
    }

    /// Ends when the last pointer has gone and the connections are closed.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut ended = self.ended.clone();
        // Nothing is ever sent.
        async move { while ended.changed().await.is_ok() {} }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("schema", &self.settings.schema)
            .finish_non_exhaustive()
    }
}
