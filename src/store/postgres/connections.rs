//! Pool of PostgreSQL connections, created on demand up to a maximum, and reused.
//!
//! The driver's pool tests each connection that is released, and the connection is unavailable during that round trip. This pool
//! skips the test: a use detects a broken connection, and the operation is retried.

use super::builder::Settings;
use super::connection::set_up;
use super::error::Class;
use super::session::{self, Session};
use super::statement::Statement;
use crate::error::Chain;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Maximum time for which the pool retains an idle PostgreSQL connection.
const IDLE: Duration = Duration::from_secs(300);

/// Pool of one store's connections to the PostgreSQL server, created on demand and reused.
#[derive(Debug)]
pub(super) struct Connections {
    options: PgConnectOptions,
    /// SQL statements that each new connection of the pool executes first.
    set_up: String,
    wait_timeout: Duration,
    /// Semaphore that limits how many of the pool's PostgreSQL connections are in use at the same time.
    free: Semaphore,
    /// Idle PostgreSQL connections of the pool. The last one was used last.
    idle: Mutex<Vec<IdleConnection>>,
}

/// An idle PostgreSQL connection of the pool, and the start of its idle time.
#[derive(Debug)]
struct IdleConnection {
    open: OpenConnection,
    idle_since: Instant,
}

/// An open PostgreSQL connection, and the statements that its session has prepared.
#[derive(Debug)]
struct OpenConnection {
    connection: PgConnection,
    /// Identity of the connection's session on the PostgreSQL server, or `None` until the connection has prepared the statements
    /// that begin transactions. Preparing them needs the tables.
    session: Option<Session>,
    /// SQL of the write statements that the connection's PostgreSQL session has prepared. The name of each contains its index.
    write_statements: Vec<Box<str>>,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions, settings: &Settings) -> Self {
        Self {
            options,
            set_up: set_up(settings),
            wait_timeout: settings.wait_timeout,
            free: Semaphore::new(settings.connections as usize),
            idle: Mutex::default(),
        }
    }

    /// Returns a PostgreSQL connection of the pool for exclusive use. A connection that was idle may be broken.
    pub(super) async fn acquire(&self) -> sqlx::Result<Connection<'_>> {
        let deadline = Instant::now() + self.wait_timeout;
        let permit = match timeout_at(deadline, self.free.acquire()).await {
            Ok(permit) => permit.map_err(|_| sqlx::Error::PoolClosed)?,
            Err(_) => return Err(sqlx::Error::PoolTimedOut),
        };
        let idle = self.lock().pop();
        let open = match idle.filter(|idle| idle.idle_since.elapsed() < IDLE) {
            Some(idle) => idle.open,
            None => OpenConnection {
                connection: self.connect(deadline).await?,
                session: None,
                write_statements: Vec::new(),
            },
        };
        Ok(Connection {
            open,
            pool: self,
            _permit: permit,
        })
    }

    /// Waits for a response of the PostgreSQL server, and fails with an I/O timeout if none arrives within twice the
    /// `wait_timeout` of the pool. The server's own lock timeout is shorter. A timeout also closes the idle connections, because
    /// they may be lost too and the network need not report that.
    pub(super) async fn with_timeout<T>(&self, answer: impl Future<Output = T>) -> sqlx::Result<T> {
        let limit = self.wait_timeout.saturating_mul(2);
        if let Ok(answer) = timeout(limit, answer).await {
            return Ok(answer);
        }
        self.close_idle();
        let message = format!("the PostgreSQL server did not answer within {limit:?}");
        Err(sqlx::Error::Io(io::Error::new(
            io::ErrorKind::TimedOut,
            message,
        )))
    }

    /// Closes all idle connections of the PostgreSQL pool after an error that reports a read-only session, because they can be
    /// read-only as well. A session stays read-only after the server accepts writes again.
    pub(super) fn record_error(&self, error: &sqlx::Error) {
        if Class::of(error) == Class::ReadOnly {
            self.close_idle();
        }
    }

    fn close_idle(&self) {
        let idle = std::mem::take(&mut *self.lock());
        drop(idle);
    }

    /// Connects to the PostgreSQL server. Retries until the deadline if the server is starting, or refuses the connection.
    async fn connect(&self, deadline: Instant) -> sqlx::Result<PgConnection> {
        let mut pause = Duration::from_millis(10);
        // The error of the previous attempt, which describes the server better than a timeout of the last attempt does.
        let mut earlier = None;
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
                Err(_) => return Err(self.timed_out(earlier)),
            };
            if !is_starting(&error) {
                return Err(match error {
                    sqlx::Error::Io(error) => self.not_connected(&error, error.kind()),
                    error => error,
                });
            }
            if Instant::now() + pause > deadline {
                tracing::debug!(error = %Chain(&error), "the PostgreSQL server is still starting at the connection deadline; the operation fails");
                return Err(self.timed_out(Some(error)));
            }
            earlier = Some(error);
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Returns the error of a PostgreSQL connection attempt that reached its deadline, with the cause of the last failed attempt.
    ///
    /// The caller waited for the server until the deadline, therefore I/O errors become timeouts: a timeout prevents an
    /// immediate second wait.
    fn timed_out(&self, last: Option<sqlx::Error>) -> sqlx::Error {
        match last {
            None => self.not_connected("no answer", io::ErrorKind::TimedOut),
            Some(sqlx::Error::Io(error)) => self.not_connected(&error, io::ErrorKind::TimedOut),
            Some(error) => error,
        }
    }

    /// Returns the error of a failed connection to the PostgreSQL server, with host, port, cause and remedy.
    fn not_connected(&self, cause: impl fmt::Display, kind: io::ErrorKind) -> sqlx::Error {
        let (host, port) = (self.options.get_host(), self.options.get_port());
        sqlx::Error::Io(io::Error::new(
            kind,
            format!(
                "cannot connect to {host}:{port}: {cause}; check host and port, and that the server is running"
            ),
        ))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        sqlx::Error::Database(database_error) => {
            database_error.code().is_some_and(|code| code == "57P03")
        }
        // The driver's error type is non-exhaustive. Unknown variants are not retried.
        _ => false,
    }
}

