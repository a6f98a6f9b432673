//! State shared by all handles of one PostgreSQL store: the connections, the clock and the queue of transactions.

use super::builder::Settings;
use super::connections::Connections;
use super::error::{
    ATTEMPTS, ConnectFault, Fault, PostgresError, can_retry_at_once, of_driver, task_ended,
};
use super::history::{Loss, Mark};
use super::notifying::NotificationState;
use super::pgvector::{self, Pgvector};
use super::progress::AbandonedJobs;
use super::read::Read;
use super::recent::RecentEventsByTenant;
use super::round_trip::RoundTrip;
use super::task::JobQueues;
use super::tenant::TenantHandle;
use super::transaction::StoreParts;
use super::{begin, connection, events, facts, lease, queue, schema, vectors};
use crate::store::StoreError;
use crate::store::durable::cursor::AcknowledgedPositions;
use crate::store::durable::tenant::StoreClock;
use crate::store::embedding::VectorMaintainers;
use sqlx::postgres::PgConnectOptions;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::sync::watch;

/// State shared by all handles of one PostgreSQL store. The connections close when the last reference is dropped.
pub(super) struct Database {
    /// Name that identifies the store's PostgreSQL database and schema. Handles that were connected in the same way have the same name.
    pub(super) name: Arc<str>,
    pub(super) settings: Arc<Settings>,
    pub(super) time: StoreClock,
    /// Acknowledged event positions that the store has not saved yet, by tenant and event consumer.
    pub(super) acknowledged: AcknowledgedPositions,
    /// If `true`, a task is running that stores the positions up to which event consumers have acknowledged events.
    pub(super) is_storing: AtomicBool,
    pub(super) connections: Connections,
    /// Options of the PostgreSQL connection that listens for events of other processes.
    pub(super) options: PgConnectOptions,
    /// The PostgreSQL extension for vectors, or `None` if the store's schema has no tables for vectors.
    pub(super) pgvector: Option<Pgvector>,
    /// Background computation of missing vectors for the breadcrumbs of all tenants, or `None` without an embedder.
    pub(super) maintainers: Option<VectorMaintainers>,
    /// If `true`, there is a PostgreSQL index for vectors with the embedder's number of dimensions.
    pub(super) is_indexed: AtomicBool,
    /// If `true`, a background sweep of expired breadcrumbs is running.
    pub(super) is_sweeping: AtomicBool,
    pub(super) notifying: NotificationState,
    /// If `true`, a task listens for events of other processes.
    pub(super) listening: AtomicBool,
    /// Counter that wakes the event subscribers when it changes. It changes when there may be new events.
    pub(super) announced: watch::Sender<u64>,
    /// Number of times that other processes announced new events to this process.
    pub(super) received_announcements: Arc<AtomicU64>,
    pub(super) recent: RecentEventsByTenant,
    pub(super) abandoned_jobs: AbandonedJobs,
    pub(super) loss: Loss,
    /// If `true`, a commit releases its lock on the tenant's row before the commit is durable, and then waits for durability.
    pub(super) can_flush: bool,
    /// Jobs (store operations) that wait for a PostgreSQL transaction.
    pub(super) job_queues: JobQueues,
    pub(super) round_trip: RoundTrip,
    /// Sender whose receivers, returned by [`open`](Self::open()), close when the last reference to the store's shared state is
    /// dropped.
    _open: watch::Sender<()>,
    open: watch::Receiver<()>,
    /// Sender of a channel that closes once this shared state is dropped and all background tasks with PostgreSQL connections
    /// have ended. Each of these tasks has a clone of the sender. [`closed`](Self::closed) ends when all clones are dropped.
    pub(super) ends: watch::Sender<()>,
    ended: watch::Receiver<()>,
}

impl Database {
    pub(super) async fn connect(url: &str, settings: Settings) -> Result<Self, ConnectFault> {
        let options = connection::options(url, &settings)?;
        let connections = Connections::new(options.clone(), &settings);
        let mut first = connections.acquire().await?;
        let can_flush = connections.with_timeout(connection::check(&mut first));
        let can_flush = can_flush.await??;
        // Without a timeout, because a migration of large tables takes long.
        if !connections
            .with_timeout(schema::is_current(&mut first, &settings.schema))
            .await??
        {
            schema::migrate(&mut first, &settings.schema).await?;
        }
        let pgvector = connections.with_timeout(pgvector::prepare(&mut first, &settings));
        let pgvector = pgvector.await??;
        let mut is_indexed = false;
        if pgvector.is_some() {
            // Without a timeout, because deleting many vectors takes long.
            vectors::prepare(&mut first, &settings).await?;
            if let Some(config) = &settings.embeddings {
                let indexed = pgvector::is_indexed(&mut first, config.dimensions());
                is_indexed = connections.with_timeout(indexed).await??;
            }
        }
        first.release();
        tracing::info!(
            server = options.get_host(),
            port = options.get_port(),
            database = options.get_database(),
            schema = settings.schema,
            "connected to PostgreSQL"
        );
        let maintainers = settings.embeddings.clone().map(VectorMaintainers::new);
        let ((alive, open), (ends, ended)) = (watch::channel(()), watch::channel(()));
        Ok(Self {
            name: connection::name(&options, &settings.schema).into(),
            settings: Arc::new(settings),
            time: StoreClock::default(),
            acknowledged: AcknowledgedPositions::default(),
            is_storing: AtomicBool::default(),
            connections,
            options,
            pgvector,
            maintainers,
            is_indexed: AtomicBool::new(is_indexed),
            is_sweeping: AtomicBool::default(),
            notifying: NotificationState::default(),
            listening: AtomicBool::default(),
            announced: watch::Sender::new(0),
            received_announcements: Arc::default(),
            recent: RecentEventsByTenant::default(),
            abandoned_jobs: AbandonedJobs::default(),
            loss: Loss::default(),
            can_flush,
            job_queues: JobQueues::default(),
            round_trip: RoundTrip::default(),
            _open: alive,
            open,
            ends,
            ended,
        })
    }

