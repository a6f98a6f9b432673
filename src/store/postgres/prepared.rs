//! Statements that each connection has prepared under a name, and how to execute them by a message of its own.
//!
//! What is done for every run and every commit is to be planned once, whatever the parameters are: the driver lets the
//! server decide that, which plans for each time if it takes the plan for a good one. And a message can have more than
//! one statement in it, which is one round trip, but no parameters: so they are written into it here.

use super::column::{self, literal};
use super::{begin, facts, lease, log, queue};
use crate::store::durable::tenant::Time;
use futures::TryStreamExt as _;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Either, PgConnection};
use uuid::Uuid;

/// What each connection is told before it executes one of them: there have to be tables.
pub(super) fn statements() -> String {
    let (begin, facts) = (begin::statements(), facts::statements());
    let (lease, queue) = (lease::statement(), queue::statement());
    format!("{begin}; {facts}; {lease}; {queue}; {}", log::NEXT)
}

/// Sends statements as one message. Returns the rows of each.
pub(super) async fn rows(
    connection: &mut PgConnection,
    statements: &[String],
) -> sqlx::Result<Vec<Vec<PgRow>>> {
    let mut rows: Vec<Vec<PgRow>> = statements.iter().map(|_| Vec::new()).collect();
    let message = sqlx::raw_sql(AssertSqlSafe(statements.join("; ")));
    let mut answers = message.fetch_many(connection);
    let mut ended = 0;
    while let Some(answer) = answers.try_next().await? {
        match (answer, rows.get_mut(ended)) {
            (Either::Left(_), _) => ended += 1,
            (Either::Right(row), Some(rows)) => rows.push(row),
            (Either::Right(_), None) => {}
        }
    }
    drop(answers);
    Ok(rows)
}

/// Begins a message: what follows in its transaction is planned once.
pub(super) const PLANNED_ONCE: &str = "SET LOCAL plan_cache_mode = force_generic_plan";

/// Where the clock is held, and how far it is moved, as `$2` and `$3` of [`clock`](super::tenant::clock).
pub(super) fn time(time: &Time) -> String {
    let held = time.held().map(|held| held.to_string());
    format!("{}, {}", held.as_deref().unwrap_or("NULL"), time.shift())
}

pub(super) fn id(id: Uuid) -> String {
    format!("'{id}'::uuid")
}

/// The name of an executor or a line, as it is kept.
pub(super) fn name(name: &str) -> String {
    literal(&column::name(name))
}

pub(super) fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(column::name_of).collect();
    format!("{}::text[]", literal(&column::texts(&names)))
}

/// The ordering keys of runs. A run without one has the value NULL.
pub(super) fn some_names<'n>(names: impl Iterator<Item = Option<&'n str>>) -> String {
    let names = names.map(|name| name.map(column::name_of));
    let names = column::array(names, |name, to| column::push_quoted(to, name));
    format!("{}::text[]", literal(&names))
}

pub(super) fn numbers(numbers: impl Iterator<Item = i64>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!("'{{{}}}'::bigint[]", numbers.join(","))
}

pub(super) fn ids(ids: impl Iterator<Item = Uuid>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    format!("'{{{}}}'::uuid[]", ids.join(","))
}
