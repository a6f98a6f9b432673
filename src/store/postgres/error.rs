//! Conversion of PostgreSQL driver errors to errors of this crate. The errors can contain statements and values, but never connection
//! settings.

use crate::error::{BoxError, Retry};
use crate::store::StoreError;
use crate::store::embedding::EmbedError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Error of [`PostgresBuilder::connect`](super::PostgresBuilder::connect). Each variant allows a different reaction of the caller.
///
/// An open store reports [`Incomplete`](Self::Incomplete), [`ReadOnly`](Self::ReadOnly), [`Refused`](Self::Refused) and
/// [`LostCommits`](Self::LostCommits) as the source of a [`StoreError`]. No variant contains the connection string or the password.
///
/// [`retry`](Self::retry) is a delay for [`Unavailable`](Self::Unavailable),
/// [`ReadOnly`](Self::ReadOnly), [`Incomplete`](Self::Incomplete) (10 s) and some
/// [`Embedder`](Self::Embedder) errors. For all others, an operator must act first.
///
/// ```
/// use universal_executor::PostgresStore;
/// use universal_executor::error::Retry;
/// use universal_executor::store::PostgresError;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let builder = PostgresStore::builder("postgres://localhost/agents").schema("Order Desk");
/// let error = builder.connect().await.unwrap_err();
/// assert!(matches!(error, PostgresError::InvalidSchema { .. }));
/// assert_eq!(error.retry(), Retry::Never);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The PostgreSQL connection string is invalid. Its form is `postgres://user:password@host:port/database`. The source names the invalid
    /// part.
    #[error(
        "invalid PostgreSQL connection string; check its scheme, user, host, port, database and options"
    )]
    InvalidUrl(#[source] BoxError),
    /// The connection string has a query parameter that the PostgreSQL driver `sqlx` does not support. The error contains no
    /// value, and contains the name only if it is a parameter of other PostgreSQL clients.
    #[error(
        "the connection string has the unsupported parameter {}; remove it, or percent-encode `?` and `&` in the password",
        named(*number, *name)
    )]
    UnsupportedParameter {
        /// Position of the unsupported parameter in the connection string's query, counted from 1.
        number: usize,
        /// Name of the unsupported parameter if it is a known parameter of other PostgreSQL clients, otherwise `None`.
        name: Option<&'static str>,
    },
    /// The name of the store's PostgreSQL schema is invalid: it must have 1 to 40 of the characters `a-z`, `0-9` and `_`, and must not
    /// start with a digit.
    #[error(
        "invalid PostgreSQL schema name {name:?}; use 1 to 40 of the characters a-z, 0-9 and _, and no digit at the start"
    )]
    InvalidSchema {
        /// The rejected PostgreSQL schema name.
        name: String,
    },
    /// A newer version of this crate migrated the store's tables: update this program. Nothing was changed.
    #[error(
        "the store's tables in PostgreSQL schema {schema} have version {found}, and this program supports versions up to {known}; \
         update this program"
    )]
    NewerSchema {
        /// PostgreSQL schema that contains the store's tables.
        schema: String,
        /// Version of the store's tables in the database.
        found: i64,
        /// Newest version of the store's tables that this crate supports.
        known: i64,
    },
    /// The PostgreSQL version of the server is older than 14.
    #[error(
        "the server runs PostgreSQL {found}, and the store needs PostgreSQL 14 or later; upgrade the server"
    )]
    OldServer {
        /// Major version of the PostgreSQL server.
        found: i32,
    },
    /// Vector search is configured, but the extension `vector` (pgvector) is missing and cannot be created. Have an administrator create
    /// it, or connect without an embedder. The source names the cause.
    #[error(
        "vector search needs the extension `vector` (pgvector), which is not available in the database; run \
         `CREATE EXTENSION vector`, or connect without an embedder"
    )]
    NoVectors(#[source] BoxError),
    /// The stored vectors of breadcrumbs come from another model than the store's embedder, see [`EmbedError::OtherModel`]. Nothing was
    /// changed.
    #[error(
        "cannot use the embedder with the vectors in the PostgreSQL tables, which come from another model; see the cause"
    )]
    Embedder(#[from] EmbedError),
    /// The PostgreSQL server rejected the user, the password or the database, or the user lacks the privilege to create the store's tables.
    ///
    /// If the server rejects the login of an open store, the operation fails with
    /// [`StoreError::Unavailable`] and a delay of 60 s.
    #[error(
        "the PostgreSQL server refused the connection or the creation of the store's tables; check user, password, database and \
         privileges"
    )]
    Refused(#[source] BoxError),
    /// Tables or functions of the store are missing in PostgreSQL, or the user has lost a privilege, for example during a restore. Complete
    /// the restore, or grant the privilege. The operation then fails with [`StoreError::Unavailable`] and can be retried.
    #[error(
        "a table, function or privilege of the store is missing in the PostgreSQL database; complete the restore of the database, or \
         grant the privilege"
    )]
    Incomplete(#[source] BoxError),
    /// The PostgreSQL server accepts no writes. Let the connection string name the primary, or turn `default_transaction_read_only` off.
    #[error(
        "the PostgreSQL server is read-only; point the connection string to the primary, or turn `default_transaction_read_only` off"
    )]
    ReadOnly {
        /// Delay after which the caller should retry the connection or the operation.
        retry_after: Duration,
        /// Error of the PostgreSQL driver.
        source: BoxError,
    },
    /// The database lost commits that this process has read or made. Restart each process that uses the schema: its remembered
    /// events and leases are not in the database.
    #[error(
        "the PostgreSQL database lost commits of tenant {tenant:?} in schema {schema:?}: this process has seen events up to position \
         {seen}, but the database ends at position {found} or has other events; the database was probably restored from an older backup, \
         or failed over to a server without the last commits; restart each process that uses the schema"
    )]
    LostCommits {
        /// PostgreSQL schema that contains the store's tables.
        schema: String,
        /// Tenant whose events are lost.
        tenant: String,
        /// Highest position of the tenant's events that this process has read or committed.
        seen: u64,
        /// Highest position of the tenant's events in the database.
        found: u64,
    },
    /// The PostgreSQL server cannot be reached, or has no free connection.
    ///
    /// Retry after `retry_after`.
    #[error(
        "the PostgreSQL server is unavailable; check the host and the port, and that the server runs and has a free connection"
    )]
    Unavailable {
        /// Delay after which the caller should retry the connection or the operation.
        retry_after: Duration,
        /// Error of the PostgreSQL driver.
        source: BoxError,
    },
}

