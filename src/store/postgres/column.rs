//! Conversions between PostgreSQL column values and the types of this crate.

use crate::error::BoxError;
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::{ClaimId, Lineage};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo, PgValueFormat, PgValueRef, Postgres,
};
use sqlx::{Decode, Encode, Row as _, Type};
use std::borrow::{Borrow, Cow};
use uuid::Uuid;

/// A breadcrumb ID or claim ID as a PostgreSQL `uuid`. The driver has its own conversion, but only with a Cargo feature that cannot be
/// enabled together with SQLite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id(Uuid);

impl From<BreadcrumbId> for Id {
    fn from(id: BreadcrumbId) -> Self {
        Self(id.to_uuid())
    }
}

impl From<ClaimId> for Id {
    fn from(id: ClaimId) -> Self {
        Self(Uuid::from_bytes(*id.as_bytes()))
    }
}

impl From<Id> for BreadcrumbId {
    fn from(id: Id) -> Self {
        Self::from_bytes(id.0.into_bytes())
    }
}

impl From<Id> for ClaimId {
    fn from(id: Id) -> Self {
        Self::from_bytes(id.0.into_bytes())
    }
}

impl Id {
    pub(super) const fn uuid(self) -> Uuid {
        self.0
    }
}

impl Type<Postgres> for Id {
    fn type_info() -> PgTypeInfo {
        const UUID: Oid = Oid(2950);
        PgTypeInfo::with_oid(UUID)
    }
}

impl PgHasArrayType for Id {
    fn array_type_info() -> PgTypeInfo {
        const UUIDS: Oid = Oid(2951);
        PgTypeInfo::with_oid(UUIDS)
    }
}

impl Encode<'_, Postgres> for Id {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Id {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let id = match value.format() {
            PgValueFormat::Binary => Uuid::from_slice(value.as_bytes()?)?,
            PgValueFormat::Text => value.as_str()?.parse()?,
        };
        Ok(Self(id))
    }
}

/// Escape character in stored names, such as executor IDs, because PostgreSQL text cannot contain U+0000. The character
/// represents U+0000 if `0` follows, and itself if `1` follows.
const ESCAPE: char = '\u{1A}';

/// Escapes U+0000 in a name, such as an executor ID, for a PostgreSQL column. PostgreSQL text cannot contain U+0000, and
/// different names must have different stored forms.
pub(super) fn name(text: &str) -> Cow<'_, str> {
    if text.contains(['\0', ESCAPE]) {
        text.replace(ESCAPE, "\u{1A}1")
            .replace('\0', "\u{1A}0")
            .into()
    } else {
        text.into()
    }
}

/// Escapes U+0000 in a name for a PostgreSQL column, and returns the result as an owned string.
pub(super) fn name_of(text: &str) -> String {
    name(text).into_owned()
}

/// Formats strings as an array literal of PostgreSQL.
pub(super) fn texts(texts: &[String]) -> String {
    array(texts.iter().map(Some), |text, to| push_quoted(to, text))
}

/// Formats values as an array literal of PostgreSQL. `push` appends one value, in quotes if necessary.
pub(super) fn array<T>(
    values: impl IntoIterator<Item = impl Borrow<Option<T>>>,
    push: impl Fn(&T, &mut String),
) -> String {
    let mut array = String::from("{");
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            array.push(',');
        }
        match value.borrow() {
            Some(value) => push(value, &mut array),
            None => array.push_str("NULL"),
        }
    }
    array.push('}');
    array
}

/// Appends a string to a PostgreSQL array literal, in quotes.
pub(super) fn push_quoted(array: &mut String, text: &str) {
    array.push('"');
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            array.push('\\');
        }
        array.push(char);
    }
    array.push('"');
}

/// Formats a string as an SQL literal. The string must not contain U+0000, which would end the message.
///
/// Quotes are doubled. A string with backslashes becomes an `E''` literal with doubled backslashes, which has the same meaning under
/// every server setting. PostgreSQL's `PQescapeLiteral` does the same.
pub(super) fn literal(text: &str) -> String {
    let has_escapes = text.contains('\\');
    let mut literal = String::with_capacity(text.len() + 4);
    literal.push_str(if has_escapes { " E'" } else { "'" });
    for char in text.chars() {
        if matches!(char, '\'' | '\\') {
            literal.push(char);
        }
        literal.push(char);
    }
    literal.push('\'');
    literal
}

