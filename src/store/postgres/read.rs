//! Reads, and idempotent writes in one statement.

use super::error::Fault;
use super::session::Session;
use crate::store::durable::tenant::Time;
use sqlx::PgConnection;

/// A read, or an idempotent write in one statement. It is retried after a transient error.
pub(super) trait Read: Send + Sync {
    /// Result of the read.
    type Answer: Send + 'static;

    /// If `true`, the read has no timeout.
    const TAKES_LONG: bool = false;

    /// If `true`, the read executes [`prepared`](super::prepared) statements of the connection.
    const IS_PREPARED: bool = false;

    /// Returns the tenant whose abandoned jobs must end before the read, or `None` to read at once. An abandoned job has no caller any
    /// more.
    fn tenant(&self) -> Option<&str>;

    /// Receives the session of the next attempt if [`IS_PREPARED`](Self::IS_PREPARED) is `true`.
    fn over(&self, _session: Session) {}

    /// Runs the read once.
    fn run(
        &self,
        connection: &mut PgConnection,
        time: &Time,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;
}