fn named(number: usize, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{name:?} (number {number} of the query)"),
        None => format!("number {number} of the query"),
    }
}

impl PostgresError {
    /// Returns whether a retry of the failed connection or operation can succeed, and after which delay.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable { retry_after, .. } | Self::ReadOnly { retry_after, .. } => {
                Retry::after(*retry_after)
            }
            Self::Incomplete(_) => Retry::After(LONG_PAUSE),
            Self::Embedder(error) => error.retry(),
            Self::InvalidUrl(_)
            | Self::InvalidSchema { .. }
            | Self::LostCommits { .. }
            | Self::NewerSchema { .. }
            | Self::NoVectors(_)
            | Self::OldServer { .. }
            | Self::UnsupportedParameter { .. }
            | Self::Refused(_) => Retry::Never,
        }
    }
}

impl PostgresError {
    /// Converts a PostgreSQL driver error of a connection attempt to a [`PostgresError`].
    fn of(error: sqlx::Error) -> Self {
        Self::of_class(Class::of(&error), DriverMessage::boxed(error))
    }

    fn of_class(class: Class, source: BoxError) -> Self {
        match class {
            Class::Permanent | Class::Login | Class::Setup => Self::Refused(source),
            Class::ReadOnly => Self::read_only(source),
            Class::Conflict | Class::Lost | Class::Transient => Self::Unavailable {
                retry_after: PAUSE,
                source,
            },
        }
    }

    fn read_only(source: BoxError) -> Self {
        Self::ReadOnly {
            retry_after: PAUSE,
            source,
        }
    }
}

/// Wrapper of a [`PostgresError`] to which the operator `?` converts driver errors while a store connects. So [`PostgresError`]
/// needs no public conversion from a type of the driver.
#[derive(Debug)]
pub(super) struct ConnectFault(PostgresError);

impl ConnectFault {
    /// Returns the error of a migration of the store's tables that failed in the PostgreSQL driver. Its source names the version that the
    /// tables did not reach.
    pub(super) fn of_migration(version: i64, error: sqlx::Error) -> Self {
        let class = Class::of(&error);
        let source = DriverMessage(Arc::new(error));
        let failed = MigrationFailed { version, source };
        Self(PostgresError::of_class(class, failed.into()))
    }
}

