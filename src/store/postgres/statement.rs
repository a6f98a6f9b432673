//! Builder of an SQL statement. The statement is executed with bound parameters, or as part of a message with its values as literals.

use super::column::{self, Id, literal};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres};
use std::fmt::Display;

/// A parameter of an SQL statement: one value, or the values of a column. Few types keep the number of variants small.
pub(super) enum Value {
    Number(Option<i64>),
    Numbers(Vec<Option<i64>>),
    Small(i16),
    Smalls(Vec<i16>),
    Flag(bool),
    Flags(Vec<bool>),
    Id(Option<Id>),
    Ids(Vec<Option<Id>>),
    Text(Option<String>),
    Texts(Vec<Option<String>>),
}

/// Implements the conversion from a list of one column's values to an array parameter of an SQL statement.
macro_rules! values {
    ($($of:ty => $variant:ident),*) => {$(
        impl From<Vec<$of>> for Value {
            fn from(values: Vec<$of>) -> Self {
                Self::$variant(values.into_iter().map(Into::into).collect())
            }
        }
    )*};
}
values!(i64 => Numbers, Option<i64> => Numbers, i16 => Smalls, bool => Flags, Id => Ids, Option<Id> => Ids,
    String => Texts, Option<String> => Texts);

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Self::Number(number)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl Value {
    const fn type_name(&self) -> &'static str {
        match self {
            Self::Number(_) => "bigint",
            Self::Numbers(_) => "bigint[]",
            Self::Small(_) => "smallint",
            Self::Smalls(_) => "smallint[]",
            Self::Flag(_) => "boolean",
            Self::Flags(_) => "boolean[]",
            Self::Id(_) => "uuid",
            Self::Ids(_) => "uuid[]",
            Self::Text(_) => "text",
            Self::Texts(_) => "text[]",
        }
    }

    /// Converts an array parameter with one element to a parameter with only this value.
    fn only(self) -> Self {
        match self {
            Self::Numbers(mut numbers) => Self::Number(numbers.pop().flatten()),
            Self::Smalls(mut numbers) => Self::Small(numbers.pop().unwrap_or_default()),
            Self::Flags(mut flags) => Self::Flag(flags.pop().unwrap_or_default()),
            Self::Ids(mut ids) => Self::Id(ids.pop().flatten()),
            Self::Texts(mut texts) => Self::Text(texts.pop().flatten()),
            Self::Number(_) | Self::Small(_) | Self::Flag(_) | Self::Id(_) | Self::Text(_) => self,
        }
    }

    fn bind<'q>(self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        match self {
            Self::Number(number) => query.bind(number),
            Self::Numbers(numbers) => query.bind(numbers),
            Self::Small(number) => query.bind(number),
            Self::Smalls(numbers) => query.bind(numbers),
            Self::Flag(flag) => query.bind(flag),
            Self::Flags(flags) => query.bind(flags),
            Self::Id(id) => query.bind(id),
            Self::Ids(ids) => query.bind(ids),
            Self::Text(text) => query.bind(text),
            Self::Texts(texts) => query.bind(texts),
        }
    }

    /// Appends the parameter of an SQL statement, as a literal, to the SQL text of a protocol message. Returns `false` if a
    /// string contains U+0000, which would end the message. An array becomes one literal, because the server reads it faster than
    /// a list of values.
    fn write(&self, message: &mut String) -> bool {
        let texts: &[Option<String>] = match self {
            Self::Text(text) => std::slice::from_ref(text),
            Self::Texts(texts) => texts,
            Self::Number(_) | Self::Numbers(_) | Self::Small(_) | Self::Smalls(_) => &[],
            Self::Flag(_) | Self::Flags(_) | Self::Id(_) | Self::Ids(_) => &[],
        };
        if texts.iter().flatten().any(|text| text.contains('\0')) {
            return false;
        }
        let array = match self {
            Self::Number(number) => {
                let number = number.map(|number| number.to_string());
                return push(message, number.as_deref());
            }
            Self::Small(number) => return push(message, Some(&number.to_string())),
            Self::Flag(flag) => return push(message, Some(name_of_flag(*flag))),
            Self::Id(id) => {
                let id = id.map(|id| literal(&id.uuid().to_string()));
                return push(message, id.as_deref());
            }
            Self::Text(text) => return push(message, text.as_deref().map(literal).as_deref()),
            Self::Numbers(numbers) => column::array(numbers, |one, to| push_display(to, one)),
            Self::Smalls(numbers) => {
                column::array(numbers.iter().map(Some), |one, to| push_display(to, one))
            }
            Self::Flags(flags) => {
                let names = flags.iter().map(|flag| Some(name_of_flag(*flag)));
                column::array(names, |name, to| to.push_str(name))
            }
            Self::Ids(ids) => column::array(ids, |id, to| push_display(to, id.uuid())),
            Self::Texts(texts) => column::array(texts, |text, to| column::push_quoted(to, text)),
        };
        message.push_str(&literal(&array));
        message.push_str("::");
        message.push_str(self.type_name());
        true
    }

    /// Returns the approximate size of the parameter's SQL literal in bytes.
    fn size(&self) -> usize {
        let text = |text: &Option<String>| 8 + text.as_ref().map_or(0, String::len);
        match self {
            Self::Text(one) => text(one),
            Self::Texts(texts) => texts.iter().map(text).sum(),
            Self::Number(_) | Self::Small(_) | Self::Flag(_) => 8,
            Self::Numbers(numbers) => numbers.len() * 8,
            Self::Smalls(numbers) => numbers.len() * 8,
            Self::Flags(flags) => flags.len() * 8,
            Self::Id(_) => 40,
            Self::Ids(ids) => ids.len() * 40,
        }
    }
}

