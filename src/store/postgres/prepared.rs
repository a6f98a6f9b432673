//! Named prepared statements of each PostgreSQL connection, and their execution in simple query messages.
//!
//! The statements of every run and every commit must be planned once for all parameters. With statements that the driver prepares,
//! the server can choose to plan each execution. A simple query message can contain several statements, which saves round trips, but
//! no parameters: this module formats the parameters as SQL literals.

use super::column::{self, Id, literal};
use crate::model::BreadcrumbId;
use crate::store::durable::tenant::StoreClock;
use futures::TryStreamExt as _;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Either, PgConnection};

/// Sends SQL statements to the PostgreSQL server as one message. Returns the rows of each statement.
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

/// SQL statement that makes the server plan each later statement of the transaction only once, for any parameter values. It is
/// the first statement of a message.
pub(super) const PLANNED_ONCE: &str = "SET LOCAL plan_cache_mode = force_generic_plan";

/// Formats the two SQL parameters by which tests adjust the store's clock: `$2` and `$3` of [`clock`](super::tenant::clock). `$2`
/// is the time at which a test has stopped the store's clock, or `NULL`. `$3` is the time that tests have added to the clock.
pub(super) fn time(time: &StoreClock) -> String {
    let stopped_at = time.stopped_at().map(|stopped_at| stopped_at.to_string());
    format!(
        "{}, {}",
        stopped_at.as_deref().unwrap_or("NULL"),
        time.shift()
    )
}

pub(super) fn id(id: impl Into<Id>) -> String {
    format!("'{}'::uuid", id.into().uuid())
}

/// Formats an executor ID or an ordering key as an SQL literal, with escapes for characters that PostgreSQL cannot store.
pub(super) fn name(name: &str) -> String {
    literal(&column::name(name))
}

pub(super) fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.map(column::name_of).collect();
    format!("{}::text[]", literal(&column::texts(&names)))
}

/// Formats ordering keys of runs as an SQL array. The element of a run without a key is NULL.
pub(super) fn some_names<'n>(names: impl Iterator<Item = Option<&'n str>>) -> String {
    let names = names.map(|name| name.map(column::name_of));
    let names = column::array(names, |name, to| column::push_quoted(to, name));
    format!("{}::text[]", literal(&names))
}

pub(super) fn numbers(numbers: impl Iterator<Item = i64>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!("'{{{}}}'::bigint[]", numbers.join(","))
}

pub(super) fn ids(ids: impl Iterator<Item = BreadcrumbId>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    format!("'{{{}}}'::uuid[]", ids.join(","))
}
