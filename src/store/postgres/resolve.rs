//! Recovery of the outcome of a commit whose answer was lost.

use super::column::Id;
use super::commit_position::{CommitMarker, CommitPosition, TransactionId};
use super::connection::FLUSH;
use super::database::Database;
use super::outcome::TransactionFailure;
use super::session::Session;
use super::tenant::TenantHandle;
use crate::error::Chain;
use std::time::Duration;
use tokio::time::Instant;

/// A PostgreSQL transaction whose commit has no answer, because the connection was lost.
pub(super) struct UnansweredCommit {
    /// PostgreSQL session of the lost connection, which must end before the outcome is final.
    pub(super) session: Option<Session>,
    pub(super) transaction_id: TransactionId,
    pub(super) commit_marker: Option<CommitMarker>,
}

/// Ends the PostgreSQL session of a lost connection. Returns `false` if the session has not ended yet.
async fn end_session(database: &Database, session: Session) -> sqlx::Result<bool> {
    let mut connection = database.connections.acquire().await?;
    let ended = session.end(&mut connection, database.settings.wait_timeout);
    let is_over = database.connections.with_timeout(ended).await??;
    connection.release();
    Ok(is_over)
}

/// Reads the outcome of a PostgreSQL transaction whose commit has no answer. Returns the position of the changes if the commit has an
/// event.
///
/// The server knows the outcome unless it has crashed since. After a crash another transaction can have the same ID, so only "unknown"
/// and "aborted" are certain.
pub(super) async fn resolve(
    database: &Database,
    tenant: &TenantHandle,
    mut commit: UnansweredCommit,
    error: sqlx::Error,
) -> Result<Option<CommitPosition>, TransactionFailure> {
    const PAUSE: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + database.settings.wait_timeout;
    loop {
        match status(database, tenant, &mut commit).await {
            Ok(Status::Committed(commit_position)) => return Ok(commit_position),
            Ok(Status::NotCommitted) => return Err(error.into()),
            Ok(Status::Unknown) => {
                tracing::warn!(error = %Chain(&error), "the PostgreSQL server crashed during a commit; the outcome is unknown, and the caller receives an error");
                return Err(TransactionFailure::Unknown);
            }
            Ok(Status::Running) => {}
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "cannot read the outcome of a commit, will retry");
            }
        }
        if Instant::now() > deadline {
            tracing::warn!(error = %Chain(&error), "the connection to PostgreSQL was lost during a commit; the outcome is unknown, and the caller receives an error");
            return Err(TransactionFailure::Unknown);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Outcome of a PostgreSQL transaction whose commit has no answer.
enum Status {
    Committed(Option<CommitPosition>),
    NotCommitted,
    /// The PostgreSQL transaction of the unanswered commit, or its session, has not ended yet.
    Running,
    Unknown,
}

async fn status(
    database: &Database,
    tenant: &TenantHandle,
    commit: &mut UnansweredCommit,
) -> sqlx::Result<Status> {
    if let Some(session) = commit.session {
        if !end_session(database, session).await? {
            return Ok(Status::Running);
        }
        commit.session = None;
    }
    let (status, is_same_uptime) = match commit_status(database, &commit.transaction_id).await {
        Err(error) if is_unknown_transaction(&error) => return Ok(Status::NotCommitted),
        commit_status => commit_status?,
    };
    Ok(match status.as_deref() {
        Some("committed") if is_same_uptime => find_commit(database, tenant, commit).await?,
        Some("committed") => Status::Unknown,
        Some("aborted") => Status::NotCommitted,
        Some(_) | None => Status::Running,
    })
}

/// Returns the server's commit status of a transaction, and `true` if the server has not crashed since the transaction started.
async fn commit_status(
    database: &Database,
    transaction_id: &TransactionId,
) -> sqlx::Result<(Option<String>, bool)> {
    let mut connection = database.connections.acquire().await?;
    let sql =
        "SELECT pg_xact_status($1::text::xid8), EXISTS (SELECT 1 FROM ux_alive WHERE since = $2)";
    let status = sqlx::query_as(sql)
        .bind(&transaction_id.xid)
        .bind(&transaction_id.uptime_id);
    let status = status.fetch_one(&mut *connection);
    let status = database.connections.with_timeout(status).await??;
    connection.release();
    Ok(status)
}

/// Makes a commit durable after its answer was lost, and finds the commit's position in the commit order. One of the commit's events
/// identifies the position.
async fn find_commit(
    database: &Database,
    tenant: &TenantHandle,
    commit: &UnansweredCommit,
) -> sqlx::Result<Status> {
    let mut connection = database.connections.acquire().await?;
    let status = async {
        if database.can_flush {
            sqlx::raw_sql(FLUSH).execute(&mut *connection).await?;
        }
        // The server can have crashed since it reported the status over another session.
        let alive = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM ux_alive WHERE since = $1)");
        let alive = alive.bind(&commit.transaction_id.uptime_id);
        if !alive.fetch_one(&mut *connection).await? {
            return Ok(Status::Unknown);
        }
        let (Some(commit_marker), Some(id)) =
            (commit.commit_marker, tenant.id(&mut connection).await?)
        else {
            return Ok(Status::Committed(None));
        };
        let sql = "SELECT n.id, n.latest, n.sequence, e.position, n.first_event, n.breadcrumbs, n.tombstones, n.open_runs,
                 n.finished_runs, n.requests, e.updated_at - $4 AS ux_base
             FROM ux_tenants AS n JOIN ux_events AS e ON e.tenant = n.id
             WHERE n.id = $1 AND e.breadcrumb_id = $2 AND e.version = $3 ORDER BY e.position DESC LIMIT 1";
        let commit_position = sqlx::query(sql)
            .bind(id)
            .bind(Id::from(commit_marker.breadcrumb))
            .bind(commit_marker.version.cast_signed())
            .bind(commit_marker.time);
        let commit_position = commit_position.fetch_one(&mut *connection).await?;
        Ok::<_, sqlx::Error>(Status::Committed(Some(CommitPosition::read(
            &commit_position,
        )?)))
    };
    let status = database.connections.with_timeout(status).await??;
    connection.release();
    Ok(status)
}

/// Returns `true` if an error means that the server does not know the transaction ID. The server has then crashed and lost the
/// transaction, and has not assigned the ID to a later transaction yet.
fn is_unknown_transaction(error: &sqlx::Error) -> bool {
    const INVALID_PARAMETER: &str = "22023";
    let code = error
        .as_database_error()
        .and_then(|database_error| database_error.code());
    code.is_some_and(|code| code == INVALID_PARAMETER)
}
