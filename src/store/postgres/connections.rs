//! The connections that are shared: as many as may be at the most, made when they are needed and kept for the next.
//!
//! The pool of the driver asks the server for a sign of life whenever a connection comes back, during which nobody can
//! use it: one more round trip for everything that is done. Here it is found out in use that a connection broke, and what
//! was done over it is done again.

use super::builder::Settings;
use super::connection::set_up;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long a connection is kept that nobody needs.
const IDLE: Duration = Duration::from_secs(300);

/// The connections of one store.
#[derive(Debug)]
pub(super) struct Connections {
    options: PgConnectOptions,
    /// What each is told first.
    set_up: String,
    patience: Duration,
    /// How many more may be in use.
    free: Semaphore,
    /// Those that nobody uses, and since when; the last was used last.
    kept: Mutex<Vec<(PgConnection, Instant)>>,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions, settings: &Settings) -> Self {
        Self {
            options,
            set_up: set_up(settings),
            patience: settings.patience,
            free: Semaphore::new(settings.connections as usize),
            kept: Mutex::default(),
        }
    }

    /// One of them, which nobody else uses in the meantime. It may have been lost while it was kept.
    pub(super) async fn one(&self) -> sqlx::Result<Connection<'_>> {
        let deadline = Instant::now() + self.patience;
        let permit = match timeout_at(deadline, self.free.acquire()).await {
            Ok(permit) => permit.map_err(|_| sqlx::Error::PoolClosed)?,
            Err(_) => return Err(sqlx::Error::PoolTimedOut),
        };
        let kept = self.lock().pop();
        let live = match kept.filter(|(_, since)| since.elapsed() < IDLE) {
            Some((connection, _)) => connection,
            None => self.connect(deadline).await?,
        };
        Ok(Connection {
            live,
            home: self,
            _permit: permit,
        })
    }

    /// An answer of the server, or that it takes too long: then nobody may be there any more, which the network need not
    /// tell. It is later than the server itself gives up waiting for a lock, and so as not to find out one by one, none
    /// of the connections that are kept is used again.
    pub(super) async fn in_time<T>(&self, answer: impl Future<Output = T>) -> sqlx::Result<T> {
        let limit = self.patience.saturating_mul(2);
        if let Ok(answer) = timeout(limit, answer).await {
            return Ok(answer);
        }
        let kept = std::mem::take(&mut *self.lock());
        drop(kept);
        let silent = format!("the server did not answer within {limit:?}");
        Err(sqlx::Error::Io(io::Error::new(
            io::ErrorKind::TimedOut,
            silent,
        )))
    }

    /// Connects, waiting for a server that is just about to start.
    async fn connect(&self, deadline: Instant) -> sqlx::Result<PgConnection> {
        let mut pause = Duration::from_millis(10);
        loop {
            let connect = async {
                let mut connection = self.options.connect().await?;
                let set_up = sqlx::raw_sql(AssertSqlSafe(self.set_up.as_str()));
                set_up.execute(&mut connection).await?;
                Ok(connection)
            };
            let error = match timeout_at(deadline, connect).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => error,
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            };
            if !is_starting(&error) {
                return Err(error);
            }
            // It was waited for, and is not to be waited for again at once.
            if Instant::now() + pause > deadline {
                tracing::debug!(%error, "there is no server");
                return Err(sqlx::Error::PoolTimedOut);
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(PgConnection, Instant)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        sqlx::Error::Database(said) => said.code().is_some_and(|code| code == "57P03"),
        // The driver may get variants; what is not known is not waited for.
        _ => false,
    }
}

/// A connection in use. It is closed if it is not given back: who used it may have left a transaction open.
pub(super) struct Connection<'c> {
    live: PgConnection,
    home: &'c Connections,
    _permit: SemaphorePermit<'c>,
}

impl Connection<'_> {
    /// Keeps it for the next, as nothing is going on over it.
    pub(super) fn give_back(self) {
        let mut kept = self.home.lock();
        kept.retain(|(_, since)| since.elapsed() < IDLE);
        kept.push((self.live, Instant::now()));
    }
}

impl Deref for Connection<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.live
    }
}

impl DerefMut for Connection<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.live
    }
}