/// Failure of the migration of the store's PostgreSQL tables to one version.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot migrate the tables of the PostgreSQL store to version {version}; the migration changed nothing; see the cause"
)]
struct MigrationFailed {
    version: i64,
    source: DriverMessage,
}

impl From<PostgresError> for ConnectFault {
    fn from(error: PostgresError) -> Self {
        Self(error)
    }
}

impl From<sqlx::Error> for ConnectFault {
    fn from(error: sqlx::Error) -> Self {
        Self(PostgresError::of(error))
    }
}

impl From<ConnectFault> for PostgresError {
    fn from(fault: ConnectFault) -> Self {
        fault.0
    }
}

/// Delay before a retry of an operation that can succeed only after an operator has changed the database.
const LONG_PAUSE: Duration = Duration::from_secs(10);

/// Delay before a retry after the PostgreSQL server rejected the login. An operator has to act, and a server may count failed logins.
const LOGIN_PAUSE: Duration = Duration::from_secs(60);

/// Delay before a retry of an operation that the PostgreSQL server could not execute.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of attempts at an operation that had no effect because of another transaction or a stale connection. There is no delay
/// between them.
pub(super) const ATTEMPTS: u32 = 20;

/// Class of a PostgreSQL driver error, by which the store decides whether and when to retry the operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    /// The server changed nothing because of a concurrent transaction, for example after a deadlock. An immediate retry can
    /// succeed.
    Conflict,
    /// The connection to the PostgreSQL server is lost. Uncommitted changes are rolled back, and the outcome of a commit is unknown.
    Lost,
    /// The PostgreSQL server cannot execute the operation now, so a retry needs a delay.
    Transient,
    /// The PostgreSQL session accepts no writes. The server changed nothing.
    ReadOnly,
    /// The PostgreSQL database lacks a table, a function or a privilege that the store needs, for example during a restore. The server
    /// changed nothing, and an operator can fix the cause.
    Setup,
    /// The PostgreSQL server rejects the operation permanently, so a retry cannot succeed.
    Permanent,
    /// The PostgreSQL server rejects the login, or the connection settings are invalid.
    Login,
}

impl Class {
    pub(super) fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(database_error) => database_error
                .code()
                .map_or(Self::Transient, |code| Self::of_code(&code)),
            // The store's own timeout has passed, so an immediate retry would wait as long again.
            sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => Self::Transient,
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Self::Lost
            }
            // Stored data is unreadable, and does not change by itself.
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self::Permanent,
            sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => Self::Login,
            // The driver's error type is non-exhaustive. Unknown variants count as temporary.
            _ => Self::Transient,
        }
    }

    /// Returns the class of a PostgreSQL error code (SQLSTATE).
    fn of_code(code: &str) -> Self {
        match code {
            // Another transaction added the same row: a unique violation.
            "40001" | "40P01" | "23505" => Self::Conflict,
            // A server that stops, or a session that idled in a transaction for too long.
            "57P01" | "57P02" | "57P05" | "25P03" => Self::Lost,
            "3D000" => Self::Login,
            "25006" => Self::ReadOnly,
            // Insufficient privilege; undefined table, function, object (a type, for example) and column; undefined schema.
            "42501" | "42P01" | "42883" | "42704" | "42703" | "3F000" => Self::Setup,
            _ => match code.get(..2) {
                Some("08") => Self::Lost,
                Some("28") => Self::Login,
                // Data, constraints, limits of the server, and syntax.
                Some("22" | "23" | "42" | "54") => Self::Permanent,
                Some(_) | None => Self::Transient,
            },
        }
    }
}

/// Returns `true` if an immediate retry of an operation can succeed after this PostgreSQL driver error.
pub(super) fn can_retry_at_once(error: &sqlx::Error) -> bool {
    match Class::of(error) {
        Class::Conflict | Class::Lost => true,
        Class::Transient | Class::Permanent | Class::Login | Class::ReadOnly | Class::Setup => {
            false
        }
    }
}

/// Returns `true` if a driver error is an error of the PostgreSQL server with this code (SQLSTATE).
pub(super) fn has_code(error: &sqlx::Error, code: &str) -> bool {
    let error_code = error.as_database_error().and_then(|error| error.code());
    error_code.is_some_and(|error_code| error_code == code)
}

/// Wrapper that displays only the message of a PostgreSQL driver error. The driver's own debug form contains rows.
struct DriverMessage(Arc<sqlx::Error>);

