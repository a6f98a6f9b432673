//! What a connection is to the server, so that what goes on over one that is lost can be ended over another.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::time::Duration;

/// Asks for the [`Session`] of the connection that asks.
pub(super) const OWN: &str = "
    SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint AS began
    FROM pg_stat_activity WHERE pid = pg_backend_pid()";

/// What the server does for one connection. The numbers of its processes come again, so when it began belongs to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    process: i32,
    /// In microseconds since 1970.
    began: i64,
}

impl Session {
    pub(super) fn read(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            process: row.try_get("pid")?,
            began: row.try_get("began")?,
        })
    }

    /// Has the server end it, and waits for that, but not longer than `patience`. Says whether it is over: then what it had
    /// committed is there, and nothing comes of what it was told besides, also if that is still on its way.
    pub(super) async fn end(
        self,
        connection: &mut PgConnection,
        patience: Duration,
    ) -> sqlx::Result<bool> {
        // Whoever is not listed any more is over.
        let end = sqlx::query_scalar(
            "SELECT pg_terminate_backend(pid, $3) FROM pg_stat_activity
             WHERE pid = $1 AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2",
        );
        let end = end.bind(self.process).bind(self.began).bind(
            i64::try_from(patience.as_millis())
                .unwrap_or(i64::MAX)
                .max(1),
        );
        let ended: Option<bool> = end.fetch_optional(connection).await?;
        Ok(ended.unwrap_or(true))
    }
}
