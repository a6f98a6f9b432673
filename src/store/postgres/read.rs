//! Trait of reads from PostgreSQL, and of idempotent writes in one SQL statement.

use super::error::Fault;
use super::session::Session;
use crate::store::durable::tenant::StoreClock;
use sqlx::PgConnection;

/// A read from PostgreSQL, or an idempotent write in one SQL statement. It is retried after a transient error.
pub(super) trait Read: Send + Sync {
    /// Result of the read (or idempotent write) for its caller.
    type Answer: Send + 'static;

    /// If `true`, the read from PostgreSQL has no timeout.
    const TAKES_LONG: bool = false;

    /// If `true`, the read executes [`prepared`](super::prepared) statements of the PostgreSQL connection.
    const IS_PREPARED: bool = false;

    /// Returns the tenant whose jobs (store operations) without a waiting caller must end before the read, or `None` to read at once.
    fn tenant(&self) -> Option<&str>;

    /// Notifies the read of the PostgreSQL session in which the read will be executed next. Does nothing by default. Called only
    /// if [`IS_PREPARED`](Self::IS_PREPARED) is `true`.
    fn set_session(&self, _session: Session) {}

    /// Runs the read (or idempotent write) once over a PostgreSQL connection.
    fn run(
        &self,
        connection: &mut PgConnection,
        time: &StoreClock,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;
}
