//! What is in one column, and what it is to this crate.

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

/// An id as a `uuid`. The driver has this behind a feature that cannot be on beside SQLite.
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

/// Stands for U+0000 in a name, and before a digit for itself.
const ESCAPE: char = '\u{1A}';

/// A name as it is kept: PostgreSQL has no text with U+0000, and two names shall stay two.
pub(super) fn name(text: &str) -> Cow<'_, str> {
    if text.contains(['\0', ESCAPE]) {
        text.replace(ESCAPE, "\u{1A}1")
            .replace('\0', "\u{1A}0")
            .into()
    } else {
        text.into()
    }
}

/// The same, to be kept.
pub(super) fn name_of(text: &str) -> String {
    name(text).into_owned()
}

/// Texts as PostgreSQL writes an array of them.
pub(super) fn texts(texts: &[String]) -> String {
    array(texts.iter().map(Some), |text, to| push_quoted(to, text))
}

/// Returns an array in the format of the server. `push` adds a value that needs no quotes or has them.
pub(super) fn array<T>(
    values: impl IntoIterator<Item = impl Borrow<Option<T>>>,
    push: impl Fn(&T, &mut String),
) -> String {
    let mut array = String::from("{");
    for (place, value) in values.into_iter().enumerate() {
        if place > 0 {
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

/// Adds a text to an array, in quotes.
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

/// A text in a message. It has to be without U+0000, where a message ends.
///
/// Quotes are doubled, and if there are backslashes these are as well, in the syntax in which they mean themselves then
/// whatever the server is set to: as `PQescapeLiteral` of PostgreSQL's own library does.
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

/// A name as it was before [`name`].
pub(super) fn of_name(kept: String) -> String {
    if kept.contains(ESCAPE) {
        kept.replace("\u{1A}0", "\0").replace("\u{1A}1", "\u{1A}")
    } else {
        kept
    }
}

/// The names of several, see [`name`].
pub(super) fn names<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<String> {
    texts.map(name_of).collect()
}

pub(super) fn id(row: &PgRow, column: usize) -> sqlx::Result<BreadcrumbId> {
    row.try_get::<Id, _>(column).map(Into::into)
}

/// A number that is never negative, kept with the same bits.
pub(super) fn number(row: &PgRow, column: usize) -> sqlx::Result<u64> {
    row.try_get::<i64, _>(column).map(i64::cast_unsigned)
}

/// A number that is counted up from 0 and fits.
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

/// Correlation and hops, if they are there.
pub(super) fn lineage(row: &PgRow, column: usize) -> sqlx::Result<Option<Lineage>> {
    let correlation: Option<String> = row.try_get(column)?;
    if correlation.is_none() {
        return Ok(None);
    }
    let hops = count(row, column + 1)?;
    Ok(correlation.map(|correlation| Lineage::new(of_name(correlation), hops)))
}

/// JSON that a store has written, and so has checked.
pub(super) fn json(column: usize, text: String) -> sqlx::Result<Json> {
    Json::checked_before(text).map_err(|error| unreadable(column, error))
}

/// What is in a column is not what the store writes there.
pub(super) fn unreadable(column: usize, why: impl Into<BoxError>) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_string(),
        source: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_an_array_are_quoted_whatever_they_are() {
        let hostile = ["NULL", "", "a,b", r#"a"b"#, r"a\b", "{}"].map(String::from);

        assert_eq!(texts(&[]), "{}");
        assert_eq!(texts(&hostile), r#"{"NULL","","a,b","a\"b","a\\b","{}"}"#);
    }

    #[test]
    fn a_text_does_not_leave_its_quotes() {
        for (text, wanted) in [
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
            assert_eq!(literal(text), wanted);
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
            let kept = name(text).into_owned();

            assert!(!kept.contains('\0'));
            assert_eq!(of_name(kept), text);
        }
    }
}