/// A PostgreSQL connection of the pool that is in use. Dropping it closes the connection, because a transaction may be open.
pub(super) struct Connection<'c> {
    open: OpenConnection,
    pool: &'c Connections,
    _permit: SemaphorePermit<'c>,
}

impl Connection<'_> {
    /// Puts a PostgreSQL connection without an open transaction back into the pool.
    pub(super) fn release(self) {
        let mut idle = self.pool.lock();
        idle.retain(|idle| idle.idle_since.elapsed() < IDLE);
        idle.push(IdleConnection {
            open: self.open,
            idle_since: Instant::now(),
        });
    }

    /// Returns the SQL that executes a write statement as a prepared statement. The SQL first prepares the statement, unless this
    /// connection has prepared it before. Returns `None` if the values do not fit into a message. After a failed message the caller
    /// must close the connection.
    pub(super) fn message(&mut self, statement: &Statement) -> Option<Vec<String>> {
        /// Maximum number of write statements that one PostgreSQL connection prepares. Commits have fewer combinations of optional parts.
        const MOST: usize = 128;
        let all = &mut self.open.write_statements;
        let known = all.iter().position(|sql| **sql == *statement.sql());
        let name = format!("ux_write_{}", known.unwrap_or(all.len()));
        let execute = statement.execute_as(&name)?;
        if known.is_some() {
            return Some(vec![execute]);
        }
        if all.len() >= MOST {
            return None;
        }
        all.push(statement.sql().into());
        Some(vec![statement.prepare(&name), execute])
    }

    /// Prepares the SQL statements of transactions and reads, unless this PostgreSQL connection has prepared them before. The statements
    /// must be the same in each call. Returns the connection's session.
    pub(super) async fn prepare(
        &mut self,
        statements: impl FnOnce() -> String,
    ) -> sqlx::Result<Session> {
        if let Some(session) = self.open.session {
            return Ok(session);
        }
        let prepare = format!("{}; {}", statements(), session::OWN);
        let prepare = sqlx::raw_sql(AssertSqlSafe(prepare));
        let session = prepare.fetch_one(&mut self.open.connection).await?;
        let session = Session::read(&session)?;
        self.open.session = Some(session);
        Ok(session)
    }
}

impl Deref for Connection<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.open.connection
    }
}

impl DerefMut for Connection<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.open.connection
    }
}