fn name_of_flag(flag: bool) -> &'static str {
    if flag { "TRUE" } else { "FALSE" }
}

/// Appends `value`, or NULL if it is `None`, to the SQL text of a protocol message.
fn push(message: &mut String, value: Option<&str>) -> bool {
    message.push_str(value.unwrap_or("NULL"));
    true
}

fn push_display(to: &mut String, value: impl Display) {
    to.push_str(&value.to_string());
}

/// SQL text with numbered parameters, and their values.
pub(super) struct Statement {
    sql: String,
    values: Vec<Value>,
}

impl Statement {
    /// Maximum total size of an SQL statement's parameter values, in bytes, up to which the values are sent as literals in the
    /// SQL text. Larger values are sent as parameters, which the server need not parse as SQL.
    const MOST: usize = 256 << 10;

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
        let index = self.values.len();
        self.push(&format!("${index}"))
    }

    /// Appends `columns` to the SQL statement as an expression for a table with `rows` rows. The table has no alias. With
    /// `has_row_numbers`, the last column is the number of each row, from 1. One row becomes `VALUES`, because `unnest` would
    /// cost the server more than all further processing of the row.
    pub(super) fn push_rows(&mut self, rows: usize, columns: Vec<Value>, has_row_numbers: bool) {
        let is_one = rows == 1;
        self.push(if is_one { "(VALUES (" } else { "unnest(" });
        for (index, column) in columns.into_iter().enumerate() {
            self.push(if index > 0 { ", " } else { "" });
            if is_one {
                let only = column.only();
                let of_type = only.type_name();
                self.push_bind(only).push("::").push(of_type);
            } else {
                self.push_bind(column);
            }
        }
        self.push(match (is_one, has_row_numbers) {
            (true, true) => ", 1::bigint))",
            (true, false) => "))",
            (false, true) => ") WITH ORDINALITY",
            (false, false) => ")",
        });
    }

    /// Returns the text of the SQL statement, with numbered parameters such as `$1` in place of the values. Statements that
    /// differ only in their values have the same text.
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the SQL that prepares this statement under a name.
    pub(super) fn prepare(&self, name: &str) -> String {
        let types: Vec<&str> = self.values.iter().map(Value::type_name).collect();
        format!("PREPARE {name} ({}) AS {}", types.join(", "), self.sql)
    }

    /// Returns the SQL that executes this statement under its prepared name, with the values as literals. Returns `None` if the values are
    /// too large for a message, or contain U+0000.
    pub(super) fn execute_as(&self, name: &str) -> Option<String> {
        if self.values.iter().map(Value::size).sum::<usize>() > Self::MOST {
            return None;
        }
        let mut message = format!("EXECUTE {name} (");
        for (index, value) in self.values.iter().enumerate() {
            if index > 0 {
                message.push_str(", ");
            }
            if !value.write(&mut message) {
                return None;
            }
        }
        message.push(')');
        Some(message)
    }

    /// Executes the SQL statement with bound parameters. Returns its row, if there is one.
    pub(super) async fn execute(
        self,
        connection: &mut PgConnection,
    ) -> sqlx::Result<Option<PgRow>> {
        let query = sqlx::query(AssertSqlSafe(self.sql));
        let query = self
            .values
            .into_iter()
            .fold(query, |query, value| value.bind(query));
        query.fetch_optional(connection).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(texts: &[&str]) -> Statement {
        let mut statement = Statement::new("SELECT ");
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        statement.push_bind(7).push(", ").push_bind(texts);
        statement
            .push(", ")
            .push_bind(vec![Some(1), None])
            .push(", ")
            .push_bind(vec![true]);
        statement
    }

    #[test]
    fn a_statement_text_contains_the_escaped_parameter_values() {
        let statement = statement(&["a", "b'c"]);

        assert_eq!(statement.sql(), "SELECT $1, $2, $3, $4");
        assert_eq!(
            statement.prepare("one"),
            "PREPARE one (bigint, text[], bigint[], boolean[]) AS SELECT $1, $2, $3, $4"
        );
        assert_eq!(
            statement.execute_as("one").unwrap(),
            r#"EXECUTE one (7, '{"a","b''c"}'::text[], '{1,NULL}'::bigint[], '{TRUE}'::boolean[])"#
        );
    }

    #[test]
    fn one_row_is_a_row_of_values_and_many_are_columns() {
        let columns = |rows: usize| {
            vec![
                vec![Some(1); rows].into(),
                vec!["a".to_owned(); rows].into(),
            ]
        };
        let (mut one, mut many) = (Statement::new(""), Statement::new(""));

        one.push_rows(1, columns(1), true);
        many.push_rows(2, columns(2), true);

        assert_eq!(one.sql(), "(VALUES ($1::bigint, $2::text, 1::bigint))");
        assert_eq!(one.execute_as("one").unwrap(), "EXECUTE one (1, 'a')");
        assert_eq!(many.sql(), "unnest($1, $2) WITH ORDINALITY");
    }

    #[test]
    fn a_value_that_is_too_large_or_contains_nul_has_no_statement_text() {
        let large = "a".repeat(Statement::MOST);

        assert!(statement(&[&large]).execute_as("one").is_none());
        assert!(statement(&["a\0b"]).execute_as("one").is_none());
    }
}