    /// Returns the parts of the store that a transaction uses: limits, vector tables, clock and round-trip estimate.
    pub(super) fn parts(&self) -> StoreParts<'_> {
        StoreParts {
            limits: &self.settings.limits,
            pgvector: self.pgvector.as_ref(),
            clock: &self.time,
            round_trip: &self.round_trip,
        }
    }

    /// Returns the maximum number of concurrent transactions of a tenant. The number is 1 to 4: one more per millisecond of the network
    /// round trip, and at most half of the number of connections. Several transactions help if they mostly wait for the network.
    /// Otherwise one larger transaction costs the server less.
    pub(super) fn max_workers(&self) -> usize {
        const MOST: usize = 4;
        let half = self.settings.connections as usize / 2;
        let by_network = self.round_trip.get().as_millis().try_into();
        by_network
            .unwrap_or(MOST)
            .saturating_add(1)
            .min(MOST)
            .min(half.max(1))
    }

    /// Completes an idempotent SQL write of a store operation, even if the caller stops waiting.
    pub(super) async fn repeat<R: Read + 'static>(
        self: &Arc<Self>,
        job: R,
    ) -> Result<R::Answer, StoreError> {
        self.loss.check()?;
        let tenant = job.tenant().unwrap_or_default().into();
        let (caller_guard, job_guard) = self.abandoned_jobs.begin(&tenant);
        let database = Arc::clone(self);
        let result = tokio::spawn(async move {
            let result = database.retry(&job).await;
            drop(job_guard);
            result
        });
        let result = result.await;
        drop(caller_guard);
        result.map_err(|_| task_ended())?
    }

    /// Waits until the tenant's jobs (store operations) whose callers no longer wait have ended, so that a read sees a stable state.
    ///
    /// # Errors
    /// Fails if the jobs have not ended after the `wait_timeout` of the settings.
    pub(super) async fn wait_for_abandoned_jobs(&self, tenant: &str) -> Result<(), StoreError> {
        let settled = self.abandoned_jobs.wait_for_abandoned_jobs(tenant);
        match tokio::time::timeout(self.settings.wait_timeout, settled).await {
            Ok(()) => Ok(()),
            Err(_) => Err(of_driver(Arc::new(sqlx::Error::PoolTimedOut))),
        }
    }

    /// Runs a read of a store operation over one PostgreSQL connection. The read sees every commit that returned before.
    pub(super) async fn read<R: Read>(&self, read: R) -> Result<R::Answer, StoreError> {
        if let Some(tenant) = read.tenant() {
            self.wait_for_abandoned_jobs(tenant).await?;
        }
        self.retry(&read).await
    }

    async fn retry<R: Read>(&self, read: &R) -> Result<R::Answer, StoreError> {
        let mut attempt = 1;
        loop {
            match self.attempt_read(read).await {
                Err(Fault::Driver(error)) if attempt < ATTEMPTS && can_retry_at_once(&error) => {
                    attempt += 1;
                }
                read => return Ok(read?),
            }
        }
    }

    pub(super) async fn attempt_read<R: Read>(&self, read: &R) -> Result<R::Answer, Fault> {
        let mut connection = self.connections.acquire().await?;
        let answer = async {
            if R::IS_PREPARED {
                let session = connection.prepare(statements).await?;
                read.set_session(session);
            }
            read.run(&mut connection, &self.time).await
        };
        let answer = if R::TAKES_LONG {
            answer.await
        } else {
            let answered = self.connections.with_timeout(answer).await;
            answered.unwrap_or_else(|timed_out| Err(timed_out.into()))
        };
        match &answer {
            Err(Fault::Driver(error)) => self.connections.record_error(error),
            Ok(_) | Err(Fault::Refused(_)) => connection.release(),
        }
        answer
    }

    /// Records that the database lost commits of a tenant, so that all later writes fail. `mark` has the newest event that this store has
    /// seen. `stored_breadcrumb` is the position of the tenant's last event in the database.
    pub(super) fn record_lost_commits(
        &self,
        tenant: &TenantHandle,
        mark: Mark,
        found: u64,
    ) -> Arc<PostgresError> {
        self.loss.record(PostgresError::LostCommits {
            schema: self.settings.schema.clone(),
            tenant: tenant.name.to_string(),
            seen: mark.head,
            found,
        })
    }

    /// Returns a receiver that closes when the last reference to the PostgreSQL store's shared state is dropped.
    pub(super) fn open(&self) -> watch::Receiver<()> {
        self.open.clone()
    }

    /// Returns a future that ends when the store's last handle is dropped and all its PostgreSQL connections are closed.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut ended = self.ended.clone();
        // No value is ever sent. `changed` fails when the last sender is dropped.
        async move { while ended.changed().await.is_ok() {} }
    }
}

/// Returns the `PREPARE` statements that each PostgreSQL connection executes once, before the first transaction or read that uses
/// a prepared statement. The tables must exist.
pub(super) fn statements() -> String {
    let (begin, facts) = (begin::statements(), facts::statements());
    let (lease, queue) = (lease::statement(), queue::statement());
    format!("{begin}; {facts}; {lease}; {queue}; {}", events::NEXT)
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("schema", &self.settings.schema)
            .finish_non_exhaustive()
    }
}
