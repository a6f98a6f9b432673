//! Conversions between SQLite column values and the types of this crate.

use super::error::unreadable;
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::Lineage;
use rusqlite::Row;
use rusqlite::types::Type;

/// Returns the form in which SQLite stores a breadcrumb ID: its 16 bytes.
pub(super) fn blob(id: BreadcrumbId) -> [u8; 16] {
    *id.as_bytes()
}

/// Formats strings as a JSON array.
pub(super) fn json_array(strings: &[String]) -> String {
    serde_json::Value::from(strings.to_vec()).to_string()
}

pub(super) fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<BreadcrumbId> {
    row.get::<_, [u8; 16]>(column).map(BreadcrumbId::from_bytes)
}

/// Reads an unsigned number from a SQLite column, which stores it as a signed number with the same bits.
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

pub(super) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row
        .get::<_, Option<i64>>(column)?
        .map(Timestamp::from_micros))
}

/// Reads the correlation ID and the number of hops of a run or breadcrumb from its row, or returns
/// `None` if either is NULL.
pub(super) fn lineage(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Lineage>> {
    let correlation: Option<String> = row.get(column)?;
    let hops: Option<u32> = row.get(column + 1)?;
    Ok(correlation
        .zip(hops)
        .map(|(correlation, hops)| Lineage::new(correlation, hops)))
}

pub(super) fn tags(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<String>> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| unreadable(column, Type::Text, error))
}

/// Reads JSON from a SQLite column whose JSON was checked before the store wrote it.
pub(super) fn json(column: usize, text: String) -> rusqlite::Result<Json> {
    Json::from_validated_text(text).map_err(|error| unreadable(column, Type::Text, error))
}
