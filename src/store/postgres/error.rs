//! What the driver says, as errors of this crate. It may quote statements and values, and never says who connects how.

use crate::error::{BoxError, Retry};
use crate::store::StoreError;
use crate::store::embedding::EmbedError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why a [`PostgresStore`](super::PostgresStore) cannot be connected. Variants name what the caller can do next. None
/// of them has the connection string or the password in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The connection string cannot be read: it begins with `postgres://` and says user, host and database.
    #[error("the connection string is not one of PostgreSQL")]
    InvalidUrl(#[source] BoxError),
    /// The query of the connection string has a parameter that the driver does not support. The error contains no value, and
    /// the name only if it is a parameter of other PostgreSQL clients.
    #[error(
        "the connection string has the unsupported parameter {}; remove it, or percent-encode `?` and `&` in the password",
        named(*number, *name)
    )]
    UnsupportedParameter {
        /// The position of the parameter in the query, counted from 1.
        number: usize,
        /// The name, if it is a known one.
        name: Option<&'static str>,
    },
    /// The name of a schema has to be 1 to 40 of `a-z`, `0-9` and `_`, and to begin with none of `0-9`.
    #[error("{name:?} cannot be the name of the schema: it may have up to 40 of a-z, 0-9 and _")]
    InvalidSchema {
        /// The name.
        name: String,
    },
    /// A newer version of this crate made the tables: use that one. Nothing was changed.
    #[error("schema {schema} has version {found}, and versions up to {known} are known")]
    NewerSchema {
        /// The schema that the tables are in.
        schema: String,
        /// Their version.
        found: i64,
        /// The newest version that this crate knows.
        known: i64,
    },
    /// The server is older than 14, and lacks what the store needs.
    #[error("the server is version {found} of PostgreSQL, and at least 14 is needed")]
    OldServer {
        /// The major version of the server.
        found: i32,
    },
    /// Search by meaning is asked for, and the extension `vector` (pgvector) is not there and cannot be made: have it
    /// installed on the server and made by who may, or connect without an embedder. The cause says what is missing.
    #[error(
        "search by meaning takes the extension `vector` (pgvector), which cannot be used: have it made by \
         `CREATE EXTENSION vector`, or connect without an embedder"
    )]
    NoVectors(#[source] BoxError),
    /// The vectors in the tables are by another model, see [`EmbedError::OtherModel`]. Nothing was changed.
    #[error("the embedder does not fit the vectors in the tables")]
    Embedder(#[from] EmbedError),
    /// User, password or database of the connection string are wrong, or the user lacks the privilege to create the tables.
    #[error(
        "the server refused to connect or to create the tables; check user, password, database and privileges"
    )]
    Refused(#[source] BoxError),
    /// The tables of the store are incomplete, or the user has lost a right on them, for example during a restore. The
    /// operation is retried: complete the restore, or grant the right.
    #[error(
        "a table, function or privilege of the store is missing in the database; complete the restore, or grant the privilege"
    )]
    Incomplete(#[source] BoxError),
    /// The server accepts no writes. Point the connection string to the primary, or turn `default_transaction_read_only` off.
    #[error(
        "the server is read-only; point the connection string to the primary, or turn `default_transaction_read_only` off"
    )]
    ReadOnly {
        /// The pause before a retry.
        retry_after: Duration,
        /// The error of the driver.
        source: BoxError,
    },
    /// The database lost commits that this process has seen. Restart each process that uses the schema: it must not continue
    /// after events and with leases that the database does not know.
    #[error(
        "schema {schema:?} lost commits of tenant {tenant:?}: events up to position {seen} were committed, and the database \
         has other events there or ends at {found}; it was restored from an older backup, or failed over to a server \
         without the last commits; restart each process that uses the schema"
    )]
    LostCommits {
        /// The schema that the tables are in.
        schema: String,
        /// The tenant whose events are lost.
        tenant: String,
        /// The highest position of an event that this process has seen.
        seen: u64,
        /// The highest position of an event in the database.
        found: u64,
    },
    /// The server cannot be reached, or has no connection left.
    #[error("the server is unavailable")]
    Unavailable {
        /// When to try again.
        retry_after: Duration,
        /// What the driver says.
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
    /// Whether connecting again could succeed.
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
    /// Returns the error of a step to connect that failed in the driver.
    fn of(error: sqlx::Error) -> Self {
        Self::of_class(Class::of(&error), Said::boxed(error))
    }

    fn of_class(class: Class, source: BoxError) -> Self {
        match class {
            Class::Permanent | Class::Login | Class::Setup => Self::Refused(source),
            Class::ReadOnly => Self::read_only(source),
            Class::Collided | Class::Lost | Class::Transient => Self::Unavailable {
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

/// Error of a step to connect. The operator `?` converts errors of the driver to it, so [`PostgresError`] has no public
/// conversion from a type of the driver.
#[derive(Debug)]
pub(super) struct ConnectFault(PostgresError);

impl ConnectFault {
    /// Returns the error of a migration that failed in the driver. Its source names the version of the tables that was not reached.
    pub(super) fn of_migration(version: i64, error: sqlx::Error) -> Self {
        let class = Class::of(&error);
        let source = Said(Arc::new(error));
        let failed = MigrationFailed { version, source };
        Self(PostgresError::of_class(class, failed.into()))
    }
}

/// Failure of the step of a migration that leads to a version.
#[derive(Debug, thiserror::Error)]
#[error("cannot bring the tables of the store to version {version}; nothing was changed")]
struct MigrationFailed {
    version: i64,
    source: Said,
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

/// The pause before a retry of an operation that succeeds only after an operator has changed the database.
const LONG_PAUSE: Duration = Duration::from_secs(10);

/// Delay after the server refused the login. An operator has to act, and a server may count failed logins.
const LOGIN_PAUSE: Duration = Duration::from_secs(60);

/// When to try again what the server could not do.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of attempts, without a delay between them, at an operation that had no effect because of another
/// transaction or a stale connection.
pub(super) const ATTEMPTS: u32 = 20;

/// What an error of the driver means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    /// Another transaction was in the way, and nothing was done: the same again may succeed at once.
    Collided,
    /// The connection is gone. What was not committed is not done; of a commit nobody knows.
    Lost,
    /// The server cannot do it now.
    Transient,
    /// The session accepts no writes. Nothing was done.
    ReadOnly,
    /// The database lacks a table, a function or a right of the store, for example during a restore. Nothing was done,
    /// and an operator can fix it.
    Setup,
    /// The server will not do it, however often it is asked.
    Permanent,
    /// The server does not let the user in.
    Login,
}

impl Class {
    pub(super) fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(said) => said
                .code()
                .map_or(Self::Transient, |code| Self::of_code(&code)),
            // It has taken long enough.
            sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => Self::Transient,
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Self::Lost
            }
            // What is kept cannot be read, and will not change by itself.
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self::Permanent,
            sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => Self::Login,
            // The driver may get variants; what is not known may pass.
            _ => Self::Transient,
        }
    }

    /// The meaning of an SQLSTATE.
    fn of_code(code: &str) -> Self {
        match code {
            // Another transaction added the same row: a unique violation.
            "40001" | "40P01" | "23505" => Self::Collided,
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

/// Returns `true` if an immediate retry of the operation can succeed.
pub(super) fn is_worth_another(error: &sqlx::Error) -> bool {
    match Class::of(error) {
        Class::Collided | Class::Lost => true,
        Class::Transient | Class::Permanent | Class::Login | Class::ReadOnly | Class::Setup => {
            false
        }
    }
}

/// Returns `true` if the server reports an error with this code (SQLSTATE).
pub(super) fn has_code(error: &sqlx::Error, code: &str) -> bool {
    let found = error.as_database_error().and_then(|error| error.code());
    found.is_some_and(|found| found == code)
}

/// What the driver says, in its own words. Its debug form would have the rows in it that an error is about.
struct Said(Arc<sqlx::Error>);

impl Said {
    fn boxed(error: impl Into<Arc<sqlx::Error>>) -> BoxError {
        Box::new(Self(error.into()))
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Said({:?})", self.to_string())
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            sqlx::Error::Database(said) => {
                let code = said.code().unwrap_or_default();
                write!(f, "{} (SQLSTATE {code})", said.message())
            }
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for Said {}

/// Why a job of the store fails: what it asks for is refused, or the driver gave up.
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

/// What the driver says, to whoever asked the store.
pub(super) fn of_driver(error: Arc<sqlx::Error>) -> StoreError {
    const SOON: Duration = Duration::from_millis(100);
    let class = Class::of(&error);
    let source = Said::boxed(error);
    let retry_after = match class {
        Class::Permanent => {
            return StoreError::Forbidden {
                reason: format!("{} refuses it: {source}", super::NAME),
            };
        }
        Class::ReadOnly => return unavailable(PAUSE, PostgresError::read_only(source).into()),
        Class::Setup => {
            return unavailable(LONG_PAUSE, PostgresError::Incomplete(source).into());
        }
        Class::Collided => SOON,
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

/// The server is a standby that does not have an event yet.
pub(super) fn standby_is_behind(tenant: &str, position: u64) -> StoreError {
    let reason = format!(
        "the server is a standby that has not replayed event {position} of tenant {tenant:?} yet; point the connection \
         string to the primary, or wait"
    );
    unavailable(PAUSE, reason.into())
}

/// The connection was lost while the server was asked to commit, and it does not say what became of it.
pub(super) fn unknown_outcome() -> StoreError {
    let reason = "the connection was lost in a commit, and whether that was kept is not known";
    unavailable(PAUSE, reason.into())
}

/// The connection was lost in a claim. The claim is in doubt until its leases are listed.
pub(super) fn claim_in_doubt() -> StoreError {
    let reason = "the connection was lost while the server claimed runs; list the leases of the claim, and release them";
    unavailable(PAUSE, reason.into())
}

/// A limit of the tenant was reached while a commit was on its way.
pub(super) fn crowded() -> StoreError {
    let reason = "the tenant reached its limit of breadcrumbs, open runs or request keys during the commit; nothing was committed";
    unavailable(PAUSE, reason.into())
}

/// The task of a job has ended without an answer.
pub(super) fn ended() -> StoreError {
    unavailable(PAUSE, "the task of the store has ended".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_an_error_says_what_to_do_next() {
        for (code, class) in [
            ("40001", Class::Collided),
            ("40P01", Class::Collided),
            ("55P03", Class::Transient),
            ("53300", Class::Transient),
            ("54000", Class::Permanent),
            ("57P01", Class::Lost),
            ("57P05", Class::Lost),
            ("57P03", Class::Transient),
            ("08006", Class::Lost),
            ("22021", Class::Permanent),
            ("23505", Class::Collided),
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
