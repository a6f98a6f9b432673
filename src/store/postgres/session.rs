//! Identity of a connection's session on the PostgreSQL server. If the connection is lost, another connection can end the session by this
//! identity.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::time::Duration;

/// SQL query for the [`Session`] of the connection that runs the query.
pub(super) const OWN: &str = "
    SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint AS began
    FROM pg_stat_activity WHERE pid = pg_backend_pid()";

/// Identity of the PostgreSQL server process of one connection: its process ID and start time. The operating system reuses
/// process IDs, so the start time is part of the identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    process: i32,
    /// Start time of the PostgreSQL server process in microseconds since 1970.
    began: i64,
}

impl Session {
    pub(super) fn read(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            process: row.try_get("pid")?,
            began: row.try_get("began")?,
        })
    }

    /// Ends the PostgreSQL session of another connection, and waits up to `wait_timeout` for its end. Returns `true` if the session has
    /// ended. Then its commits are visible, and the server executes no further statement of it, including statements that are still in
    /// transit.
    pub(super) async fn end(
        self,
        connection: &mut PgConnection,
        wait_timeout: Duration,
    ) -> sqlx::Result<bool> {
        // A session that is not listed has ended.
        let end = sqlx::query_scalar(
            "SELECT pg_terminate_backend(pid, $3) FROM pg_stat_activity
             WHERE pid = $1 AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2",
        );
        let end = end.bind(self.process).bind(self.began).bind(
            i64::try_from(wait_timeout.as_millis())
                .unwrap_or(i64::MAX)
                .max(1),
        );
        let ended: Option<bool> = end.fetch_optional(connection).await?;
        Ok(ended.unwrap_or(true))
    }
}
