//! Last protocol message of a PostgreSQL transaction: it locks the tenant's row, writes all changes, commits, and waits until the
//! commit is durable.
//!
//! The commits of a tenant follow one another, which gives them their order. They do not wait for each other's disk writes: a
//! commit releases the row without being durable, and then waits for the server's log together with all other transactions. A
//! commit is answered, and its events are delivered, when it is durable. A later commit is never durable without the earlier
//! ones, because the server has one log.

use super::commit_position::{CommitPosition, FinalMessage};
use super::connection::{FLUSH, FLUSH_IF_BEHIND};
use super::connections::Connection;
use super::database::Database;
use super::error::Class;
use super::lease::Leased;
use super::prepared::PLANNED_ONCE;
use super::statement::Statement;
use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Either, PgConnection};

/// Failure of the last protocol message of a PostgreSQL transaction, which writes and commits.
pub(super) struct FinalMessageError {
    pub(super) error: sqlx::Error,
    /// If `true`, the server confirmed the commit, and only a later part of the transaction's last protocol message failed.
    is_committed: bool,
}

impl FinalMessageError {
    /// Returns `true` if the transaction may have been committed although its last protocol message failed.
    pub(super) fn is_in_doubt(&self) -> bool {
        let is_rejected = match Class::of(&self.error) {
            Class::Conflict | Class::Permanent | Class::ReadOnly | Class::Setup => true,
            Class::Lost | Class::Transient | Class::Login => false,
        };
        self.is_committed || !is_rejected
    }

    fn before_commit(error: sqlx::Error) -> Self {
        Self {
            error,
            is_committed: false,
        }
    }
}

/// Results of the last protocol message of a PostgreSQL transaction, which writes, commits and claims runs.
#[derive(Default)]
pub(super) struct FinalMessageResult {
    /// Position of the transaction's changes in the tenant's commit order, or `None` if the last protocol message wrote no
    /// changes.
    pub(super) commit_position: Option<CommitPosition>,
    /// Runs that were leased by the claims in the last protocol message of the PostgreSQL transaction.
    pub(super) leased: Vec<Leased>,
}

/// Sends the last protocol message of a PostgreSQL transaction, which writes and commits. `claims` are statements that claim due
/// runs after the commit, in a separate transaction.
pub(super) async fn end(
    database: &Database,
    mut connection: Connection<'_>,
    last: Option<FinalMessage>,
    claims: Vec<String>,
) -> Result<FinalMessageResult, FinalMessageError> {
    let (mut statements, mut sent) = (Vec::new(), FinalMessageResult::default());
    let flushes =
        database.can_flush && last.as_ref().is_some_and(|last| last.lock_tenant.is_some());
    if let Some(last) = last {
        if flushes {
            statements.push("SET LOCAL synchronous_commit = off".to_owned());
        }
        statements.extend(last.lock_tenant);
        match connection.message(&last.write) {
            Some(write) => statements.extend(write),
            None => {
                let unsent = std::mem::take(&mut statements);
                let write = write_with_parameters(&mut connection, unsent, last.write);
                let written = database.connections.with_timeout(write).await;
                let written = written.and_then(|written| written);
                sent.commit_position = written.map_err(FinalMessageError::before_commit)?;
            }
        }
        statements.extend(last.promote);
    }
    statements.push("COMMIT".to_owned());
    let commit = statements.len();
    if flushes {
        statements.push(FLUSH.to_owned());
    } else if database.can_flush {
        statements.push(FLUSH_IF_BEHIND.to_owned());
    }
    if !claims.is_empty() {
        statements.push(PLANNED_ONCE.to_owned());
        statements.extend(claims);
    }
    let mut answered = 0;
    let send = async {
        let message = sqlx::raw_sql(AssertSqlSafe(statements.join("; ")));
        let mut answers = message.fetch_many(&mut *connection);
        while let Some(answer) = answers.try_next().await? {
            match answer {
                Either::Left(_) => answered += 1,
                Either::Right(row) if Leased::is_in(&row) => sent.leased.extend(Leased::read(&row)),
                Either::Right(row) => {
                    let read = CommitPosition::read(&row).ok();
                    sent.commit_position = read.or(sent.commit_position.take());
                }
            }
        }
        Ok(())
    };
    let message = database.connections.with_timeout(send).await;
    match message.and_then(|message| message) {
        Ok(()) => {
            connection.release();
            Ok(sent)
        }
        Err(error) => Err(FinalMessageError {
            error,
            is_committed: answered >= commit,
        }),
    }
}

/// Executes a transaction's write statement with bound parameters. Used if the statement's values do not fit into a message.
async fn write_with_parameters(
    connection: &mut PgConnection,
    unsent: Vec<String>,
    write: Statement,
) -> sqlx::Result<Option<CommitPosition>> {
    if !unsent.is_empty() {
        let unsent = sqlx::raw_sql(AssertSqlSafe(unsent.join("; ")));
        unsent.execute(&mut *connection).await?;
    }
    let row = write.execute(connection).await?;
    row.as_ref().map(CommitPosition::read).transpose()
}