/// Returns the original name from its escaped form in a PostgreSQL column, see [`name`].
pub(super) fn of_name(stored: String) -> String {
    if stored.contains(ESCAPE) {
        stored.replace("\u{1A}0", "\0").replace("\u{1A}1", "\u{1A}")
    } else {
        stored
    }
}

/// Escapes U+0000 in several names for a PostgreSQL column, see [`name`].
pub(super) fn names<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<String> {
    texts.map(name_of).collect()
}

pub(super) fn id(row: &PgRow, column: usize) -> sqlx::Result<BreadcrumbId> {
    row.try_get::<Id, _>(column).map(Into::into)
}

/// Reads an unsigned number from a PostgreSQL column, which stores it as a signed number with the same bits.
pub(super) fn number(row: &PgRow, column: usize) -> sqlx::Result<u64> {
    row.try_get::<i64, _>(column).map(i64::cast_unsigned)
}

/// Reads a counter, which is never negative and fits into 32 bits, from a PostgreSQL column.
pub(super) fn count(row: &PgRow, column: usize) -> sqlx::Result<u32> {
    let number: i64 = row.try_get(column)?;
    u32::try_from(number).map_err(|error| unreadable(column, error))
}

pub(super) fn time(row: &PgRow, column: usize) -> sqlx::Result<Timestamp> {
    row.try_get(column).map(Timestamp::from_micros)
}

pub(super) fn some_time(row: &PgRow, column: usize) -> sqlx::Result<Option<Timestamp>> {
    let micros: Option<i64> = row.try_get(column)?;
    Ok(micros.map(Timestamp::from_micros))
}

/// Reads the correlation ID and the number of hops of a run or breadcrumb from its row, or returns `None` if either is NULL.
pub(super) fn lineage(row: &PgRow, column: usize) -> sqlx::Result<Option<Lineage>> {
    let correlation: Option<String> = row.try_get(column)?;
    if correlation.is_none() {
        return Ok(None);
    }
    let hops = count(row, column + 1)?;
    Ok(correlation.map(|correlation| Lineage::new(of_name(correlation), hops)))
}

/// Reads JSON from a PostgreSQL column whose values the store validated before it wrote them.
pub(super) fn json(column: usize, text: String) -> sqlx::Result<Json> {
    Json::from_validated_text(text).map_err(|error| unreadable(column, error))
}

/// Returns the error for a PostgreSQL column whose value the store never writes.
pub(super) fn unreadable(column: usize, cause: impl Into<BoxError>) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_string(),
        source: cause.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_string_of_an_array_is_quoted() {
        let hostile = ["NULL", "", "a,b", r#"a"b"#, r"a\b", "{}"].map(String::from);

        assert_eq!(texts(&[]), "{}");
        assert_eq!(texts(&hostile), r#"{"NULL","","a,b","a\"b","a\\b","{}"}"#);
    }

    #[test]
    fn a_text_does_not_leave_its_quotes() {
        for (text, expected) in [
            ("", "''"),
            ("plain", "'plain'"),
            ("it's", "'it''s'"),
            (
                "'); DROP TABLE ux_runs; --",
                "'''); DROP TABLE ux_runs; --'",
            ),
            ("a\\", " E'a\\\\'"),
            ("\\'", " E'\\\\'''"),
        ] {
            assert_eq!(literal(text), expected);
        }
    }

    #[test]
    fn names_with_u0000_stay_apart_and_are_read_back() {
        for text in [
            "",
            "a",
            "a\0",
            "\u{1A}0",
            "\u{1A}",
            "\0\u{1A}\0",
            "\u{1A}1\u{1A}0",
        ] {
            let stored = name(text).into_owned();

            assert!(!stored.contains('\0'));
            assert_eq!(of_name(stored), text);
        }
    }
}
