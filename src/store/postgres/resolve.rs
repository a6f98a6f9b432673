//! Recovery of the outcome of a commit whose answer was lost.

use super::column::Id;
use super::connection::FLUSH;
use super::database::Database;
use super::outcome::Failed;
use super::place::{Place, Transaction, Witness};
use super::session::Session;
use super::tenant::Named;
use crate::error::Chain;
use std::time::Duration;
use tokio::time::Instant;

/// A PostgreSQL transaction whose commit has no answer, because the connection was lost.
pub(super) struct Lost {
    /// PostgreSQL session of the lost connection, which must end before the outcome is final.
    pub(super) session: Option<Session>,
    pub(super) transaction: Transaction,
    pub(super) witness: Option<Witness>,
}

/// Ends the PostgreSQL session of a lost connection. Returns `false` if the session has not ended yet.
async fn end_session(database: &Database, session: Session) -> sqlx::Result<bool> {
    let mut connection = database.connections.one().await?;
    let ended = session.end(&mut connection, database.settings.patience);
    let is_over = database.connections.in_time(ended).await??;
    connection.give_back();
    Ok(is_over)
}

/// Reads the outcome of a PostgreSQL transaction whose commit has no answer. Returns the place of the changes if the commit has an event.
///
/// The server knows the outcome unless it has crashed since. After a crash another transaction can have the same ID, so only "unknown"
/// and "aborted" are certain.
pub(super) async fn resolve(
    database: &Database,
    tenant: &Named,
    mut lost: Lost,
    error: sqlx::Error,
) -> Result<Option<Place>, Failed> {
    const PAUSE: Duration = Duration::from_millis(50);
    let give_up = Instant::now() + database.settings.patience;
    loop {
        match status(database, tenant, &mut lost).await {
            Ok(Status::Committed(place)) => return Ok(place),
            Ok(Status::NotCommitted) => return Err(error.into()),
            Ok(Status::Unknown) => {
                tracing::warn!(error = %Chain(&error), "the PostgreSQL server crashed during a commit; the outcome is unknown, and the caller receives an error");
                return Err(Failed::Unknown);
            }
            Ok(Status::Running) => {}
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "cannot read the outcome of a commit, will retry");
            }
        }
        if Instant::now() > give_up {
            tracing::warn!(error = %Chain(&error), "the connection to PostgreSQL was lost during a commit; the outcome is unknown, and the caller receives an error");
            return Err(Failed::Unknown);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Outcome of a PostgreSQL transaction whose commit has no answer.
enum Status {
    Committed(Option<Place>),
    NotCommitted,
    /// The transaction has not ended yet.
    Running,
    Unknown,
}

async fn status(database: &Database, tenant: &Named, lost: &mut Lost) -> sqlx::Result<Status> {
    if let Some(session) = lost.session {
        if !end_session(database, session).await? {
            return Ok(Status::Running);
        }
        lost.session = None;
    }
    let (status, is_the_same) = match said(database, &lost.transaction).await {
        Err(error) if is_unheard_of(&error) => return Ok(Status::NotCommitted),
        said => said?,
    };
    Ok(match status.as_deref() {
        Some("committed") if is_the_same => find(database, tenant, lost).await?,
        Some("committed") => Status::Unknown,
        Some("aborted") => Status::NotCommitted,
        Some(_) | None => Status::Running,
    })
}

/// Returns the server's commit status of a transaction, and `true` if the server has not crashed since the transaction started.
async fn said(
    database: &Database,
    transaction: &Transaction,
) -> sqlx::Result<(Option<String>, bool)> {
    let mut connection = database.connections.one().await?;
    let sql =
        "SELECT pg_xact_status($1::text::xid8), EXISTS (SELECT 1 FROM ux_alive WHERE since = $2)";
    let status = sqlx::query_as(sql)
        .bind(&transaction.number)
        .bind(&transaction.since);
    let status = status.fetch_one(&mut *connection);
    let status = database.connections.in_time(status).await??;
    connection.give_back();
    Ok(status)
}

/// Makes a commit durable after its answer was lost, and finds the commit's place in the commit order. One of the commit's events
/// identifies the place.
async fn find(database: &Database, tenant: &Named, lost: &Lost) -> sqlx::Result<Status> {
    let mut connection = database.connections.one().await?;
    let found = async {
        if database.can_flush {
            sqlx::raw_sql(FLUSH).execute(&mut *connection).await?;
        }
        // The server can have crashed since it reported the status over another session.
        let alive = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM ux_alive WHERE since = $1)");
        let alive = alive.bind(&lost.transaction.since);
        if !alive.fetch_one(&mut *connection).await? {
            return Ok(Status::Unknown);
        }
        let (Some(witness), Some(id)) = (lost.witness, tenant.id(&mut connection).await?) else {
            return Ok(Status::Committed(None));
        };
        let sql = "SELECT n.id, n.latest, n.sequence, e.position, n.first_event, n.breadcrumbs, n.tombstones, n.open_runs,
                 n.finished_runs, n.requests, e.updated_at - $4 AS ux_base
             FROM ux_tenants AS n JOIN ux_events AS e ON e.tenant = n.id
             WHERE n.id = $1 AND e.breadcrumb_id = $2 AND e.version = $3 ORDER BY e.position DESC LIMIT 1";
        let place = sqlx::query(sql)
            .bind(id)
            .bind(Id::from(witness.breadcrumb))
            .bind(witness.version.cast_signed())
            .bind(witness.time);
        let place = place.fetch_one(&mut *connection).await?;
        Ok::<_, sqlx::Error>(Status::Committed(Some(Place::read(&place)?)))
    };
    let found = database.connections.in_time(found).await??;
    connection.give_back();
    Ok(found)
}

/// Returns `true` if an error means that the server does not know the transaction ID. The server has then crashed and lost the
/// transaction, and has not assigned the ID to a later transaction yet.
fn is_unheard_of(error: &sqlx::Error) -> bool {
    const INVALID_PARAMETER: &str = "22023";
    let code = error.as_database_error().and_then(|said| said.code());
    code.is_some_and(|code| code == INVALID_PARAMETER)
}