impl DriverMessage {
    fn boxed(error: impl Into<Arc<sqlx::Error>>) -> BoxError {
        Box::new(Self(error.into()))
    }
}

impl fmt::Debug for DriverMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverMessage({:?})", self.to_string())
    }
}

impl fmt::Display for DriverMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            sqlx::Error::Database(database_error) => {
                let code = database_error.code().unwrap_or_default();
                write!(f, "{} (SQLSTATE {code})", database_error.message())
            }
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for DriverMessage {}

/// Failure of a read or of a job (store operation in a transaction): the store rejects the operation, or the PostgreSQL driver fails.
#[derive(Debug)]
pub(super) enum Fault {
    Refused(StoreError),
    Driver(sqlx::Error),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            Fault::Driver(error) => of_driver(error.into()),
        }
    }
}

/// Converts a PostgreSQL driver error to the [`StoreError`] that the caller of a store operation receives.
pub(super) fn of_driver(error: Arc<sqlx::Error>) -> StoreError {
    const SOON: Duration = Duration::from_millis(100);
    let class = Class::of(&error);
    let source = DriverMessage::boxed(error);
    let retry_after = match class {
        Class::Permanent => {
            return StoreError::Forbidden {
                reason: format!(
                    "the PostgreSQL server rejected a statement of {}: {source}",
                    super::NAME
                ),
            };
        }
        Class::ReadOnly => return unavailable(PAUSE, PostgresError::read_only(source).into()),
        Class::Setup => {
            return unavailable(LONG_PAUSE, PostgresError::Incomplete(source).into());
        }
        Class::Conflict => SOON,
        Class::Lost | Class::Transient => PAUSE,
        Class::Login => return unavailable(LOGIN_PAUSE, PostgresError::Refused(source).into()),
    };
    unavailable(retry_after, source)
}

fn unavailable(retry_after: Duration, source: BoxError) -> StoreError {
    StoreError::Unavailable {
        store: super::NAME,
        retry_after,
        source,
    }
}

/// Returns the error of a read from a standby server that still lacks an event which this process has read or committed before.
pub(super) fn standby_is_behind(tenant: &str, position: u64) -> StoreError {
    let reason = format!(
        "the server is a standby that has not replayed event {position} of tenant {tenant:?} yet; point the connection \
         string to the primary, or wait"
    );
    unavailable(PAUSE, reason.into())
}

/// Returns the error of a commit whose connection was lost and whose outcome the server does not report.
pub(super) fn unknown_outcome() -> StoreError {
    let reason = "the connection was lost during a commit, and its outcome is unknown; read the data before you repeat the operation";
    unavailable(PAUSE, reason.into())
}

/// Returns the error for a PostgreSQL connection that was lost during a claim of due runs. The claim is in doubt until its leases
/// are listed.
pub(super) fn claim_in_doubt() -> StoreError {
    let reason = "the connection was lost while the server claimed runs; list the leases of the claim, and release them";
    unavailable(PAUSE, reason.into())
}

/// Returns the error of a commit that would exceed a limit of the tenant.
pub(super) fn limit_reached() -> StoreError {
    let reason = "the tenant reached its limit of breadcrumbs, open runs or request keys during the commit; nothing was committed";
    unavailable(PAUSE, reason.into())
}

/// Returns the error of a store operation whose background task ended without a result.
pub(super) fn task_ended() -> StoreError {
    unavailable(
        PAUSE,
        "the store's background task ended before it returned the result of the operation, which may have been committed".into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_code_has_its_class() {
        for (code, class) in [
            ("40001", Class::Conflict),
            ("40P01", Class::Conflict),
            ("55P03", Class::Transient),
            ("53300", Class::Transient),
            ("54000", Class::Permanent),
            ("57P01", Class::Lost),
            ("57P05", Class::Lost),
            ("57P03", Class::Transient),
            ("08006", Class::Lost),
            ("22021", Class::Permanent),
            ("23505", Class::Conflict),
            ("25006", Class::ReadOnly),
            ("42601", Class::Permanent),
            ("42501", Class::Setup),
            ("42P01", Class::Setup),
            ("42883", Class::Setup),
            ("42704", Class::Setup),
            ("42703", Class::Setup),
            ("3F000", Class::Setup),
            ("28P01", Class::Login),
            ("57014", Class::Transient),
            ("XX000", Class::Transient),
        ] {
            assert_eq!(Class::of_code(code), class, "{code}");
        }
    }
}
