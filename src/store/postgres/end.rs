//! The last message of a transaction: it locks the tenant's row, writes all changes, commits, and waits until the commit is durable.
//!
//! The commits of a tenant follow one another, which gives them their order. They do not wait for each other's disk writes: a
//! commit releases the row without being durable, and then waits for the server's log together with all other transactions. A
//! commit is answered, and its events are delivered, when it is durable. A later commit is never durable without the earlier
//! ones, because the server has one log.

use super::connection::FLUSH;
use super::connections::Connection;
use super::database::Database;
use super::error::Class;
use super::writing::{Last, Place};
use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Either};

/// A last message that failed.
pub(super) struct Broken {
    pub(super) error: sqlx::Error,
    /// If `true`, the commit was answered, and a later part failed.
    is_committed: bool,
}

impl Broken {
    /// Returns `true` if the transaction may be committed.
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

/// Sends the last message. Returns the place of the changes if they have one.
pub(super) async fn end(
    database: &Database,
    mut connection: Connection<'_>,
    last: Option<Last>,
) -> Result<Option<Place>, Broken> {
    let (mut parts, mut place) = (Vec::new(), None);
    let flushes = database.can_flush && last.as_ref().is_some_and(|last| last.take.is_some());
    if let Some(last) = last {
        if flushes {
            parts.push("SET LOCAL synchronous_commit = off".to_owned());
        }
        parts.extend(last.take);
        match connection.message(&last.write) {
            Some(write) => parts.extend(write),
            None => {
                let write = async {
                    let before = std::mem::take(&mut parts).join("; ");
                    if !before.is_empty() {
                        let before = sqlx::raw_sql(AssertSqlSafe(before));
                        before.execute(&mut *connection).await?;
                    }
                    let row = last.write.execute(&mut connection).await?;
                    row.as_ref().map(Place::read).transpose()
                };
                let written = database.connections.in_time(write).await;
                let written = written.and_then(|written| written);
                place = written.map_err(Broken::before_commit)?;
            }
        }
        parts.extend(last.promote);
    }
    parts.push("COMMIT".to_owned());
    let commit = parts.len();
    if flushes {
        parts.push(FLUSH.to_owned());
    }
    let mut answered = 0;
    let send = async {
        let message = sqlx::raw_sql(AssertSqlSafe(parts.join("; ")));
        let mut answers = message.fetch_many(&mut *connection);
        while let Some(answer) = answers.try_next().await? {
            match answer {
                Either::Left(_) => answered += 1,
                Either::Right(row) => place = Place::read(&row).ok().or(place.take()),
            }
        }
        Ok(())
    };
    let sent = database.connections.in_time(send).await;
    match sent.and_then(|sent| sent) {
        Ok(()) => {
            connection.give_back();
            Ok(place)
        }
        Err(error) => Err(Broken {
            error,
            is_committed: answered >= commit,
        }),
    }
}
