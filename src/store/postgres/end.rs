//! Last message of a PostgreSQL transaction: it locks the tenant's row, writes all changes, commits, and waits until the commit is durable.
//!
//! The commits of a tenant follow one another, which gives them their order. They do not wait for each other's disk writes: a
//! commit releases the row without being durable, and then waits for the server's log together with all other transactions. A
//! commit is answered, and its events are delivered, when it is durable. A later commit is never durable without the earlier
//! ones, because the server has one log.

use super::connection::{FLUSH, FLUSH_IF_BEHIND};
use super::connections::Connection;
use super::database::Database;
use super::error::Class;
use super::lease::Leased;
use super::place::{Last, Place};
use super::prepared::PLANNED_ONCE;
use super::statement::Statement;
use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Either, PgConnection};

/// Failure of the last message of a PostgreSQL transaction, which writes and commits.
pub(super) struct Broken {
    pub(super) error: sqlx::Error,
    /// If `true`, the server confirmed the commit, and a later part of the message failed.
    is_committed: bool,
}

impl Broken {
    /// Returns `true` if the transaction may have been committed although its last message failed.
    pub(super) fn is_in_doubt(&self) -> bool {
        let says_no = match Class::of(&self.error) {
            Class::Collided | Class::Permanent | Class::ReadOnly | Class::Setup => true,
            Class::Lost | Class::Transient | Class::Login => false,
        };
        self.is_committed || !says_no
    }

    fn before_commit(error: sqlx::Error) -> Self {
        Self {
            error,
            is_committed: false,
        }
    }
}

/// Results of the last message of a PostgreSQL transaction, which writes, commits and claims runs.
#[derive(Default)]
pub(super) struct Sent {
    /// Place of the transaction's changes in the tenant's commit order, or `None` if the last message wrote no changes.
    pub(super) place: Option<Place>,
    /// Runs that the claims in the last message leased.
    pub(super) leased: Vec<Leased>,
}

/// Sends the last message of a PostgreSQL transaction, which writes and commits. `claims` are statements that claim due runs after the
/// commit, in a separate transaction.
pub(super) async fn end(
    database: &Database,
    mut connection: Connection<'_>,
    last: Option<Last>,
    claims: Vec<String>,
) -> Result<Sent, Broken> {
    let (mut parts, mut sent) = (Vec::new(), Sent::default());
    let flushes = database.can_flush && last.as_ref().is_some_and(|last| last.take.is_some());
    if let Some(last) = last {
        if flushes {
            parts.push("SET LOCAL synchronous_commit = off".to_owned());
        }
        parts.extend(last.take);
        match connection.message(&last.write) {
            Some(write) => parts.extend(write),
            None => {
                let before = std::mem::take(&mut parts);
                let write = write_beside(&mut connection, before, last.write);
                let written = database.connections.in_time(write).await;
                let written = written.and_then(|written| written);
                sent.place = written.map_err(Broken::before_commit)?;
            }
        }
        parts.extend(last.promote);
    }
    parts.push("COMMIT".to_owned());
    let commit = parts.len();
    if flushes {
        parts.push(FLUSH.to_owned());
    } else if database.can_flush {
        parts.push(FLUSH_IF_BEHIND.to_owned());
    }
    if !claims.is_empty() {
        parts.push(PLANNED_ONCE.to_owned());
        parts.extend(claims);
    }
    let mut answered = 0;
    let send = async {
        let message = sqlx::raw_sql(AssertSqlSafe(parts.join("; ")));
        let mut answers = message.fetch_many(&mut *connection);
        while let Some(answer) = answers.try_next().await? {
            match answer {
                Either::Left(_) => answered += 1,
                Either::Right(row) if Leased::is_in(&row) => sent.leased.extend(Leased::read(&row)),
                Either::Right(row) => sent.place = Place::read(&row).ok().or(sent.place.take()),
            }
        }
        Ok(())
    };
    let message = database.connections.in_time(send).await;
    match message.and_then(|message| message) {
        Ok(()) => {
            connection.give_back();
            Ok(sent)
        }
        Err(error) => Err(Broken {
            error,
            is_committed: answered >= commit,
        }),
    }
}

/// Executes a transaction's write statement with bound parameters. Used if the statement's values do not fit into a message.
async fn write_beside(
    connection: &mut PgConnection,
    before: Vec<String>,
    write: Statement,
) -> sqlx::Result<Option<Place>> {
    if !before.is_empty() {
        let before = sqlx::raw_sql(AssertSqlSafe(before.join("; ")));
        before.execute(&mut *connection).await?;
    }
    let row = write.execute(connection).await?;
    row.as_ref().map(Place::read).transpose()
}
