//! A statement in the making: it is sent with its values beside it, or in a message with the end of its transaction.

use super::column::{Id, literal};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres};
use std::fmt::Display;

/// What the driver takes as values. A statement has as few types of them as there are columns.
pub(super) enum Value {
    Number(i64),
    Numbers(Vec<Option<i64>>),
    Small(Vec<i16>),
    Flags(Vec<bool>),
    Ids(Vec<Option<Id>>),
    Texts(Vec<Option<String>>),
}

/// Makes a value of what a column has in each row.
macro_rules! values {
    ($($of:ty => $variant:ident),*) => {$(
        impl From<Vec<$of>> for Value {
            fn from(values: Vec<$of>) -> Self {
                Self::$variant(values.into_iter().map(Into::into).collect())
            }
        }
    )*};
}
values!(i64 => Numbers, Option<i64> => Numbers, i16 => Small, bool => Flags, Id => Ids, Option<Id> => Ids,
    String => Texts, Option<String> => Texts);

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl Value {
    const fn type_name(&self) -> &'static str {
        match self {
            Self::Number(_) => "bigint",
            Self::Numbers(_) => "bigint[]",
            Self::Small(_) => "smallint[]",
            Self::Flags(_) => "boolean[]",
            Self::Ids(_) => "uuid[]",
            Self::Texts(_) => "text[]",
        }
    }

    fn bind<'q>(self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        match self {
            Self::Number(number) => query.bind(number),
            Self::Numbers(numbers) => query.bind(numbers),
            Self::Small(numbers) => query.bind(numbers),
            Self::Flags(flags) => query.bind(flags),
            Self::Ids(ids) => query.bind(ids),
            Self::Texts(texts) => query.bind(texts),
        }
    }

    /// Writes it as part of a message. False if that cannot be: a message ends at U+0000, which the server refuses.
    fn write(&self, message: &mut String) -> bool {
        fn all<T>(
            message: &mut String,
            values: &[T],
            type_name: &str,
            write: impl Fn(&T) -> Option<String>,
        ) {
            let values: Vec<String> = values
                .iter()
                .map(|value| write(value).unwrap_or_else(|| "NULL".to_owned()))
                .collect();
            message.push_str("ARRAY[");
            message.push_str(&values.join(","));
            message.push_str("]::");
            message.push_str(type_name);
        }
        let name = self.type_name();
        match self {
            Self::Number(number) => message.push_str(&number.to_string()),
            Self::Numbers(all_of) => {
                all(message, all_of, name, |one| one.map(|one| one.to_string()));
            }
            Self::Small(all_of) => all(message, all_of, name, |one| Some(one.to_string())),
            Self::Flags(all_of) => all(message, all_of, name, |one| Some(one.to_string())),
            Self::Ids(all_of) => all(message, all_of, name, |one| {
                one.map(|one| format!("'{}'", one.uuid()))
            }),
            Self::Texts(all_of) => {
                all(message, all_of, name, |one| one.as_deref().map(literal));
                return !all_of.iter().flatten().any(|text| text.contains('\0'));
            }
        }
        true
    }

    /// How much of a message it is, about.
    fn size(&self) -> usize {
        match self {
            Self::Texts(texts) => texts
                .iter()
                .map(|text| 8 + text.as_ref().map_or(0, String::len))
                .sum(),
            Self::Number(_) => 8,
            Self::Numbers(numbers) => numbers.len() * 8,
            Self::Small(numbers) => numbers.len() * 8,
            Self::Flags(flags) => flags.len() * 8,
            Self::Ids(ids) => ids.len() * 40,
        }
    }
}

/// Text with values in it.
pub(super) struct Statement {
    sql: String,
    values: Vec<Value>,
}

impl Statement {
    /// What is larger is sent with its values beside it, which need not be read as SQL.
    const MOST: usize = 16 << 10;

    pub(super) fn new(sql: &str) -> Self {
        Self {
            sql: sql.to_owned(),
            values: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, sql: &str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    pub(super) fn push_bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        let place = self.values.len();
        self.push_shown(&format_args!("${place}"))
    }

    /// What is pushed to it is parted by a text.
    pub(super) fn separated(&mut self, by: &'static str) -> Separated<'_> {
        Separated {
            statement: self,
            by,
            is_first: true,
        }
    }

    /// The text, with places for the values: the same for all that do the same.
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }

    /// Prepares it under a name.
    pub(super) fn prepare(&self, name: &str) -> String {
        let types: Vec<&str> = self.values.iter().map(Value::type_name).collect();
        format!("PREPARE {name} ({}) AS {}", types.join(", "), self.sql)
    }

    /// Executes what was prepared under a name. None if its values are too large for a message, or cannot be in one.
    pub(super) fn execute_as(&self, name: &str) -> Option<String> {
        if self.values.iter().map(Value::size).sum::<usize>() > Self::MOST {
            return None;
        }
        let mut message = format!("EXECUTE {name} (");
        for (place, value) in self.values.iter().enumerate() {
            if place > 0 {
                message.push_str(", ");
            }
            if !value.write(&mut message) {
                return None;
            }
        }
        message.push(')');
        Some(message)
    }

    pub(super) async fn execute(self, connection: &mut PgConnection) -> sqlx::Result<()> {
        let query = sqlx::query(AssertSqlSafe(self.sql));
        let query = self
            .values
            .into_iter()
            .fold(query, |query, value| value.bind(query));
        query.execute(connection).await.map(drop)
    }

    fn push_shown(&mut self, shown: &dyn Display) -> &mut Self {
        use std::fmt::Write as _;
        // Writing to a text does not fail.
        let _ = write!(self.sql, "{shown}");
        self
    }
}

/// Pushes to a statement what is parted by a text.
pub(super) struct Separated<'s> {
    statement: &'s mut Statement,
    by: &'static str,
    is_first: bool,
}

impl Separated<'_> {
    pub(super) fn push(&mut self, sql: &str) -> &mut Self {
        self.part().push(sql);
        self
    }

    pub(super) fn push_bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.part().push_bind(value);
        self
    }

    pub(super) fn push_bind_unseparated(&mut self, value: impl Into<Value>) -> &mut Self {
        self.statement.push_bind(value);
        self
    }

    fn part(&mut self) -> &mut Statement {
        if !std::mem::replace(&mut self.is_first, false) {
            self.statement.push(self.by);
        }
        self.statement
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(texts: &[&str]) -> Statement {
        let mut statement = Statement::new("SELECT ");
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        statement
            .separated(", ")
            .push_bind(7)
            .push_bind(texts)
            .push_bind(vec![Some(1), None])
            .push_bind(vec![true]);
        statement
    }

    #[test]
    fn a_message_has_what_would_be_sent_beside_it() {
        let statement = statement(&["a", "b'c"]);

        assert_eq!(statement.sql(), "SELECT $1, $2, $3, $4");
        assert_eq!(
            statement.prepare("one"),
            "PREPARE one (bigint, text[], bigint[], boolean[]) AS SELECT $1, $2, $3, $4"
        );
        assert_eq!(
            statement.execute_as("one").unwrap(),
            "EXECUTE one (7, ARRAY['a','b''c']::text[], ARRAY[1,NULL]::bigint[], ARRAY[true]::boolean[])"
        );
    }

    #[test]
    fn what_is_large_or_would_end_a_message_is_in_none() {
        let large = "a".repeat(Statement::MOST);

        assert!(statement(&[&large]).execute_as("one").is_none());
        assert!(statement(&["a\0b"]).execute_as("one").is_none());
    }
}
