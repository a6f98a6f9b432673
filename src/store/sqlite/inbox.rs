//! The table `ux_inbox`: new breadcrumbs that other programs insert in their transactions.

use super::NAME;
use super::column::id;
use super::error::Fault;
use super::stage;
use super::table;
use super::tenant::Writing;
use crate::store::StoreError;
use crate::store::durable::inbox::{AT_ONCE, Inserted, Refusal, log_refused};
use rusqlite::Connection;

/// Rows that the store can take in, oldest first.
pub(super) const FIRST: &str = "
    SELECT serial, id, breadcrumb FROM ux_inbox WHERE tenant = ?1 AND refused IS NULL ORDER BY serial LIMIT ?2";

pub(super) const IS_FILLED: &str =
    "SELECT 1 FROM ux_inbox WHERE tenant = ?1 AND refused IS NULL LIMIT 1";

/// Returns `true` if there are rows of a tenant that the store can take in.
pub(super) fn is_filled(connection: &Connection, tenant: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached(IS_FILLED)?.exists([tenant])
}

/// Creates the breadcrumbs of the oldest `most` rows, and deletes these rows. A row that cannot be taken in gets its reason. Returns
/// `true` if there may be more rows.
pub(super) fn take_in(writing: &mut Writing<'_>, most: i64) -> Result<bool, Fault> {
    let mut first = writing.sql(FIRST)?;
    let rows = first.query_map((writing.name, most), |row| {
        let is_chosen = row.get_ref(1)? != rusqlite::types::ValueRef::Null;
        Ok(Inserted {
            serial: row.get(0)?,
            id: is_chosen.then(|| id(row, 1)).transpose()?,
            text: row.get(2)?,
        })
    })?;
    let rows: Vec<Inserted> = rows.collect::<rusqlite::Result<_>>()?;
    let mut refused = 0;
    for row in &rows {
        let Err(refusal) = create(writing, row)? else {
            let mut delete = writing.sql("DELETE FROM ux_inbox WHERE serial = ?1")?;
            delete.execute([row.serial])?;
            continue;
        };
        let mut refuse = writing.sql("UPDATE ux_inbox SET refused = ?2 WHERE serial = ?1")?;
        refuse.execute((row.serial, refusal.text()))?;
        refused += 1;
    }
    if refused > 0 {
        log_refused(NAME, writing.name, refused);
    }
    Ok(i64::try_from(rows.len()).unwrap_or(AT_ONCE) == most)
}

/// Creates the breadcrumb of a row. The inner error is the reason why the row is refused.
fn create(writing: &mut Writing<'_>, row: &Inserted) -> Result<Result<(), Refusal>, Fault> {
    let new = match row.read(writing.limits.breadcrumb_bytes) {
        Ok(new) => new,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(id) = row.id
        && table::find(writing.connection, writing.tenant.id, id)?.is_some()
    {
        return Ok(Err(Refusal::Exists(id)));
    }
    match stage::create(writing, row.id, new) {
        Err(Fault::Refused(error @ StoreError::Rejected { .. })) => {
            Ok(Err(Refusal::Rejected(error)))
        }
        created => created.map(Ok),
    }
}
